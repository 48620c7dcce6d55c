# SPDX-License-Identifier: Apache-2.0
# Copyright The Linkspan authors
"""linkspan-blocks is killed at random moments while blocks are put, and started again on the same directory.

A block that was acknowledged is there, whole; one that was not is whole or not there; what an interrupted put
has left behind is gone when the server listens again.
"""

import os
import random
import signal
import tempfile
import threading
import time
import unittest
import zlib

import harness

ROUNDS = 200
WRITERS = 3
LONGEST_WAIT_SECONDS = 0.02  # behind the acknowledgements that a round waits for
SIZES = (1, 4096, 70_000, 300_000)
DONE = b"\x12\x00"  # a Reply with nothing but Done
SEED = int(os.environ.get("LINKSPAN_SEED", "1"))


def content(name):
    """What a block of that name consists of."""
    seeded = random.Random(name)
    return seeded.randbytes(1000) * (seeded.choice(SIZES) // 1000 + 1)


class Writer(threading.Thread):
    """Puts blocks on a connection, one after the other, until that breaks."""

    def __init__(self, server, prefix):
        super().__init__()
        self.connection = server.connect()
        self.prefix = prefix
        self.acknowledged = []
        self.failure = None

    def run(self):
        try:
            for number in range(10_000):
                name = f"{self.prefix}-{number}"
                data = content(name)
                half = len(data) // 2
                self.connection.sendall(harness.begin_put(name) + harness.put_chunk(data[:half]))
                self.connection.sendall(harness.put_chunk(data[half:]) +
                                        harness.finish_put(len(data), zlib.crc32(data)))
                reply = harness.receive_frame(self.connection)
                if reply != DONE:
                    self.failure = reply
                    return
                self.acknowledged.append(name)
        except (OSError, EOFError):
            pass  # it was killed
        finally:
            self.connection.close()


class Kills(unittest.TestCase):
    def check(self, server, acknowledged, checked):
        """What the directory of a server that has just been started holds."""
        stored = server.blocks()
        self.assertEqual([name for name in stored if name.startswith(".")], [])
        self.assertEqual(set(acknowledged) - set(stored), set())
        for name in set(stored) - checked:
            with open(os.path.join(server.directory, name), "rb") as file:
                self.assertEqual(file.read() == content(name), True, f"{name} is not whole")
            checked.add(name)

    def test_no_acknowledged_block_is_lost_and_no_partial_one_is_left(self):
        moments = random.Random(SEED)
        acknowledged, checked, interrupted = [], set(), 0
        with tempfile.TemporaryDirectory() as folder:
            directory = os.path.join(folder, "blocks")
            for number in range(ROUNDS):
                with harness.Server(directory=directory, expect_status=-signal.SIGKILL) as server:
                    self.check(server, acknowledged, checked)
                    writers = [Writer(server, f"{number}-{i}") for i in range(WRITERS)]
                    for writer in writers:
                        writer.start()
                    wanted = moments.randrange(3)
                    harness.until(lambda: any(writer.failure for writer in writers) or
                                  sum(len(writer.acknowledged) for writer in writers) >= wanted,
                                  f"{wanted} blocks are acknowledged", server.messages)
                    time.sleep(moments.uniform(0, LONGEST_WAIT_SECONDS))
                    server.process.kill()
                    server.process.wait()
                    for writer in writers:
                        writer.join()
                        self.assertIsNone(writer.failure)
                        acknowledged += writer.acknowledged
                    interrupted += any(name.startswith(".tmp-") for name in server.stored())
            with harness.Server(directory=directory) as server:
                self.check(server, acknowledged, checked)
        print(f"{len(acknowledged)} blocks acknowledged, {interrupted} of {ROUNDS} kills left a temporary")
        self.assertGreater(len(acknowledged), ROUNDS // 2)
        self.assertGreater(interrupted, 0)


if __name__ == "__main__":
    unittest.main(verbosity=2)
