# SPDX-License-Identifier: Apache-2.0
# Copyright The Linkspan authors
"""The benchmarks there are. To add one, add its program to perf/meson.build and an entry here."""

import dataclasses

from . import block_catalogue as blocks
from . import cache_catalogue as cache
from . import server_catalogue as network
from .bounds import Bound


@dataclasses.dataclass(frozen=True)
class Benchmark:
    name: str
    summary: str
    reference: str  # the variant that ratios refer to
    variants: tuple = ()  # all, in order; those that this build lacks are named in the results
    programs: tuple = ()  # in build/perf; each round runs them in this order; default: the benchmark's name
    needs: tuple = ()  # other files that they need, in build/perf, too
    one_core: bool = True  # pinned to one core; False when threads have to run side by side
    rounds: int = 5
    bounds: tuple = ()
    published: tuple = ()  # lines: what others have found for the same, to be read beside the table
    # Over the network instead: what each round asks of each server; variants and programs follow from it.
    servers: tuple = ()
    jobs: tuple = ()

    def __post_init__(self):
        if self.servers:
            object.__setattr__(self, "variants", tuple(dict.fromkeys(server.name for server in self.servers)))
            files = [name for server in self.servers
                     for name in (server.client, server.program, *server.needs)]
            files += [job.backend[0] for job in self.jobs if job.backend]
            object.__setattr__(self, "programs", tuple(dict.fromkeys(files)))
        object.__setattr__(self, "programs", self.programs or (self.name,))


PIPELINE_BOUNDS = (
    Bound("linkspan", "cpu time", "below", 1, "Netty"),
    Bound("linkspan, aside", "instructions", "at most", 0.5, "linkspan", {"handlers": 16}),
    Bound("linkspan", "instructions", "at most", 1.15, "virtual calls", {"handlers": 16}),
)

MARSHAL_BOUNDS = (
    Bound("linkspan", "cpu time", "at most", 1 / 50, "one copy",
          {"direction": "out", "source": "memory", "bytes": 1 << 20, "summed": "no"}),
    Bound("linkspan", "cpu time", "at most", 1 / 20, "one copy",
          {"direction": "in", "bytes": 1 << 20, "summed": "no"}),
    Bound("linkspan", "cpu time", "at most", 1.1, "one copy", {"direction": "out", "bytes": 0}),
    Bound("linkspan", "cpu time", "at most", 1.3, "one copy", {"direction": "in", "bytes": 0}),
    Bound("linkspan", "cpu time", "at most", 1.3, "one copy", {"direction": "in, nested", "bytes": 0}),
)

STORE_BOUNDS = (
    Bound("linkspan", "operations", "at least", 3.7, "fresh copy", {"case": "read_only", "touched": "no"}),
    Bound("linkspan", "operations", "at least", 8, "RocksDB", {"case": "read_only", "touched": "no"}),
)

MIB = 1 << 20
BOUNCE, MEMCPY, REFERENCE = "4 KiB bounce", "single memcpy", "by reference"
INTO_A_SOCKET = {"sink": "socket", "checksum": "no"}
CHUNK_FRAMING_BOUNDS = tuple(
    Bound(variant, "throughput", "at least", 1, to, INTO_A_SOCKET)
    for variant, to in ((MEMCPY, BOUNCE), (REFERENCE, BOUNCE), (REFERENCE, MEMCPY)))
CHUNK_FRAMING_PUBLISHED = (
    "Apache Ozone HDDS-15592, no sink: single memcpy / 4 KiB bounce 1.04 to 1.28, mostly 1.09 to 1.17",
)

POOLED, ONE_AT_A_TIME, PIPELINED = "pooled", "borrowed, one at a time", "borrowed, pipelined"
LONG_STREAM = {"sink": "TCP", "stream": 64 * MIB}
LARGE_WRITE_BOUNDS = (
    Bound(PIPELINED, "throughput", "at least", 1, POOLED, LONG_STREAM),
    *(Bound(PIPELINED, "throughput", "at least", 1.5, ONE_AT_A_TIME,
            {**LONG_STREAM, "latency": 2, "threads": threads}) for threads in (1, 2)),
)
LARGE_WRITE_PUBLISHED = (
    "Apache Ozone HDDS-15550, no sink: by reference / pooled about 1.0 at 1 and 2 threads, 1.0 to 1.2 at 7,",
    "1.1 to 1.7 at 14, up to 1.85 at 28",
)

