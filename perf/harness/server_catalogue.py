# SPDX-License-Identifier: Apache-2.0
# Copyright The Linkspan authors
"""The servers, jobs and bounds of the benchmarks over the network."""

from .bounds import Bound
from .servers import Job, Server

KIB = 1024
IO_URING, EPOLL, ASIO = (f"linkspan {name}" for name in ("io_uring", "epoll", "asio"))
C_EPOLL, C_IO_URING, C_REGISTERED = "C epoll", "C io_uring", "C io_uring, registered files"
PEERS = ("Asio", "libuv", "libevent", "Netty NIO")
BUSY_SERVER = f"{IO_URING}, busy poll"
BUSY_BOTH = f"{BUSY_SERVER}, busy client"

SERVERS = (
    Server(IO_URING, "echo-linkspan", ("--transport=io_uring",)),
    Server(EPOLL, "echo-linkspan", ("--transport=epoll",)),
    Server(ASIO, "echo-linkspan", ("--transport=asio",)),
    Server(C_EPOLL, "echo-c-epoll"),
    Server(C_IO_URING, "echo-c-io_uring"),
    Server(C_REGISTERED, "echo-c-io_uring", ("--registered",)),
    Server("Asio", "echo-asio"),
    Server("libuv", "echo-libuv"),
    Server("libevent", "echo-libevent"),
    Server("Netty NIO", "echo-netty", needs=("EchoNetty.class",), warm_up=3, countable=False),
)

ONE = {"bytes": 64, "connections": 1, "pipeline": 1}
SIXTY_FOUR = {"bytes": 64, "connections": 64, "pipeline": 1}
PIPELINED = {"bytes": 64, "connections": 64, "pipeline": 16}


def echo_job(**params):
    return Job(params, ("echo", *(f"--{name}={value}" for name, value in params.items())),
               quick=params in (ONE, SIXTY_FOUR, PIPELINED), counted=params in (ONE, SIXTY_FOUR, PIPELINED))


ECHO_SERVERS = SERVERS + (
    Server(BUSY_SERVER, "echo-linkspan", ("--transport=io_uring", "--busy-poll=100"), only=ONE),
    Server(BUSY_BOTH, "echo-linkspan", ("--transport=io_uring", "--busy-poll=100"), load=("--busy",),
           only=ONE),
)
ECHO_JOBS = (echo_job(**SIXTY_FOUR), echo_job(**PIPELINED), echo_job(**ONE)) + tuple(
    echo_job(bytes=size, connections=connections, pipeline=pipeline)
    for size in (64, 4 * KIB) for connections in (1, 64, 1000) for pipeline in (1, 16)
    if {"bytes": size, "connections": connections, "pipeline": pipeline} not in (ONE, SIXTY_FOUR, PIPELINED))


def cpu(variant, limit, to, params):
    return Bound(variant, "server cpu", "at most", limit, to, params)


ECHO_BOUNDS = (
    cpu(IO_URING, 0.95, C_EPOLL, SIXTY_FOUR), cpu(IO_URING, 1.05, C_IO_URING, SIXTY_FOUR),
    cpu(EPOLL, 1.05, C_EPOLL, SIXTY_FOUR), cpu(IO_URING, 0.97, "Asio", SIXTY_FOUR),
    cpu(IO_URING, 0.85, "Netty NIO", SIXTY_FOUR), cpu(IO_URING, 0.8, "libevent", SIXTY_FOUR),
    cpu(IO_URING, 0.8, "libuv", SIXTY_FOUR),
    cpu(IO_URING, 1.1, C_EPOLL, PIPELINED), cpu(EPOLL, 1.1, C_EPOLL, PIPELINED),
    Bound(BUSY_SERVER, "requests", "at least", 3, IO_URING, ONE),
    Bound(BUSY_BOTH, "requests", "at least", 10, IO_URING, ONE),
    *(Bound(variant, "instructions", "below", 1, peer, params)
      for params in (SIXTY_FOUR, ONE) for variant in (IO_URING, EPOLL) for peer in PEERS[:3]),
    *(Bound(IO_URING, "system calls", "below", 1, peer, SIXTY_FOUR) for peer in PEERS),
)
