# SPDX-License-Identifier: Apache-2.0
# Copyright The Linkspan authors
"""ioredis and node-redis against linkspan-cached on every transport. Skipped without node, npm or registry.

node_test.py FOLDER: where the packages are, or go.
"""

import os
import shutil
import subprocess
import sys

from harness import Cached, transports

PACKAGES = ["ioredis@6.0.0", "redis@6.3.1"]
NODE_MAJOR_LEAST = 20
SKIPPED = 77


def skip(reason):
    print(f"skipped: {reason}")
    sys.exit(SKIPPED)


def installed(folder):
    return all(os.path.exists(os.path.join(folder, "node_modules", package.split("@")[0], "package.json"))
               for package in PACKAGES)


def install(folder):
    if not shutil.which("node") or not shutil.which("npm"):
        skip("there is no node or npm")
    version = subprocess.run(["node", "--version"], capture_output=True, text=True, check=True).stdout
    if int(version.lstrip("v").split(".")[0]) < NODE_MAJOR_LEAST:
        skip(f"node {version.strip()} is older than {NODE_MAJOR_LEAST}")
    if installed(folder):
        return
    os.makedirs(folder, exist_ok=True)
    done = subprocess.run(["npm", "install", "--no-audit", "--no-fund", "--loglevel=error", "--prefix",
                           folder, *PACKAGES], capture_output=True, text=True, timeout=300, check=False)
    if done.returncode != 0 or not installed(folder):
        skip(f"npm could not install {' '.join(PACKAGES)}: {done.stderr}")


def main():
    folder = sys.argv[1]
    install(folder)
    script = os.path.join(os.path.dirname(os.path.abspath(__file__)), "node_clients.js")
    environment = {**os.environ, "NODE_PATH": os.path.join(folder, "node_modules")}
    for transport in transports():
        with Cached(transport=transport) as server:
            subprocess.run(["node", script, str(server.port)], env=environment, timeout=300, check=True)
        print(f"{transport}: ioredis and node-redis, RESP2 and RESP3", flush=True)


if __name__ == "__main__":
    main()
