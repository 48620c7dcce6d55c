# SPDX-License-Identifier: Apache-2.0
# Copyright The Linkspan authors
"""Counts the instructions that a get costs in user space, by callgrind, in the server and in the client.

A copy of a MiB costs 65,000 instructions and more (16 bytes each), so the bound is a check of the copy ledger
that does not trust the ledger. What does not depend on the payload (start, connection, end) is taken out by
comparing gets of two sizes.
"""

import os
import re
import subprocess
import sys
import tempfile
import unittest

import harness
from harness import Server, transports

SMALL_MIB = 16
LARGE_MIB = 64
LIMIT_PER_MIB = 16_000


def callgrind(folder, name):
    return ["valgrind", "--quiet", "--tool=callgrind", f"--callgrind-out-file={folder}/{name}"]


def counted(path):
    with open(path, encoding="utf-8") as profile:
        return int(re.search(r"^(?:summary|totals): (\d+)$", profile.read(), re.M).group(1))


class InstructionsTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        self.directory = os.path.join(self.folder, "blocks")
        os.mkdir(self.directory)
        for size in [SMALL_MIB, LARGE_MIB]:
            with open(os.path.join(self.directory, f"block-{size}"), "wb") as block:
                block.write(os.urandom(1 << 20) * size)

    def get(self, transport, size, side):
        """Instructions of one side over a whole run in which it gets one block."""
        name = f"{transport}-{side}-{size}"
        wrapper = callgrind(self.folder, name)
        with Server(transport, directory=self.directory, wrapper=wrapper if side == "server" else (),
                    options=("--no-checksum",)) as server:
            client = [harness.PROGRAM, "--transport", transport, "--address", server.address,
                      "--no-checksum", "get", f"block-{size}", os.path.join(self.folder, "fetched")]
            subprocess.run((wrapper if side == "client" else []) + client, check=True,
                           stdout=subprocess.DEVNULL, timeout=300)
        return counted(os.path.join(self.folder, name))

    def test_a_get_costs_fewer_instructions_than_a_copy(self):
        for transport in transports():
            for side in ["server", "client"]:
                with self.subTest(transport=transport, side=side):
                    small = self.get(transport, SMALL_MIB, side)
                    large = self.get(transport, LARGE_MIB, side)
                    per_mib = (large - small) / (LARGE_MIB - SMALL_MIB)
                    print(f"{transport} {side}: {per_mib:.0f} instructions per payload MiB")
                    self.assertLess(per_mib, LIMIT_PER_MIB)


if __name__ == "__main__":
    unittest.main(argv=sys.argv, verbosity=2)
