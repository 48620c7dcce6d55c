# SPDX-License-Identifier: Apache-2.0
# Copyright The Linkspan authors
"""What linkspan-blocks does for its users: round trips, bad input, faults, durability."""

import os
import re
import signal
import subprocess
import sys
import tempfile
import unittest
import zlib

import harness
from harness import Server, run, transports

SIZES = [0, 1, 2047, 2048, 4096, 65537, (1 << 20) - 1, 1 << 20, (5 << 20) + 3]


class BlocksTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def file(self, size, name="file"):
        path = os.path.join(self.folder, name)
        with open(path, "wb") as out:
            out.write(os.urandom(size))
        return path

    def content(self, path):
        with open(path, "rb") as file:
            return file.read()

    def succeeds(self, result):
        self.assertEqual(result.returncode, 0, result.stderr)
        return result.stdout

    def fails(self, result, *texts):
        self.assertNotEqual(result.returncode, 0, result.stdout)
        self.assertGreater(result.returncode, 0, "killed by a signal")
        for text in texts:
            self.assertIn(text, result.stderr)

    # --- round trips -------------------------------------------------------------------------------

    def test_what_is_put_is_got_on_every_transport(self):
        for transport in transports():
            with self.subTest(transport=transport), Server(transport) as server:
                self.assertEqual(server.transport, transport)
                for size in SIZES:
                    path = self.file(size)
                    fetched = os.path.join(self.folder, "fetched")
                    self.succeeds(server.client("put", path, f"block-{size}"))
                    self.succeeds(server.client("get", f"block-{size}", fetched))
                    self.assertEqual(self.content(fetched), self.content(path))
                    self.assertEqual(self.content(os.path.join(server.directory, f"block-{size}")),
                                     self.content(path))

    def test_unix_sockets_ipv6_small_chunks_and_no_checksum_work(self):
        path = self.file(300_000)
        fetched = os.path.join(self.folder, "fetched")
        for address in ["unix:" + os.path.join(self.folder, "socket"), "[::1]:0"]:
            for options in [("--chunk", "4096"), ("--no-checksum",), ("--chunk", "16777216")]:
                with self.subTest(address=address, options=options), Server(address=address) as server:
                    self.succeeds(server.client(*options, "put", path, "block"))
                    self.succeeds(server.client(*options, "get", "block", fetched))
                    self.assertEqual(self.content(fetched), self.content(path))
        self.assertFalse(os.path.exists(os.path.join(self.folder, "socket")))

    def test_names_default_to_those_of_the_files(self):
        path = self.file(1000, "some name+1")
        with Server() as server:
            self.succeeds(server.client("put", path))
            self.assertEqual(server.blocks(), ["some name+1"])
            here = os.getcwd()
            os.chdir(self.folder)
            self.addCleanup(os.chdir, here)
            os.rename(path, "original")
            self.succeeds(server.client("get", "some name+1"))
            self.assertEqual(self.content("some name+1"), self.content("original"))

    def test_several_loops_serve_several_clients_at_once(self):
        path = self.file(3 << 20)
        with Server(options=("--loops", "3")) as server:
            put = [harness.PROGRAM, "--address", server.address, "put", path]
            names = [f"block-{i}" for i in range(6)]
            clients = [subprocess.Popen([*put, name], stdout=subprocess.DEVNULL) for name in names]
            self.assertEqual([client.wait(harness.PATIENCE_SECONDS) for client in clients], [0] * 6)
            for name in names:
                self.assertEqual(self.content(os.path.join(server.directory, name)), self.content(path))

    def test_a_block_put_again_is_replaced(self):
        with Server() as server:
            self.succeeds(server.client("put", self.file(5000, "first"), "block"))
            second = self.file(3000, "second")
            self.succeeds(server.client("put", second, "block"))
            self.assertEqual(self.content(os.path.join(server.directory, "block")), self.content(second))

    def test_a_file_that_came_by_other_means_is_served_with_a_computed_checksum(self):
        with Server() as server:
            path = self.file(100_000)
            with open(os.path.join(server.directory, "block"), "wb") as out:
                out.write(self.content(path))
            fetched = os.path.join(self.folder, "fetched")
            output = self.succeeds(server.client("get", "block", fetched))
            self.assertIn(f"crc32 {zlib.crc32(self.content(path)):08x}", output)
            self.assertEqual(self.content(fetched), self.content(path))

    # --- local reads -------------------------------------------------------------------------------

    def local_server(self, transport="auto"):
        path = os.path.join(self.folder, "local")
        return path, Server(transport, options=("--local", path, "--verbose"))

    @staticmethod
    def passed(server):
        """How often a file was passed to a client."""
        return server.messages().count("its file was passed to a client")

    def test_a_local_get_reads_the_servers_file_on_every_transport(self):
        for transport in transports():
            local, started = self.local_server(transport)
            with self.subTest(transport=transport), started as server:
                for size in SIZES:
                    path = self.file(size)
                    fetched = os.path.join(self.folder, "fetched")
                    self.succeeds(server.client("put", path, f"block-{size}"))
                    self.succeeds(server.client("--local", local, "get", f"block-{size}", fetched))
                    self.assertEqual(self.content(fetched), self.content(path))
                self.assertEqual(self.passed(server), len(SIZES))
            self.assertFalse(os.path.exists(local))

    def test_a_file_is_passed_once_for_as_long_as_the_client_keeps_it(self):
        local, started = self.local_server()
        kept = 64
        names = [f"block-{i:02}" for i in range(kept + 1)]
        with started as server:
            for name in names:
                self.file(100, name)
            self.succeeds(server.client("put-all", *(os.path.join(self.folder, name) for name in names)))
            fetched = os.path.join(self.folder, "fetched")
            os.mkdir(fetched)

            self.succeeds(server.client("--local", local, "get-all", fetched, *names[:kept], *names[:kept]))
            self.assertEqual(self.passed(server), kept)
            # One too many: what was not used for longest has gone, what was used just now has not.
            self.succeeds(server.client("--local", local, "get-all", fetched, *names[:kept], names[0],
                                        names[kept], names[0], names[1]))
            self.assertEqual(self.passed(server), kept + kept + 2)
            for name in names:
                self.assertEqual(self.content(os.path.join(fetched, name)),
                                 self.content(os.path.join(self.folder, name)))

    def test_a_block_that_was_put_again_is_opened_again(self):
        local, started = self.local_server()
        with started as server:
            self.succeeds(server.client("--local", local, "bench", self.file(100_000), "--rounds", "3"))
            self.assertEqual(self.passed(server), 3)

    def test_local_reads_that_cannot_be_are_errors(self):
        local, started = self.local_server()
        with started as server:
            path = self.file(1000)
            fetched = os.path.join(self.folder, "fetched")
            self.succeeds(server.client("put", path, "block"))
            self.fails(server.client("--local", local, "get", "missing", fetched), "No such file")
            self.fails(server.client("--local", local + "-not", "get", "block", fetched), "No such file")
            self.assertFalse(os.path.exists(fetched))
            with open(os.path.join(server.directory, "block"), "r+b") as damaged:
                damaged.write(b"something else")
            self.fails(server.client("--local", local, "get", "block", fetched), "checksum", "damaged")
            self.assertFalse(os.path.exists(fetched))
            with server.connect() as connection:
                connection.sendall(harness.frame(harness.field(8, harness.field(1, b"block"))))
                self.assertIn("unix socket", harness.failure_reason(harness.receive_frame(connection)))
                connection.sendall(harness.get("missing"))
                self.assertIn("No such file", harness.failure_reason(harness.receive_frame(connection)))

    # --- nothing is copied -------------------------------------------------------------------------

    def test_the_library_copies_no_payload_in_framing_marshalling_and_write(self):
        path = self.file((20 << 20) + 777)
        for transport in transports():
            for address in ["127.0.0.1:0", "unix:" + os.path.join(self.folder, "socket")]:
                with self.subTest(transport=transport, address=address), \
                        Server(transport, address=address) as server:
                    row = self.succeeds(server.client("bench", "--rounds", "1", "--row", path)).split()
                    self.assertEqual(int(row[2]), 0, row)
                    self.assertLess(float(row[5]), 1.0, row)
                    self.assertEqual(server.blocks(), [])

    # --- bad input ---------------------------------------------------------------------------------

    def test_an_unknown_transport_is_an_error_that_names_the_known_ones(self):
        for command in [("serve", "--directory", self.folder), ("put", self.file(1))]:
            self.fails(run("--transport", "pigeons", *command), "pigeons", "io_uring, epoll")

    def test_an_address_in_use_is_an_error_that_names_it(self):
        with Server() as server:
            other = os.path.join(self.folder, "other")
            self.fails(run("--address", server.address, "serve", "--directory", other), server.address,
                       "Address already in use")

    def test_addresses_that_are_none_are_refused(self):
        for address in ["nonsense", "127.0.0.1:99999", "127.0.0.1", "unix:", ":1"]:
            self.fails(run("--address", address, "put", self.file(1)), address)

    def test_a_server_that_is_not_there_is_an_error(self):
        with Server() as server:
            address = server.address
        self.fails(run("--address", address, "put", self.file(1)), "Connection refused")
        self.fails(run("--address", "unix:" + self.folder + "/none", "get", "block", self.folder + "/x"),
                   "No such file")

    def test_missing_files_and_blocks_are_errors_on_the_client_and_the_server_goes_on(self):
        with Server() as server:
            self.fails(server.client("put", os.path.join(self.folder, "missing")), "missing", "No such file")
            self.fails(server.client("get", "missing", os.path.join(self.folder, "out")), "the server says",
                       "No such file")
            self.fails(server.client("put", self.folder, "directory"), "Is a directory")
            self.assertEqual(os.listdir(self.folder), [])
            self.assertEqual(server.blocks(), [])
            self.succeeds(server.client("put", self.file(10), "block"))
            self.fails(server.client("get", "block", "/nonexistent/out"), "/nonexistent/out", "No such file")

    def test_names_that_leave_the_directory_are_refused(self):
        with Server() as server:
            for name in ["../block", ".lock", ".tmp-1", "a/b", "x" * 201, ""]:
                with self.subTest(name=name):
                    with server.connect() as connection:
                        connection.sendall(harness.get(name))
                        self.assertIn("is not a block name",
                                      harness.failure_reason(harness.receive_frame(connection)) or "")
            self.fails(server.client("put", self.file(10), "a/b"), "is not a block name")

    def test_a_directory_that_cannot_be_written_stops_the_server_at_once(self):
        self.fails(run("serve", "--directory", self.file(1) + "/blocks"), "Not a directory")
        if os.getuid() == 0:  # who may write everywhere
            locked = os.path.join(self.folder, "locked")
            os.mkdir(locked, 0o755)
            os.chmod(self.folder, 0o755)
            serve = [harness.PROGRAM, "--address", "127.0.0.1:0", "serve", "--directory", locked]
            result = subprocess.run(serve, capture_output=True, text=True, user=65534,
                                    timeout=60, check=False)
            self.fails(result, "Permission denied", "locked")

    def test_two_servers_do_not_share_a_directory(self):
        with Server() as server:
            self.fails(run("--address", "127.0.0.1:0", "serve", "--directory", server.directory),
                       "in use by another")

    def test_a_truncated_frame_closes_that_connection_only(self):
        with Server() as server:
            with server.connect() as connection:
                connection.sendall(harness.begin_put("block") + b"\x00\x00\x10\x00half a frame")
                connection.shutdown(1)
                harness.receive_until_end(connection)
            server.wait_for_message("truncated")
            harness.until(lambda: server.blocks() == [], "the temporary file is gone", server.stored)
            self.succeeds(server.client("put", self.file(10), "block"))

    def test_a_frame_above_the_limit_is_refused_before_it_is_there(self):
        with Server() as server:
            with server.connect() as connection:
                connection.sendall(b"\xff\xff\xff\xff")
                harness.receive_until_end(connection)
            server.wait_for_message(str((16 << 20) + 4096))
            self.succeeds(server.client("put", self.file(10), "block"))

    def test_a_message_that_does_not_parse_closes_that_connection_only(self):
        with Server() as server:
            for message in [b"\x07", b"\x0a\xff", b"\x80" * 11, b"\x0b"]:
                with server.connect() as connection:
                    connection.sendall(harness.frame(message))
                    harness.receive_until_end(connection)
            server.wait_for_message("linkspan.blocks.Request")
            self.succeeds(server.client("put", self.file(10), "block"))

    def test_requests_out_of_order_are_refused_with_the_reason(self):
        with Server() as server:
            for wrong in [harness.put_chunk(b"x" * 5000), harness.finish_put(0, 0), harness.frame(b"")]:
                with server.connect() as connection:
                    connection.sendall(wrong)
                    self.assertIn("cannot stand here",
                                  harness.failure_reason(harness.receive_frame(connection)) or "")
                    self.assertEqual(harness.receive_until_end(connection), b"")

    def test_a_chunk_size_outside_of_the_limits_is_refused(self):
        self.fails(run("--chunk", "100", "put", self.file(1)))
        self.fails(run("--chunk", "1000000000", "put", self.file(1)))

    # --- checksums ---------------------------------------------------------------------------------

    def test_a_put_with_a_wrong_checksum_or_size_fails_and_leaves_nothing(self):
        payload = os.urandom(10_000)
        with Server() as server:
            for size, crc32, reason in [(10_000, zlib.crc32(payload) ^ 1, "checksum"),
                                        (9_999, zlib.crc32(payload), "10000")]:
                with server.connect() as connection:
                    connection.sendall(harness.begin_put("block") + harness.put_chunk(payload) +
                                       harness.finish_put(size, crc32))
                    self.assertIn(reason, harness.failure_reason(harness.receive_frame(connection)) or "")
                harness.until(lambda: server.blocks() == [], "the temporary file is gone", server.stored)

    def test_a_block_damaged_on_disk_is_not_delivered(self):
        with Server() as server:
            self.succeeds(server.client("put", self.file(100_000), "block"))
            with open(os.path.join(server.directory, "block"), "r+b") as stored:
                stored.seek(50_000)
                byte = stored.read(1)
                stored.seek(50_000)
                stored.write(bytes([byte[0] ^ 0xFF]))
            fetched = os.path.join(self.folder, "fetched")
            attributes = "user.linkspan.crc32" in os.listxattr(os.path.join(server.directory, "block"))
            if not attributes:
                self.skipTest("this file system has no extended attributes, so no checksum is kept")
            self.fails(server.client("get", "block", fetched), "checksum")
            self.assertEqual(os.listdir(self.folder), ["file"])

    def test_several_blocks_are_put_and_got_at_once_listed_and_removed(self):
        files = []
        for number in range(20):
            path = os.path.join(self.folder, f"several-{number:02}")
            with open(path, "wb") as file:
                file.write(os.urandom(number * 70_001))
            files.append(path)
        names = [os.path.basename(path) for path in files]
        for transport in transports():
            with self.subTest(transport=transport), Server(transport) as server:
                self.succeeds(server.client("put-all", *files))
                self.assertEqual(self.succeeds(server.client("list")).split(), names)
                fetched = os.path.join(self.folder, f"fetched-{transport}")
                os.mkdir(fetched)
                self.succeeds(server.client("get-all", fetched, *names))
                for path, name in zip(files, names):
                    self.assertEqual(self.content(os.path.join(fetched, name)), self.content(path))
                self.fails(server.client("get-all", fetched, "missing", names[0]), "missing")
                self.succeeds(server.client("remove", *names[1:]))
                self.fails(server.client("remove", names[1]), "server says")
                self.assertEqual(self.succeeds(server.client("list")).split(), names[:1])

    def test_a_list_is_as_long_as_it_has_to_be_and_leaves_out_what_is_no_block(self):
        with Server() as server:
            self.assertEqual(self.succeeds(server.client("list")), "")
            names = sorted(f"block {number}" for number in range(2500))
            for name in names:
                with open(os.path.join(server.directory, name), "wb"):
                    pass
            with server.connect() as connection:
                connection.sendall(harness.begin_put("unfinished") + harness.put_chunk(b"x"))
                harness.until(lambda: any(".tmp-" in name for name in server.stored()), "the put has begun")
                self.assertEqual(self.succeeds(server.client("list")).splitlines(), names)

    # --- faults ------------------------------------------------------------------------------------

    def test_a_client_that_vanishes_in_the_middle_of_a_put_leaves_nothing(self):
        for transport in transports():
            with self.subTest(transport=transport), Server(transport) as server:
                connection = server.connect()
                connection.sendall(harness.begin_put("block") + harness.put_chunk(os.urandom(200_000)))
                harness.until(lambda: any(".tmp-" in name for name in server.stored()), "the put has begun")
                connection.close()
                harness.until(lambda: server.blocks() == [], "the temporary file is gone", server.stored)
                self.succeeds(server.client("put", self.file(10), "block"))

    def test_a_client_that_is_killed_in_the_middle_of_a_get_does_not_disturb_the_server(self):
        with Server() as server:
            self.succeeds(server.client("put", self.file(32 << 20), "block"))
            for _ in range(5):
                connection = server.connect()
                connection.sendall(harness.get("block"))
                harness.receive_frame(connection)
                connection.setsockopt(1, 13, b"\x01\x00\x00\x00\x00\x00\x00\x00")  # SO_LINGER: a reset
                connection.close()
            self.succeeds(server.client("get", "block", os.path.join(self.folder, "fetched")))

    def test_a_server_that_is_killed_is_an_error_on_the_client(self):
        with Server(expect_status=-signal.SIGKILL) as server:
            put = [harness.PROGRAM, "--address", server.address, "put", self.file(64 << 20), "block"]
            client = subprocess.Popen(put, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
            harness.until(lambda: server.blocks(), "the put has begun")
            server.process.kill()
            _, errors = client.communicate(timeout=harness.PATIENCE_SECONDS)
            if client.returncode != 0:  # it may have been done already
                self.assertEqual(client.returncode, 1)
                self.assertRegex(errors, "connection|Connection")

    def test_temporaries_of_an_interrupted_server_are_removed_at_the_next_start(self):
        directory = os.path.join(self.folder, "blocks")
        with Server(directory=directory, expect_status=-signal.SIGKILL) as server:
            self.succeeds(server.client("put", self.file(10), "whole"))
            connection = server.connect()
            self.addCleanup(connection.close)
            connection.sendall(harness.begin_put("block") + harness.put_chunk(os.urandom(200_000)))
            harness.until(lambda: any(".tmp-" in name for name in server.stored()), "the put has begun")
            server.process.kill()
            server.process.wait()
            self.assertEqual(len(server.blocks()), 2)
        with Server(directory=directory) as server:
            self.assertEqual(server.blocks(), ["whole"])

    def test_a_full_disk_fails_the_put_with_the_reason_and_the_server_goes_on(self):
        mount = os.path.join(self.folder, "small")
        os.mkdir(mount)
        mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", mount], check=False,
                                 capture_output=True)
        if mounted.returncode != 0:
            self.skipTest("mounting a small file system needs root")
        self.addCleanup(subprocess.run, ["umount", mount], check=True)
        with Server(directory=mount) as server:
            self.fails(server.client("put", self.file(8 << 20), "large"), "the server says", "No space left")
            harness.until(lambda: server.blocks() == [], "the temporary file is gone", server.stored)
            self.succeeds(server.client("put", self.file(100_000), "small"))

    def test_a_block_truncated_while_it_is_read_fails_that_get_only(self):
        for transport in transports():
            with self.subTest(transport=transport), Server(transport) as server:
                self.succeeds(server.client("put", self.file(48 << 20), "block"))
                with server.connect() as connection:
                    connection.setsockopt(1, 8, 65536)  # SO_RCVBUF
                    connection.sendall(harness.get("block"))
                    harness.receive_frame(connection)  # the block's size
                    os.truncate(os.path.join(server.directory, "block"), 1000)
                    received = harness.receive_until_end_or_failure(connection)
                self.assertTrue(received is None or "truncated" in received, received)
                server.wait_for_message('block "block": ')
                self.succeeds(server.client("put", self.file(10), "block"))

    # --- the end of the server ---------------------------------------------------------------------

    def test_signals_end_the_server_after_what_runs(self):
        for transport in transports():
            for name, number in harness.SIGNALS.items():
                with self.subTest(transport=transport, signal=name), Server(transport) as server:
                    self.succeeds(server.client("put", self.file(24 << 20), "block"))
                    idle = server.connect()
                    self.addCleanup(idle.close)
                    with server.connect() as connection:
                        connection.sendall(harness.get("block"))
                        size = len(harness.receive_frame(connection))
                        self.assertGreater(size, 0)
                        server.process.send_signal(number)
                        self.assertEqual(server.process.stdout.readline(), "stopping\n")
                        received = harness.receive_until_end(connection)
                        self.assertGreater(len(received), 24 << 20)
                    self.assertEqual(server.process.wait(harness.PATIENCE_SECONDS), 0)

    # --- durability --------------------------------------------------------------------------------

    def test_a_put_is_durable_before_it_is_acknowledged(self):
        trace = os.path.join(self.folder, "trace")
        calls = "openat,pwritev,fsync,rename,sendmsg,sendto"
        strace = ["strace", "-D", "-f", "-qq", "-y", "-o", trace, "-e", f"trace={calls}"]
        with Server("epoll", wrapper=strace) as server:
            self.succeeds(server.client("put", self.file(3 << 20), "block"))
            directory = os.path.realpath(server.directory)
        harness.until(lambda: "fsync" in self.content(trace).decode(errors="replace"), "the trace is there")
        steps = []
        for line in self.content(trace).decode(errors="replace").splitlines():
            if re.search(r"pwritev\(.*\.tmp-", line):
                steps.append("write")
            elif re.search(r"fsync\(\d+<.*/\.tmp-[0-9a-f]+>", line):
                steps.append("fsync file")
            elif re.search(r'rename\(".*/\.tmp-[0-9a-f]+", ".*/block"', line):
                steps.append("rename")
            elif re.search(r"fsync\(\d+<" + re.escape(directory) + ">", line):
                steps.append("fsync directory")
            elif re.search(r"sendmsg\(", line):
                steps.append("reply")
        steps = [step for i, step in enumerate(steps) if i == 0 or steps[i - 1] != step]
        self.assertEqual(steps, ["write", "fsync file", "rename", "fsync directory", "reply"])


if __name__ == "__main__":
    print("transports:", ", ".join(transports()))
    unittest.main(argv=sys.argv, verbosity=2)
