# SPDX-License-Identifier: Apache-2.0
# Copyright The Linkspan authors
"""The servers, jobs and bounds of the benchmark `cache`."""

from .bounds import Bound
from .server_catalogue import ASIO, C_EPOLL, EPOLL, IO_URING, KIB
from .servers import Job, Server

MIB = 1024 * KIB
REDIS, MEMCACHED = "redis-server", "memcached"
VALUES = 1_000_000  # of the memory that they take

SERVERS = tuple(
    Server(name, "cache-linkspan", (f"--transport={name.split()[1]}",),
           needs=("../examples/cache/linkspan-cached",), countable=False)
    for name in (IO_URING, EPOLL, ASIO)
) + (Server(C_EPOLL, "cache-c-epoll", countable=False),
     Server(REDIS, "cache-redis", countable=False),
     Server(MEMCACHED, "cache-memcached", load=("--memcached",), countable=False))


def job(command, size, connections, pipeline, quick=False):
    params = {"command": command, "bytes": size, "connections": connections, "pipeline": pipeline}
    return Job(params, ("cache", *(f"--{name}={value}" for name, value in params.items())), quick=quick,
               times=6 if size == MIB else 1)


MUST = [("get", 64, 50, 16), ("set", 64, 50, 16), ("get", 100 * KIB, 50, 1), ("get", MIB, 50, 1)]
FILL = {"command": "set", "bytes": 64, "values": VALUES}
JOBS = tuple(job(*what, quick=True) for what in MUST) + tuple(
    job(command, size, connections, pipeline)
    for command in ("get", "set") for size in (64, KIB, 100 * KIB, MIB)
    for connections in (1, 50) for pipeline in (1, 16)
    if (command, size, connections, pipeline) not in MUST
) + (Job(FILL, ("fill", "--command=set", "--bytes=64", f"--keys={VALUES}", "--pipeline=100")),)


def cpu(variant, times, command, size, connections, pipeline):
    """Requests for each second of the server's processor time, as a multiple of redis-server's."""
    return Bound(variant, "server cpu", "at most", 1 / times, REDIS,
                 {"command": command, "bytes": size, "connections": connections, "pipeline": pipeline})


BOUNDS = tuple(
    bound for variant in (IO_URING, EPOLL)
    for bound in (*(cpu(variant, 1.2 if what[1] == 64 else 1.5, *what) for what in MUST),
                  Bound(variant, "private memory", "at most", 1, REDIS, FILL)))
