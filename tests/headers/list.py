#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Copyright The Linkspan authors
"""Lists the headers that this build can compile, one a line, spelled as an #include spells them."""

import argparse
import pathlib

ROOT = pathlib.Path(__file__).resolve().parents[2]


def needs(name):
    """The optional part that a header belongs to, or None."""
    if name.startswith(("linkspan/interop/asio", "lib/interop/", "lib/transport/asio/")):
        return "asio"
    if name.startswith("lib/transport/uring/"):
        return "io_uring"
    if name.startswith("lib/transport/epoll/"):
        return "epoll"
    if name.startswith(("linkspan/marshal/protobuf", "lib/marshal/protobuf")):
        return "protobuf"
    return None


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    for part in ("asio", "io-uring", "epoll", "protobuf"):
        parser.add_argument("--" + part, type=int, default=1)
    have = vars(parser.parse_args())
    names = [p.relative_to(ROOT / "include") for p in (ROOT / "include").rglob("*.hpp")]
    names += [p.relative_to(ROOT) for p in (ROOT / "lib").rglob("*.hpp")]
    for name in sorted(n.as_posix() for n in names):
        part = needs(name)
        if part is None or have[part]:
            print(name)


if __name__ == "__main__":
    main()
