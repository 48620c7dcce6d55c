# SPDX-License-Identifier: Apache-2.0
# Copyright The Linkspan authors
"""Random commands to linkspan-cached and to redis-server: the replies are the same, byte for byte.

redis_test.py [COMMANDS [SEED]]. Keys without an order are compared as sets, times to live within a tolerance,
and what is about the server itself by its shape.
"""

import os
import random
import re
import sys
import time

from harness import Cached, Client, RedisServer, encoded, transports

COMMANDS = int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000
SEED = int(sys.argv[2]) if len(sys.argv) > 2 else int.from_bytes(os.urandom(4), "big")
BATCH = 500
TOLERANCE_MS = 2000
FAR_MS = 9_000_000_000_000  # some 285 years: beyond it linkspan-cached says less than it was told

RANDOM = random.Random(SEED)
LARGE = bytes(RANDOM.randrange(256) for _ in range(9000)) * 12
KEYS = [b"key:%d" % i for i in range(60)] + [b"", b"k\r\n\0", b"*[a]?\\", b"n" * 300, "schlüssel".encode()]
INTEGERS = [b"0", b"1", b"-1", b"7", b"100", b"-100", b"9223372036854775807", b"-9223372036854775808"]
NO_INTEGERS = [b"", b"+1", b"01", b" 1", b"1 ", b"1.0", b"abc", b"9223372036854775808", b"-0", b"0x10", b"-"]


def chance(probability):
    return RANDOM.random() < probability


def key():
    return RANDOM.choice(KEYS)


def value():
    kind = RANDOM.random()
    if kind < 0.4:
        return b"%d" % RANDOM.randrange(-1000, 1000)
    if kind < 0.45:
        return RANDOM.choice(INTEGERS + NO_INTEGERS)
    if kind < 0.98:
        start = RANDOM.randrange(8000)
        return LARGE[start:start + RANDOM.randrange(150)]
    start = RANDOM.randrange(5000)
    return LARGE[start:start + RANDOM.randrange(1900, 2200) if chance(0.9) else start + 100_000]


def number():
    return RANDOM.choice(NO_INTEGERS) if chance(0.05) else RANDOM.choice(INTEGERS) if chance(0.1) else \
        b"%d" % RANDOM.randrange(-50, 50)


def seconds():
    """Far away, so that nothing ends while the test runs."""
    return b"%d" % RANDOM.randrange(5_000, 1_000_000)


def in_any_case(word):
    return RANDOM.choice([word, word.upper(), word.title()])


def time_option(names):
    name = RANDOM.choice(names)
    far = int(seconds())
    if name.endswith(b"at"):
        far += int(time.time())
    if name.startswith(b"p"):
        far *= 1000
    if chance(0.08):
        return [in_any_case(name), RANDOM.choice(NO_INTEGERS + [b"0", b"-5", b"9223372036854775807"])]
    return [in_any_case(name), b"%d" % far]


def set_command():
    arguments = [b"set", key(), value()]
    for _ in range(RANDOM.choice([0, 0, 0, 1, 1, 2, 3])):
        arguments += RANDOM.choice([
            lambda: [in_any_case(b"nx")], lambda: [in_any_case(b"xx")], lambda: [in_any_case(b"get")],
            lambda: [in_any_case(b"keepttl")], lambda: time_option([b"ex", b"px", b"exat", b"pxat"]),
            lambda: [RANDOM.choice([b"persist", b"ex", b"what"])] if chance(0.1) else []])()
    return arguments


def getex_command():
    arguments = [b"getex", key()]
    for _ in range(RANDOM.choice([0, 1, 1, 2])):
        arguments += RANDOM.choice([
            lambda: [in_any_case(b"persist")], lambda: time_option([b"ex", b"px", b"exat", b"pxat"]),
            lambda: [RANDOM.choice([b"nx", b"px", b"what"])] if chance(0.2) else []])()
    return arguments