BENCHMARKS = (
    Benchmark("chain", "queues of references: append, split, iterate, scatter, against other libraries",
              "linkspan", ("linkspan", "deque of strings", "libevent evbuffer", "absl Cord",
                           "gRPC slice buffer")),
    Benchmark("gather", "a gathered write against copying into one buffer: where references begin to pay",
              "gather", ("gather", "copy")),
    Benchmark("slice", "views of memory: wrapping against copying, and sharing on 1 to 28 threads",
              "linkspan", ("linkspan", "linkspan adopt", "linkspan immortal", "linkspan copy",
                           "copy into a buffer", "shared_ptr"), one_core=False),
    Benchmark("marshal", "protobuf messages with a data buffer, out and in: by reference and copied",
              "one copy", ("linkspan", "one copy", "two copies", "linkspan into an array"),
              bounds=MARSHAL_BOUNDS),
    Benchmark("chunk-framing", "chunks of a stream into frames: bounced, copied once, by reference",
              BOUNCE, (BOUNCE, MEMCPY, REFERENCE), one_core=False, bounds=CHUNK_FRAMING_BOUNDS,
              published=CHUNK_FRAMING_PUBLISHED),
    Benchmark("large-write", "streams of large writes: collected in a pool, and from the caller's memory",
              POOLED, (POOLED, ONE_AT_A_TIME, PIPELINED, "copied first, pipelined"), one_core=False,
              bounds=LARGE_WRITE_BOUNDS, published=LARGE_WRITE_PUBLISHED),
    Benchmark("pipeline", "what a message pays for 0 to 16 handlers on its way",
              "virtual calls", ("virtual calls", "linkspan", "linkspan, aside", "Netty"),
              programs=("pipeline", "pipeline-netty"), needs=("PipelineNetty.class",),
              bounds=PIPELINE_BOUNDS),
    Benchmark("pool", "blocks of 16 KiB, allocated and freed on one thread and across two",
              "linkspan", ("linkspan", "malloc", "jemalloc", "mimalloc", "no allocation"),
              programs=("pool", "pool-jemalloc", "pool-mimalloc"), one_core=False),
    Benchmark("off-heap-map", "50,000 values of 100 KiB on 1 to 32 threads: shared, copied, RocksDB",
              "fresh copy", ("fresh copy", "scratch view", "linkspan", "RocksDB", "RocksDB, tuned"),
              programs=("off-heap-map", "off-heap-map-rocksdb"), one_core=False, bounds=STORE_BOUNDS),
    Benchmark("bounded-alloc", "zeroed memory of 128 B to 2 GiB, and how late a heartbeat on its loop comes",
              "linkspan on the loop", ("idle", "zeroed in one go", "chunked, not yielding",
                                       "linkspan on the loop", "linkspan on the loop, huge pages",
                                       "linkspan off the loop", "uninitialised", "recycled, zeroed again"),
              one_core=False),
    Benchmark("echo", "requests that come back: every transport against floors in C and other libraries",
              network.C_EPOLL, servers=network.ECHO_SERVERS, jobs=network.ECHO_JOBS,
              bounds=network.ECHO_BOUNDS),
    Benchmark("stream", "messages of 4 KiB to 16 MiB, gathered writes and file ranges, one way",
              network.C_EPOLL, servers=network.STREAM_SERVERS, jobs=network.STREAM_JOBS,
              bounds=network.STREAM_BOUNDS),
    Benchmark("block-read", "a block of 256 MiB, read and written end to end, as protobuf messages in frames",
              blocks.C_FLOOR, servers=blocks.SERVERS, jobs=blocks.JOBS, bounds=blocks.BOUNDS),
    Benchmark("connect", "connections that come, echo one message and go",
              network.C_EPOLL, servers=network.SERVERS, jobs=network.CONNECT_JOBS),
    Benchmark("idle", "private memory of a server for each connection that has nothing to do",
              "libuv", servers=network.SERVERS, jobs=network.IDLE_JOBS, bounds=network.IDLE_BOUNDS),
    Benchmark("proxy", "bytes and requests through a proxy, against haproxy",
              network.HAPROXY, servers=network.PROXIES, jobs=network.PROXY_JOBS, bounds=network.PROXY_BOUNDS),
    Benchmark("cache", "gets and sets of 64 B to 1 MiB: linkspan-cached against redis-server and memcached",
              cache.REDIS, servers=cache.SERVERS, jobs=cache.JOBS, bounds=cache.BOUNDS),
    Benchmark("timers", "a thousand and a million timers, started, moved and cancelled",
              "linkspan", ("linkspan", "Asio", "libuv", "libevent"),
              programs=("timers", "timers-asio", "timers-libuv", "timers-libevent")),
    Benchmark("sleep", "waits of a coroutine or a callback: Linkspan's, and Asio's timer on a loop",
              "async_sleep", ("async_sleep", "steady_timer on the loop", "steady_timer on an io_context"),
              one_core=False),
    Benchmark("post", "tasks from another thread: how many, and how long until a sleeping loop runs one",
              network.EPOLL, (network.IO_URING, network.EPOLL, network.ASIO, "Asio", "libuv", "libevent"),
              programs=("post", "post-asio", "post-libuv", "post-libevent"), one_core=False),
)


def find(name):
    for benchmark in BENCHMARKS:
        if benchmark.name == name:
            return benchmark
    known = ", ".join(benchmark.name for benchmark in BENCHMARKS)
    raise LookupError(f"there is no benchmark {name!r}; there are {known}")
