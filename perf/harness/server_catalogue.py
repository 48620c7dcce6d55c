# SPDX-License-Identifier: Apache-2.0
# Copyright The Linkspan authors
"""The servers, jobs and bounds of the benchmarks over the network."""

from .bounds import Bound
from .servers import Job, Server

KIB = 1024
IO_URING, EPOLL, ASIO = (f"linkspan {name}" for name in ("io_uring", "epoll", "asio"))
C_EPOLL, C_IO_URING, C_REGISTERED = "C epoll", "C io_uring", "C io_uring, registered files"
PEERS = ("Asio", "libuv", "libevent", "Netty NIO")
ASIO_AWAITABLE = "Asio, awaitable"
BUSY_SERVER = f"{IO_URING}, busy poll"
BUSY_BOTH = f"{BUSY_SERVER}, busy client"
C_BUSY_SERVER = f"{C_EPOLL}, busy poll"
C_BUSY_BOTH = f"{C_BUSY_SERVER}, busy client"

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


def coroutine(name):
    return f"{name}, coroutine"


FEW = {"bytes": 64, "connections": (1, 64)}
COROUTINE_SERVERS = tuple(
    Server(coroutine(name), "echo-linkspan-coroutine", (f"--transport={name.split()[1]}",), only=FEW)
    for name in (IO_URING, EPOLL, ASIO)
) + (Server(ASIO_AWAITABLE, "echo-asio-awaitable", only=FEW),)

ECHO_SERVERS = SERVERS + COROUTINE_SERVERS + (
    Server(BUSY_SERVER, "echo-linkspan", ("--transport=io_uring", "--busy-poll=100"), only=ONE),
    Server(BUSY_BOTH, "echo-linkspan", ("--transport=io_uring", "--busy-poll=100"), load=("--busy",),
           only=ONE),
    Server(C_BUSY_SERVER, "echo-c-epoll", ("--busy-poll",), only=ONE, spins=True),
    Server(C_BUSY_BOTH, "echo-c-epoll", ("--busy-poll",), load=("--busy",), only=ONE, spins=True),
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
    *(cpu(coroutine(variant), 1, ASIO_AWAITABLE, SIXTY_FOUR) for variant in (IO_URING, EPOLL)),
    cpu(IO_URING, 1.1, C_EPOLL, PIPELINED), cpu(EPOLL, 1.1, C_EPOLL, PIPELINED),
    Bound(BUSY_SERVER, "requests", "at least", 3, IO_URING, ONE),
    Bound(BUSY_BOTH, "requests", "at least", 10, IO_URING, ONE),
    Bound(BUSY_SERVER, "requests", "at least", 0.95, C_BUSY_SERVER, ONE),
    Bound(BUSY_BOTH, "requests", "at least", 0.95, C_BUSY_BOTH, ONE),
    *(Bound(variant, "instructions", "below", 1, peer, params)
      for params in (SIXTY_FOUR, ONE) for variant in (IO_URING, EPOLL) for peer in PEERS[:3]),
    *(Bound(coroutine(variant), "allocations", "below", 0.01, params=SIXTY_FOUR)
      for variant in (IO_URING, EPOLL)),
    *(Bound(IO_URING, "system calls", "below", 1, peer, SIXTY_FOUR) for peer in PEERS),
)

COPIES = {"slices": (16, 256)}
MEMORY = {"source": ("hot", "cold")}

STREAM_SERVERS = (
    Server(IO_URING, "stream-linkspan", ("--transport=io_uring",)),
    Server(EPOLL, "stream-linkspan", ("--transport=epoll",)),
    Server(ASIO, "stream-linkspan", ("--transport=asio",)),
    Server(C_EPOLL, "stream-c-epoll"),
    Server(C_IO_URING, "stream-c-io_uring", only=MEMORY),
    Server(f"{IO_URING}, copied", "stream-linkspan", ("--transport=io_uring", "--copy"), only=COPIES),
    Server(f"{EPOLL}, copied", "stream-linkspan", ("--transport=epoll", "--copy"), only=COPIES),
    Server(f"{C_EPOLL}, copied", "stream-c-epoll", ("--copy",), only=COPIES),
)


