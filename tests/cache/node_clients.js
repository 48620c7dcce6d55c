// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
//
// node node_clients.js PORT: the same with ioredis and with node-redis, over RESP2 and RESP3.
"use strict";

const assert = require("node:assert");
const crypto = require("node:crypto");
const Redis = require("ioredis");
const { createClient, RESP_TYPES } = require("redis");

const port = Number(process.argv[2]);
const SIZES = [0, 1, 3000, 100000, 3 << 20];
const COUNT = 5000;

async function withIoredis(protocol) {
  const client = new Redis({ port, protocol });
  await client.flushall();
  for (const size of SIZES) {
    const value = crypto.randomBytes(size);
    assert.strictEqual(await client.set(`value:${size}`, value, "EX", 1000), "OK");
    assert.deepStrictEqual(await client.getBuffer(`value:${size}`), value);
    assert.ok((await client.ttl(`value:${size}`)) > 990);
  }
  const pipeline = client.pipeline();
  for (let i = 0; i !== COUNT; ++i) pipeline.set(`k:${i}`, i).get(`k:${i}`).incr("counter");
  const replies = await pipeline.exec();
  for (let i = 0; i !== COUNT; ++i) {
    assert.deepStrictEqual(replies.slice(3 * i, 3 * i + 3), [[null, "OK"], [null, `${i}`], [null, i + 1]]);
  }
  assert.strictEqual(await client.set("k:1", "x", "NX"), null);
  assert.deepStrictEqual(await client.mget("k:1", "none", "k:2"), ["1", null, "2"]);
  await client.mset({ a: "1", b: "2" });
  assert.strictEqual(await client.del("a", "b", "none"), 2);
  await assert.rejects(client.incr(`value:${SIZES[2]}`), /not an integer/);
  const seen = new Set();
  for await (const keys of client.scanStream({ match: "k:*", count: 500 })) keys.forEach((key) => seen.add(key));
  assert.strictEqual(seen.size, COUNT);
  assert.strictEqual(await client.dbsize(), COUNT + SIZES.length + 1);
  assert.match(await client.info(), /redis_version:7/);
  await client.quit();
}

async function withNodeRedis(protocol) {
  const client = createClient({ socket: { port, host: "127.0.0.1" }, RESP: protocol });
  await client.connect();
  await client.flushAll();
  const binary = client.withTypeMapping({ [RESP_TYPES.BLOB_STRING]: Buffer });
  for (const size of SIZES) {
    const value = crypto.randomBytes(size);
    assert.strictEqual(
      await client.set(`value:${size}`, value, { expiration: { type: "EX", value: 1000 } }), "OK");
    assert.deepStrictEqual(await binary.get(`value:${size}`), value);
    assert.ok((await client.pTTL(`value:${size}`)) > 990000);
  }
  const replies = await Promise.all(Array.from({ length: COUNT }, (_, i) =>
    Promise.all([client.set(`k:${i}`, i.toString()), client.get(`k:${i}`), client.incr("counter")])));
  replies.forEach((reply, i) => assert.deepStrictEqual(reply, ["OK", `${i}`, i + 1]));
  assert.deepStrictEqual(await client.mGet(["k:1", "none", "k:2"]), ["1", null, "2"]);
  assert.strictEqual(await client.append("k:1", "23"), 3);
  assert.strictEqual(await client.getRange("k:1", 1, -1), "23");
  assert.strictEqual(await client.getDel("k:1"), "123");
  assert.strictEqual(await client.exists(["k:1", "k:2", "k:2"]), 2);
  await assert.rejects(client.sendCommand(["NOSUCH"]), /unknown command/);
  const seen = new Set();
  for await (const keys of client.scanIterator({ MATCH: "k:*", COUNT: 500 })) {
    for (const key of keys) seen.add(key);
  }
  assert.strictEqual(seen.size, COUNT - 1);
  assert.match(await client.info("server"), /redis_version:7/);
  const parameters = await client.configGet("maxclients");
  assert.deepStrictEqual({ ...parameters }, { maxclients: "10000" });
  await client.close();
}

async function main() {
  for (const protocol of [2, 3]) {
    await withIoredis(protocol);
    await withNodeRedis(protocol);
  }
}

main().catch((error) => {
  console.error(error);
  process.exit(1);
});