def expire_command():
    name = RANDOM.choice([b"expire", b"pexpire"])
    far = int(seconds()) * (1 if name == b"expire" else 1000)
    when = b"%d" % far
    if chance(0.15):
        when = RANDOM.choice(NO_INTEGERS + INTEGERS + [b"9223372036854775", b"-9223372036854775"])
        if when in (b"1", b"7", b"100", b"9223372036854775"):
            when = b"-3"
    arguments = [name, key(), when]
    for _ in range(RANDOM.choice([0, 0, 0, 1, 2])):
        arguments.append(in_any_case(RANDOM.choice([b"nx", b"xx", b"gt", b"lt", b"what"] if chance(0.1)
                                                   else [b"nx", b"xx"])))
    return arguments


def keys_of(name, most=4):
    return [name] + [key() for _ in range(RANDOM.randrange(1, most))]


def mset_command():
    arguments = [b"mset"]
    for _ in range(RANDOM.randrange(1, 4)):
        arguments += [key(), value()]
    return arguments + ([b"odd"] if chance(0.05) else [])


def wrong_command():
    name = RANDOM.choice([b"get", b"set", b"mget", b"incr", b"incrby", b"append", b"strlen", b"getrange",
                          b"getdel", b"setnx", b"del", b"unlink", b"exists", b"expire", b"ttl", b"pttl",
                          b"persist", b"type", b"echo", b"dbsize", b"getex", b"scan", b"keys", b"select",
                          b"client", b"config", b"auth", b"nosuch", b"no such thing", b"x" * 200])
    return [name] + [RANDOM.choice([b"a", b"what", b"1" * 60]) for _ in range(RANDOM.randrange(0, 6))]


def connection_command():
    return RANDOM.choice([
        [b"ping"], [b"ping", value()], [b"echo", value()],
        [b"select", RANDOM.choice([b"0", b"1", b"x", b"-1"])],
        [b"client", b"setname", RANDOM.choice([b"name", b"a b", b"x" * 70, b""])], [b"client", b"getname"],
        [b"client", b"getname", b"x"], [b"client", b"setname"], [b"client", b"nosuch"],
        [b"auth", b"password"], [b"auth", b"default", b"x"], [b"auth", b"nobody", b"x"],
        [b"auth", b"a", b"b", b"c"], [b"hello", b"4"], [b"hello", b"x"], [b"hello", b"3", b"what"],
        [b"command", b"nosuch"], [b"config", b"nosuch"], [b"config", b"get"],
        [b"scan", b"x"], [b"scan", b"0", b"count"], [b"scan", b"0", b"count", b"0"],
        [b"scan", b"0", b"count", b"x"], [b"scan", b"0", b"what", b"x"]])


def past_command():
    """A time that is over; the read behind it makes redis-server notice."""
    name = key()
    return [[b"set", name, value(), b"pxat", b"%d" % RANDOM.randrange(1, 1_000_000)], [b"get", name]]


MAKERS = [(30, set_command), (25, lambda: [in_any_case(b"get"), key()]),
          (4, lambda: [b"setnx", key(), value()]),
          (6, lambda: keys_of(b"mget", 6)), (5, mset_command), (6, lambda: keys_of(b"del")),
          (3, lambda: keys_of(b"unlink")), (5, lambda: keys_of(b"exists")),
          (8, lambda: [RANDOM.choice([b"incr", b"decr"]), key()]),
          (8, lambda: [RANDOM.choice([b"incrby", b"decrby"]), key(), number()]),
          (5, lambda: [b"append", key(), LARGE[:RANDOM.randrange(60)] if chance(0.97) else value()]),
          (5, lambda: [b"strlen", key()]), (6, lambda: [b"getrange", key(), number(), number()]),
          (3, lambda: [b"getdel", key()]), (6, getex_command), (6, expire_command),
          (4, lambda: [b"persist", key()]), (4, lambda: [b"type", key()]), (2, lambda: [b"dbsize"]),
          (3, wrong_command), (4, connection_command)]
WEIGHTS = [weight for weight, _ in MAKERS]
FUNCTIONS = [function for _, function in MAKERS]


def batch(size):
    """As they are sent: mostly in the form of clients, some as lines."""
    commands = []
    for function in RANDOM.choices(FUNCTIONS, WEIGHTS, k=size):
        commands.append(function())
        if chance(0.002):
            commands += past_command()
        if chance(0.0005):
            commands.append([RANDOM.choice([b"flushall", b"flushdb"]),
                             *RANDOM.choice([[], [b"sync"], [b"no"]])])
    return commands


