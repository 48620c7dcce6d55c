# SPDX-License-Identifier: Apache-2.0
# Copyright The Linkspan authors
"""Where a server and its load meet: cores of their own, and a network namespace with cubic for everyone.

A default such as BBR paces, and its timers would be most of what one sees on loopback. Programs may not
choose any control they like, and the peers offer no option for it, so the route decides.
"""

import contextlib
import dataclasses
import os
import shutil
import subprocess

from . import machine

SETUP = r"""
ip link set lo up || exit 1
for network in 127.0.0.0/8 127.0.0.1; do
  ip route replace local $network dev lo table local proto kernel scope host src 127.0.0.1 \
    congctl cubic || exit 1
done
echo ready
read -r _
"""
LOAD_THREADS_MOST = 4


@dataclasses.dataclass(frozen=True)
class Network:
    prefix: tuple = ()  # of a command that shall run in it
    note: str = ""  # what could not be had


@dataclasses.dataclass(frozen=True)
class Cores:
    server: tuple = ()  # prefixes of commands
    load: tuple = ()
    load_threads: int = 1
    note: str = ""


def siblings(core):
    """The hardware threads of a core, itself among them."""
    listing = machine.read(f"/sys/devices/system/cpu/cpu{core}/topology/thread_siblings_list", str(core))
    found = set()
    for part in listing.split(","):
        first, _, last = part.partition("-")
        found.update(range(int(first), int(last or first) + 1))
    return found


def cores(allowed=None):
    """The server has the last core, as the first ones serve interrupts; its load has others."""
    allowed = sorted(os.sched_getaffinity(0)) if allowed is None else allowed
    if len(allowed) < 2 or shutil.which("taskset") is None:
        return Cores(note="server and load share a core: times say little")
    server = allowed[-1]
    others = [core for core in allowed if core not in siblings(server)] or allowed[:-1]
    chosen = others[:LOAD_THREADS_MOST]
    listing = ",".join(map(str, chosen))
    return Cores(("taskset", "--cpu-list", str(server)), ("taskset", "--cpu-list", listing), len(chosen))


def whose(note):
    return Network(note=f"the host's own network, with its congestion control: {note}")


@contextlib.contextmanager
def own():
    """A namespace that lives as long as the context; the host's network where there cannot be one."""
    missing = [name for name in ("unshare", "nsenter", "ip") if shutil.which(name) is None]
    if missing or os.geteuid() != 0:
        yield whose(f"there is no {missing[0]}" if missing else "a namespace with cubic needs root")
        return
    with subprocess.Popen(["unshare", "--net", "sh", "-c", SETUP], stdin=subprocess.PIPE, text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE) as holder:
        if holder.stdout.readline() == "ready\n":
            yield Network(("nsenter", f"--net=/proc/{holder.pid}/ns/net"))
            holder.stdin.close()
        else:
            lines = holder.stderr.read().strip().splitlines()
            yield whose(lines[-1] if lines else "unshare failed")
