# SPDX-License-Identifier: Apache-2.0
# Copyright The Linkspan authors
"""Redis's own programs, hiredis and twemproxy against linkspan-cached on every transport."""

import functools
import os
import subprocess
import sys
import tempfile
import unittest

from harness import Cached, Client, OnFreePort, Reply, free_port, simple, transports

HIREDIS_CLIENT = os.environ["HIREDIS_CLIENT"]


def run(*arguments, text=None):
    done = subprocess.run(arguments, input=text, capture_output=True, text=True, timeout=120, check=True)
    return done.stdout


class Twemproxy(OnFreePort):
    """In front of servers, among which it spreads the keys."""

    def __init__(self, folder, ports):
        path = os.path.join(folder, "nutcracker.yml")

        def arguments(port):
            with open(path, "w", encoding="utf-8") as config:
                config.write(f"cache:\n  listen: 127.0.0.1:{port}\n  redis: true\n  hash: fnv1a_64\n"
                             "  distribution: ketama\n  auto_eject_hosts: false\n  timeout: 20000\n"
                             "  servers:\n")
                for index, server in enumerate(ports):
                    config.write(f"   - 127.0.0.1:{server}:1 server{index}\n")
            return ["nutcracker", "-c", path, "-s", str(free_port()), "-a", "127.0.0.1"]

        super().__init__(arguments)

    def expected_status(self):
        return -15  # it does not handle the signal


def on_every_transport(test):
    """Runs a test with a server of each."""
    @functools.wraps(test)
    def run_on_each(self):
        for transport in transports():
            with self.subTest(transport=transport), Cached(transport=transport) as server:
                test(self, server)
    return run_on_each


class ClientsTest(unittest.TestCase):
    @on_every_transport
    def test_redis_cli(self, server):
        for version in ["-2", "-3"]:
            out = run("redis-cli", version, "-p", str(server.port),
                      text="flushall\nset k 'a b' ex 100\nget k\nttl k\nincr n\nmget k n none\n"
                           "append k c\nstrlen k\ngetrange k 1 2\nsetnx k x\ntype k\nexists k n\nnosuch\n"
                           "scan 0 match k\ngetdel k\nget k\n")
            self.assertEqual(out.split("\n"),
                             ["OK", "OK", "a b", "100", "1", "a b", "1", "", "4", "4", " b", "0", "string",
                              "2", "ERR unknown command 'nosuch', with args beginning with: ", "", "0", "k",
                              "a bc", "", ""])
        self.assertIn("Biggest string found", run("redis-cli", "-p", str(server.port), "--bigkeys"))
        with tempfile.NamedTemporaryFile() as script:
            for i in range(5000):
                script.write(b"*3\r\n$3\r\nSET\r\n$%d\r\np:%d\r\n$1\r\nx\r\n" % (len(str(i)) + 2, i))
            script.flush()
            with open(script.name, encoding="utf-8") as lines:
                done = subprocess.run(["redis-cli", "-p", str(server.port), "--pipe"], stdin=lines,
                                      capture_output=True, text=True, timeout=120, check=True)
            self.assertIn("errors: 0, replies: 5000", done.stdout)
        self.assertEqual(run("redis-cli", "-p", str(server.port), "dbsize"), "5001\n")

    @on_every_transport
    def test_redis_benchmark(self, server):
        for options in [["-P", "16"], ["-P", "1", "-c", "3"], ["-d", "100000", "-n", "300"]]:
            out = run("redis-benchmark", "-p", str(server.port), "-t", "ping,set,get,incr,mset", "-n", "5000",
                      "-r", "1000", "--csv", *options)
            rows = [line.split(",") for line in out.strip().split("\n")[1:]]
            self.assertEqual(len(rows), 6, out)
            for row in rows:
                self.assertGreater(float(row[1].strip('"')), 0, out)

    @on_every_transport
    def test_hiredis(self, server):
        run(HIREDIS_CLIENT, str(server.port))

    def test_twemproxy_in_front_of_two_servers_of_which_one_is_killed_fails_for_its_share_only(self):
        for transport in transports():
            with self.subTest(transport=transport), tempfile.TemporaryDirectory() as folder, \
                    Cached(transport=transport) as first, Killed(transport=transport) as second, \
                    Twemproxy(folder, [first.port, second.port]) as proxy, Client(proxy.port) as client:
                names = [b"key:%d" % i for i in range(300)]
                for name in names:
                    self.assertEqual(client(b"set", name, b"of " + name), simple("OK"))
                self.assertEqual(client(b"mget", *names), [b"of " + name for name in names])
                shares = []
                for server in (first, second):
                    with Client(server.port) as direct:
                        shares.append(set(direct(b"keys", b"*")))
                self.assertEqual(shares[0] | shares[1], set(names))
                self.assertFalse(shares[0] & shares[1])
                self.assertTrue(shares[0] and shares[1])
                second.process.kill()
                second.process.wait(60)
                for name in names:
                    reply = client(b"get", name)
                    if name in shares[0]:
                        self.assertEqual(reply, b"of " + name)
                    else:
                        self.assertIsInstance(reply, Reply, reply)
                        self.assertEqual(reply.kind, "-")


class Killed(Cached):
    def expected_status(self):
        return -9


if __name__ == "__main__":
    unittest.main(argv=sys.argv, verbosity=2)