def sent_as(arguments):
    if chance(0.02) and all(re.fullmatch(rb"[A-Za-z0-9:]+", each) for each in arguments):
        return RANDOM.choice([b" ", b"  \t"]).join(arguments) + RANDOM.choice([b"\n", b"\r\n"])
    return encoded(arguments)


class Pair:
    """Both servers, and what they say to the same."""

    def __init__(self, cached, redis):
        self.ours, self.theirs = Client(cached.port), Client(redis.port)
        self.count = 0

    def both(self, *arguments):
        self.count += 1
        return self.ours(*arguments), self.theirs(*arguments)

    def same(self, *arguments):
        ours, theirs = self.both(*arguments)
        check(ours == theirs, f"{arguments}: {ours!r} instead of {theirs!r}")
        return ours

    def compare(self, commands):
        """Sends all of them at once; when the replies differ, says which does first."""
        self.count += len(commands)
        end = b"end of batch %d" % self.count
        request = b"".join(map(sent_as, commands)) + encoded([b"echo", end])
        end = b"$%d\r\n%s\r\n" % (len(end), end)
        for client in (self.ours, self.theirs):
            client.send(request)
        ours, theirs = self.ours.raw_until(end), self.theirs.raw_until(end)
        if ours == theirs:
            return
        self.ours.received, self.theirs.received = ours, theirs
        for arguments in commands:
            our_reply, their_reply = self.ours.reply(), self.theirs.reply()
            check(our_reply == their_reply,
                  f"{arguments}: {str(our_reply)[:300]} instead of {str(their_reply)[:300]}")
        raise AssertionError("replies that are equal are encoded differently")

    def close(self):
        self.ours.socket.close()
        self.theirs.socket.close()


def check(condition, text):
    if not condition:
        raise AssertionError(text)


def compare_keys(pair):
    """What has no order."""
    for pattern in [b"*", b"key:*", b"key:?", b"key:[0-3]*", b"*\\[*", b"k[^e]*", b"nosuch", b"*[*",
                    b"[z-a]*"]:
        ours, theirs = pair.both(b"keys", pattern)
        check(sorted(ours) == sorted(theirs), f"keys {pattern}: {sorted(ours)} instead of {sorted(theirs)}")
    everything = sorted(theirs_keys := pair.theirs(b"keys", b"*"))
    check(len(theirs_keys) == pair.same(b"dbsize"), "the number of keys")
    for options in [[], [b"count", b"100"], [b"match", b"key:1*"], [b"type", b"string"], [b"type", b"list"],
                    [b"match", b"*", b"count", b"3"]]:
        found = []
        for client in (pair.ours, pair.theirs):
            cursor, seen = b"0", set()
            while True:
                cursor, names = client(b"scan", cursor, *options)
                seen.update(names)
                if cursor == b"0":
                    break
            found.append(seen)
        check(found[0] == found[1], f"scan {options}: {found[0]} instead of {found[1]}")
    return everything


def compare_times(pair, names):
    for name in names:
        for command, unit in [(b"ttl", 1000), (b"pttl", 1)]:
            ours, theirs = pair.both(command, name)
            if ours < 0 or theirs < 0:
                check(ours == theirs, f"{command} {name}: {ours} instead of {theirs}")
            far = min(ours, theirs) * unit >= FAR_MS
            check(far or abs(ours - theirs) * unit <= TOLERANCE_MS,
                  f"{command} {name}: {ours} instead of {theirs}")


def shape(value):
    if isinstance(value, bytes):
        return "number" if value.isdigit() else "text"
    if isinstance(value, list):
        return [shape(each) for each in value]
    return type(value).__name__