def stream_job(socket, source, size, slices, connections, quick=False):
    params = {"socket": socket, "source": source, "bytes": size, "slices": slices, "connections": connections}
    options = tuple(f"--{name}={params[name]}" for name in ("bytes", "slices", "source"))
    return Job(params, ("stream", f"--connections={connections}"), options, socket == "unix", quick)


STREAM_JOBS = tuple(
    stream_job(socket, "hot", size, 1, connections,
               quick=socket == "tcp" and connections == 1 and size in (64 * KIB, 1024 * KIB))
    for socket in ("tcp", "unix") for size in (4 * KIB, 64 * KIB, 1024 * KIB, 16 * 1024 * KIB)
    for connections in (1, 8)
) + tuple(
    stream_job(socket, source, slices * 4 * KIB, slices, 1,
               quick=socket == "tcp" and source == "hot" and slices == 256)
    for socket in ("tcp", "unix") for slices in (16, 256) for source in ("hot", "cold")
) + tuple(
    stream_job("tcp", "file", size, 1, 1, quick=size == 1024 * KIB)
    for size in (64 * KIB, 1024 * KIB, 16 * 1024 * KIB)
)


def throughput(variant, limit, to, **params):
    return Bound(variant, "throughput", "at least", limit, to, params)


STREAM_BOUNDS = tuple(
    throughput(variant, limit, to, socket=socket, source="hot", bytes=size, slices=1, connections=connections)
    for size in (64 * KIB, 1024 * KIB) for socket in ("tcp", "unix") for connections in (1, 8)
    for variant, limit, to in ((EPOLL, 0.97, C_EPOLL), (IO_URING, 0.97, C_IO_URING),
                               (IO_URING, 0.95, C_EPOLL))
) + tuple(
    throughput(variant, 1.2, f"{variant}, copied", socket=socket, source="hot", slices=256)
    for socket in ("tcp", "unix") for variant in (IO_URING, EPOLL))

CONNECT_JOBS = tuple(
    Job({"bytes": 64, "at once": count}, ("connect", f"--connections={count}"), quick=count == 16)
    for count in (1, 16, 128))

IDLE_JOBS = tuple(Job({"connections": count}, ("idle",), quick=count == 1000) for count in (1000, 10000))
IDLE = {"connections": 10000}
IDLE_BOUNDS = tuple(
    bound for variant in (IO_URING, EPOLL)
    for bound in (Bound(variant, "private memory", "at most", 1024, params=IDLE),
                  Bound(variant, "private memory", "below", 1, "libevent", IDLE),
                  Bound(variant, "private memory", "below", 1, "Netty NIO", IDLE)))

LINKSPAN_PROXY = ("../examples/proxy/linkspan-proxy",)
HAPROXY = "haproxy"
PROXIES = tuple(
    Server(name, "proxy-linkspan", (f"--transport={name.split()[1]}",), needs=LINKSPAN_PROXY, countable=False)
    for name in (IO_URING, EPOLL, ASIO)
) + (Server(HAPROXY, "proxy-haproxy", countable=False),
     Server(f"{HAPROXY}, splice", "proxy-haproxy", ("--splice",), only={"case": "bulk"}, countable=False))

BULK = {"case": "bulk", "bytes": 1024 * KIB}
REQUESTS = {"case": "requests", **SIXTY_FOUR}
PROXY_JOBS = tuple(
    Job({**BULK, "connections": count}, ("stream", f"--connections={count}"), quick=count == 1,
        backend=("stream-c-epoll", f"--bytes={1024 * KIB}", "--slices=1", "--source=hot"))
    for count in (1, 8)
) + (Job(REQUESTS, echo_job(**SIXTY_FOUR).load, quick=True, counted=True, backend=("echo-c-epoll",)),)

PROXY_BOUNDS = tuple(
    bound for variant in (IO_URING, EPOLL)
    for bound in (throughput(variant, 1, HAPROXY, **BULK), cpu(variant, 1, HAPROXY, BULK),
                  Bound(variant, "requests", "at least", 1, HAPROXY, REQUESTS),
                  cpu(variant, 1, HAPROXY, REQUESTS)))
