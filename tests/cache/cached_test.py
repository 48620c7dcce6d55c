# SPDX-License-Identifier: Apache-2.0
# Copyright The Linkspan authors
"""What linkspan-cached does besides answering: limits, passwords, slow readers, metrics, its end."""

import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import unittest
import urllib.request

from harness import PROGRAM, Cached, Client, Reply, encoded, error, simple, transports, until

MIB = 1 << 20


class CachedTest(unittest.TestCase):
    def metrics(self, port):
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=60) as response:
            text = response.read().decode()
        return {line.rsplit(" ", 1)[0]: int(line.rsplit(" ", 1)[1])
                for line in text.splitlines() if line and not line.startswith("#")}

    # --- values ------------------------------------------------------------------------------------

    def test_values_of_any_size_come_back_on_every_transport_in_any_pieces(self):
        sizes = [0, 1, 511, 512, 2047, 2048, 4096, 65537, MIB, 5 * MIB + 3]
        for transport in transports():
            with self.subTest(transport=transport), Cached(transport=transport) as server, \
                    Client(server.port) as client:
                values = {size: os.urandom(size) for size in sizes}
                for size, value in values.items():
                    request = encoded([b"set", b"v%d" % size, value])
                    for at in range(0, len(request), max(1, len(request) // 7)):
                        client.send(request[at:at + max(1, len(request) // 7)])
                    self.assertEqual(client.reply(), simple("OK"))
                client.send(b"".join(encoded([b"get", b"v%d" % size]) for size in sizes))
                for size in sizes:
                    self.assertEqual(client.reply(), values[size], size)
                self.assertEqual(client(b"mget", *[b"v%d" % size for size in sizes], b"none"),
                                 [*values.values(), None])
                last = sizes[-1]
                self.assertEqual(client(b"getrange", b"v%d" % last, 4000, 9000), values[last][4000:9001])

    def test_a_value_that_is_being_sent_stays_as_it_was_when_it_is_overwritten(self):
        for transport in transports():
            with self.subTest(transport=transport), Cached(transport=transport) as server, \
                    Client(server.port) as slow, Client(server.port) as other:
                size = 32 * MIB
                first, second = b"a" * size, b"b" * size
                other(b"set", b"k", first)
                slow.send(encoded([b"get", b"k"]))
                slow.received = slow.socket.recv(1000)  # it is on its way
                self.assertEqual(other(b"set", b"k", second), simple("OK"))
                self.assertEqual(other(b"del", b"k"), 1)
                self.assertEqual(slow.reply(), first)

    # --- limits ------------------------------------------------------------------------------------

    def test_a_client_that_does_not_read_is_not_read_from_either(self):
        for transport in transports():
            with self.subTest(transport=transport), \
                    Cached("--metrics-port", "0", transport=transport) as server:
                metrics_port = server.metrics_port()
                with Client(server.port) as client, Client(server.port) as other:
                    other(b"set", b"k", b"x" * (100 << 10))
                    client.socket.settimeout(1)
                    sent = 0
                    request = encoded([b"get", b"k"]) * 1000
                    try:
                        while sent < 64 * MIB:
                            sent += client.socket.send(request)
                    except TimeoutError:
                        pass
                    self.assertLess(sent, 64 * MIB, "the server read on")
                    self.assertEqual(other(b"ping"), simple("PONG"))
                    live = self.metrics(metrics_port)['linkspan_pool_live_bytes{loop="cached-0"}']
                    self.assertLess(live, 16 * MIB)
                    # And it goes on where it stopped.
                    client.socket.settimeout(60)
                    for _ in range(2000):
                        self.assertEqual(len(client.reply()), 100 << 10)

    def test_replies_of_a_few_bytes_that_nobody_reads_pin_little(self):
        # Each lies in a block that is full of others' replies. Unix sockets are soon full.
        with tempfile.TemporaryDirectory() as folder, \
                Cached("--unixsocket", f"{folder}/s", "--metrics-port", "0") as server:
            metrics_port = server.metrics_port()

            def live():
                return self.metrics(metrics_port)['linkspan_pool_live_bytes{loop="cached-0"}']

            with Client(f"{folder}/s") as slow, Client(server.port) as other:
                other(b"set", b"k", b"x" * 2000)
                before = live()
                sent = 0
                slow.socket.setblocking(False)
                while sent != 3000:
                    try:
                        slow.socket.send(encoded([b"ping"]))
                    except BlockingIOError:
                        break  # the server reads no more
                    sent += 1
                    other(b"mget", b"k", b"k", b"k")
                self.assertLess(live() - before, 4 * MIB)
                slow.socket.settimeout(60)
                for _ in range(sent):
                    self.assertEqual(slow.reply(), simple("PONG"))

    def test_what_has_no_room_is_refused_and_the_rest_stays(self):
        with Cached("--maxmemory", "8mb") as server, Client(server.port) as client:
            oom = error("OOM command not allowed when used memory > 'maxmemory'.")
            self.assertEqual(client(b"set", b"first", b"x" * MIB), simple("OK"))
            replies = [client(b"set", b"k%d" % i, os.urandom(MIB)) for i in range(20)]
            self.assertIn(oom, replies)
            self.assertEqual(client(b"get", b"first"), b"x" * MIB)
            self.assertEqual(client(b"del", b"k0", b"k1"), 2)
            self.assertEqual(client(b"set", b"again", b"y" * MIB), simple("OK"))

    def test_with_allkeys_lru_what_was_not_read_lately_makes_room(self):
        with Cached("--maxmemory", "8mb", "--maxmemory-policy", "allkeys-lru") as server, \
                Client(server.port) as client:
            for i in range(100):
                self.assertEqual(client(b"set", b"k%d" % i, os.urandom(MIB)), simple("OK"))
            self.assertEqual(len(client(b"get", b"k99")), MIB)
            self.assertLess(client(b"dbsize"), 9)
            self.assertGreater(client(b"dbsize"), 3)

    def test_it_ends_well_however_soon_after_it_listens(self):
        for _ in range(50):
            with Cached():
                pass

    def test_clients_above_maxclients_are_told_and_closed(self):
        with Cached("--maxclients", "2") as server:
            with Client(server.port) as first, Client(server.port) as second:
                self.assertEqual((first(b"ping"), second(b"ping")), (simple("PONG"),) * 2)
                with Client(server.port) as third:
                    self.assertEqual(third.until_end(), b"-ERR max number of clients reached\r\n")

            def served():
                with Client(server.port) as client:
                    return client(b"ping") == simple("PONG")

            until(served, "there is room again")

    def test_lengths_are_refused_before_anything_is_kept_for_them(self):
        with Cached("--proto-max-bulk-len", "1mb", "--client-query-buffer-limit", "2mb", "--metrics-port",
                    "0") as server:
            metrics_port = server.metrics_port()
            for request, answer in [
                    (b"*3\r\n$3\r\nset\r\n$1\r\nk\r\n$1048577\r\n",
                     b"-ERR Protocol error: invalid bulk length\r\n"),
                    (b"*2000000000\r\n", b"-ERR Protocol error: invalid multibulk length\r\n"),
                    (b"*3\r\n$3\r\nset\r\n$1048576\r\n" + b"k" * MIB + b"\r\n$1048576\r\n",
                     b"-ERR Protocol error: a command is above max_command_bytes, 2097152\r\n")]:
                with Client(server.port) as client:
                    client.send(request)
                    self.assertEqual(client.until_end(), answer)
            with Client(server.port) as client:
                self.assertEqual(client(b"set", b"k", b"x" * MIB), simple("OK"))
                self.assertEqual(client(b"append", b"k", b"x"),
                                 error("ERR string exceeds maximum allowed size (proto-max-bulk-len)"))
            until(lambda: self.metrics(metrics_port)['linkspan_pool_live_bytes{loop="cached-0"}'] < MIB,
                  "nothing is kept of what was refused")

    def test_unfinished_commands_do_not_take_all_memory(self):
        # Each is within its limit, all together are not: those that would be too much are ended.
        with Cached("--proto-max-bulk-len", "16mb", "--client-query-buffer-limit", "16mb") as server:
            clients = [Client(server.port) for _ in range(24)]
            ended = 0
            for client in clients:
                try:
                    client.send(b"*3\r\n$3\r\nset\r\n$1\r\nk\r\n$13000000\r\n" + b"x" * 12_000_000)
                except (BrokenPipeError, ConnectionResetError):
                    pass
            with Client(server.port) as client:
                self.assertEqual(client(b"ping"), simple("PONG"))
            for client in clients:
                try:
                    client.send(b"x" * 1_000_000 + b"\r\n")
                    ended += client.reply() != simple("OK")
                except (BrokenPipeError, ConnectionResetError, EOFError):
                    ended += 1
                client.socket.close()
            self.assertGreater(ended, 0)
            self.assertLess(ended, len(clients))

    # --- passwords ---------------------------------------------------------------------------------

    def test_without_the_password_only_auth_hello_and_quit_are_answered(self):
        noauth = error("NOAUTH Authentication required.")
        wrong = error("WRONGPASS invalid username-password pair or user is disabled.")
        with Cached("--requirepass", "secret") as server:
            with Client(server.port) as client:
                self.assertEqual(client(b"get", b"k"), noauth)
                self.assertEqual(client(b"ping"), noauth)
                self.assertTrue(client(b"hello", b"3").value.startswith(b"NOAUTH HELLO must be called"))
                for password in [b"", b"secre", b"secretsecret", b"SECRET"]:
                    self.assertEqual(client(b"auth", password), wrong)
                self.assertEqual(client(b"auth", b"nobody", b"secret"), wrong)
                self.assertEqual(client(b"auth", b"secret"), simple("OK"))
                self.assertEqual(client(b"set", b"k", b"x" * 100_000), simple("OK"))
            with Client(server.port) as client:
                self.assertIsInstance(client(b"hello", b"3", b"auth", b"default", b"secret"), Reply)
                self.assertEqual(len(client(b"get", b"k")), 100_000)
            for request in [b"*11\r\n", b"*2\r\n$20000\r\n"]:
                with Client(server.port) as client:
                    client.send(request)
                    self.assertIn(b"Protocol error: unauthenticated", client.until_end())

    # --- where it listens, and what it tells -------------------------------------------------------

    def test_a_config_file_and_a_unix_socket_and_metrics(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "cached.sock")
            stale = socket.socket(socket.AF_UNIX)  # of one that was killed
            stale.bind(path)
            stale.close()
            config = os.path.join(folder, "cached.conf")
            with open(config, "w", encoding="utf-8") as file:
                file.write(f"maxmemory=32mb\nunixsocket={path}\nmetrics-port=0\nrequirepass=x\nloops=2\n")
            for transport in transports():
                with self.subTest(transport=transport), \
                        Cached("--config", config, transport=transport) as server:
                    metrics_port = server.metrics_port()
                    with Client(path) as client:
                        self.assertEqual(client(b"auth", b"x"), simple("OK"))
                        client(b"set", b"k", b"v")
                        before = self.metrics(metrics_port)
                        client(b"get", b"k")
                        client(b"get", b"none")
                        self.assertEqual(client(b"config", b"get", b"maxmemory"), [b"maxmemory", b"33554432"])
                        metrics = self.metrics(metrics_port)
                        name = 'linkspan_cached_%s{name=""}'
                        self.assertEqual(metrics[name % "keys"], 1)
                        for counter in ["hits_total", "misses_total"]:
                            self.assertEqual(metrics[name % counter] - before[name % counter], 1, counter)
                        self.assertEqual(metrics[name % "clients"], 1)
                        self.assertGreaterEqual(metrics[name % "commands_total"], 5)
                self.assertFalse(os.path.exists(path))

    def test_metrics_answer_only_what_they_know(self):
        with Cached("--metrics-port", "0") as server:
            port = server.metrics_port()
            for request, status in [(b"GET /nosuch HTTP/1.1\r\n\r\n", b"HTTP/1.1 404"), (b"x" * 9000, b"")]:
                with Client(port) as client:
                    client.send(request)
                    self.assertTrue(client.until_end().startswith(status))

    def test_options_without_sense_are_refused(self):
        for options in [["--maxmemory", "x"], ["--loops", "0"], ["--transport", "nosuch"],
                        ["--bind", "nowhere"],
                        ["--maxmemory-policy", "what"], ["--maxclients", "0"]]:
            done = subprocess.run([PROGRAM, "--port", "0", *options], capture_output=True, text=True,
                                  timeout=60, check=False)
            self.assertGreater(done.returncode, 0, options)
            self.assertTrue(done.stderr, options)

    # --- several loops -----------------------------------------------------------------------------

    def test_counters_are_exact_with_clients_on_several_loops(self):
        for transport in transports():
            with self.subTest(transport=transport), Cached("--loops", "3", transport=transport) as server:
                def count():
                    with Client(server.port) as client:
                        client.send(encoded([b"incr", b"n"]) * 2000 + encoded([b"append", b"s", b"x"]) * 500)
                        for _ in range(2500):
                            self.assertIsInstance(client.reply(), int)
                threads = [threading.Thread(target=count) for _ in range(6)]
                for thread in threads:
                    thread.start()
                for thread in threads:
                    thread.join()
                with Client(server.port) as client:
                    self.assertEqual(client(b"get", b"n"), b"12000")
                    self.assertEqual(client(b"strlen", b"s"), 3000)

    # --- its end -----------------------------------------------------------------------------------

    def test_a_signal_lets_what_was_answered_arrive(self):
        for transport in transports():
            with self.subTest(transport=transport), Cached(transport=transport) as server, \
                    Client(server.port) as client:
                value = os.urandom(8 * MIB)
                client(b"set", b"k", value)
                client.send(encoded([b"get", b"k"]))
                client.received = client.socket.recv(1000)
                server.process.send_signal(signal.SIGTERM)
                self.assertEqual(client.reply(), value)
                self.assertEqual(client.until_end(), b"")
                self.assertEqual(server.process.wait(60), 0)


if __name__ == "__main__":
    unittest.main(argv=sys.argv, verbosity=2)