def compare_server(pair):
    """What is about the server itself, by its shape."""
    for arguments in [[b"time"], [b"client", b"id"], [b"config", b"get", b"maxmemory"],
                      [b"config", b"get", b"port", b"maxclients"]]:
        ours, theirs = pair.both(*arguments)
        if hasattr(ours, "value"):
            check(ours.kind == theirs.kind and sorted(ours.value[::2]) == sorted(theirs.value[::2]),
                  str(arguments))
        elif arguments[0] == b"config":
            check(sorted(ours[::2]) == sorted(theirs[::2]), str(arguments))
        else:
            check(shape(ours) == shape(theirs), f"{arguments}: {ours} instead of {theirs}")
    check(pair.same(b"config", b"get", b"nosuch") is not None, "config get")
    ours, theirs = pair.both(b"info", b"clients")
    texts = [each.value if hasattr(each, "value") else each for each in (ours, theirs)]
    check(type(ours) is type(theirs) and all(b"connected_clients:" in text for text in texts), "info")
    names = [b"get", b"set", b"mget", b"del", b"mset", b"expire", b"ping", b"nosuch"]
    for our_info, their_info in zip(*pair.both(b"command", b"info", *names)):
        # name, arity, and where the keys are
        check((our_info is None) == (their_info is None), "command info")
        if our_info:
            check(our_info[:2] + our_info[3:6] == their_info[:2] + their_info[3:6],
                  f"command info: {our_info} instead of {their_info}")
            check(len(our_info) == len(their_info), "command info")


def compare_ends_of_life(pair):
    """Keys whose time is over are gone for every command."""
    for i in range(10):
        pair.same(b"set", b"short:%d" % i, b"v", b"px", b"%d" % (20 + i))
    deadline = time.monotonic() + 30
    names = [b"short:%d" % i for i in range(10)]
    while any(client(b"exists", *names) for client in (pair.ours, pair.theirs)):
        check(time.monotonic() < deadline, "keys whose time is over are still there")
    for name in names:
        for arguments in [[b"get", name], [b"ttl", name], [b"type", name], [b"strlen", name],
                          [b"persist", name], [b"expire", name, b"100"],
                          [b"set", name, b"x", b"xx"], [b"getdel", name], [b"del", name]]:
            pair.same(*arguments)


def compare_hello(cached, redis):
    for version in [b"2", b"3"]:
        pair = Pair(cached, redis)
        ours, theirs = pair.both(b"hello", version, b"setname", b"tester")
        ours, theirs = (each.value if hasattr(each, "value") else each for each in (ours, theirs))
        at = ours.index(b"id") + 1
        ours[at] = theirs[at] = "id"
        check(ours == theirs, f"hello {version}: {ours} instead of {theirs}")
        pair.same(b"client", b"getname")
        pair.close()


def compare_broken_requests(cached, redis):
    """What closes a connection: with the same words."""
    for request in [b"*x\r\n", b"*1\r\n$x\r\n", b"*1\r\nx1\r\n", b"*1\r\n$-1\r\n", b"*1\r\n$99999999999\r\n",
                    b"*9999999999\r\n", b"get \"a\n", b"get 'a'b\n", b"x" * 70_000,
                    b"*1\r\n$4\r\nping\r\nping\r\n*0\r\n\r\n*1\r\n$4\r\nquit\r\n"]:
        answers = []
        for server in (cached, redis):
            with Client(server.port) as client:
                client.send(request)
                answers.append(client.until_end())
        check(answers[0] == answers[1] and answers[0],
              f"{request[:40]}: {answers[0]} instead of {answers[1]}")


def main():
    print(f"redis_test.py {COMMANDS} {SEED}", flush=True)
    begin = time.monotonic()
    kinds = transports()
    with RedisServer() as redis:
        total = 0
        for index, transport in enumerate(kinds):
            with Cached(transport=transport) as cached:
                with Client(redis.port) as client:
                    client(b"flushall")
                compare_hello(cached, redis)
                compare_broken_requests(cached, redis)
                pairs = [Pair(cached, redis), Pair(cached, redis)]
                pairs[1].both(b"hello", b"3")
                while sum(pair.count for pair in pairs) < COMMANDS // len(kinds):
                    pair = RANDOM.choice(pairs)
                    pair.compare(batch(BATCH))
                    if chance(0.01):
                        compare_times(pair, RANDOM.sample(compare_keys(pair) or [b"none"], 1))
                for pair in pairs:
                    compare_times(pair, compare_keys(pair) + [b"nosuch"])
                    compare_server(pair)
                    compare_ends_of_life(pair)
                    total += pair.count
                    pair.close()
    print(f"{total} commands, the same replies, {time.monotonic() - begin:.0f} s")


if __name__ == "__main__":
    main()
