# SPDX-License-Identifier: Apache-2.0
# Copyright The Linkspan authors
"""The servers, jobs and bounds of the benchmark `block-read`."""

from .bounds import Bound
from .servers import Job, Server
from .server_catalogue import ASIO, EPOLL, IO_URING, KIB

MIB = 1024 * KIB
CHUNKS = (64 * KIB, MIB, 4 * MIB)
BLOCK = {"case": ("read", "write")}
C_FLOOR, GRPC, LOCAL, LOCAL_MAPPED = "C send and recv", "gRPC", "local file", "local file, mapped"
GRPC_WARM = f"{GRPC}, memory kept"
EACH, CACHED = "descriptor each time", "cached descriptor"
CACHED_MAPPED = f"{CACHED}, mapped"


def linkspan(name, base, *options, **more):
    """A variant on the transport of `base`; all variants of a transport share a server."""
    transport = f"--transport={base.split()[1]}"
    return Server(name, "block-linkspan", (transport,), client="block-client", load=(transport, *options),
                  **more)


def copying(base):
    """What is copied, on which side: the sender of the payload is the server that is read from, or the client
    that writes."""
    one_chunk = {"bytes": MIB, "source": "memory"}
    for case, receiver in (("read", "--client-copies"), ("write", "--server-copies")):
        only = {"case": case, **one_chunk}
        yield linkspan(f"{base}, send side only", base, receiver, only=only, ledger=True)
        yield linkspan(f"{base}, copied", base, "--client-copies", "--server-copies", only=only, ledger=True)


def floors():
    """A server for each size, as it sends without being asked; and one for each way to receive."""
    for size in CHUNKS:
        yield Server(C_FLOOR, "stream-c-epoll", (f"--bytes={size}", "--source=block"),
                     only={"case": "read", "bytes": size, "source": "memory"})
    yield Server(C_FLOOR, "stream-c-epoll", (f"--bytes={MIB}", "--source=file"),
                 only={"case": "read", "bytes": MIB, "source": "file"})
    yield Server(C_FLOOR, "sink-c-epoll", only={"case": "write", "summed": "no"})
    yield Server(C_FLOOR, "sink-c-epoll", ("--summed",), only={"case": "write", "summed": "yes"})


FETCH = {"case": "fetch"}
SERVERS = (
    *(linkspan(name, name, only=BLOCK, ledger=True) for name in (IO_URING, EPOLL)),
    linkspan(ASIO, ASIO, only={**BLOCK, "bytes": MIB}, ledger=True),
    *copying(IO_URING), *copying(EPOLL),
    *floors(),
    Server(GRPC, "block-grpc-server", client="block-grpc-client", only=BLOCK),
    Server(GRPC_WARM, "block-grpc-server", ("--keep-memory",), client="block-grpc-client",
           load=("--keep-memory",), only=BLOCK),
    linkspan(LOCAL, EPOLL, "--local=pread", only={**BLOCK, "source": "memory"}),
    linkspan(LOCAL_MAPPED, EPOLL, "--local=mapped", only={"case": "read", "source": "memory", "bytes": MIB}),
    *(linkspan(f"{name}, {socket}", name, only=FETCH, unix=socket == "unix")
      for name in (IO_URING, EPOLL) for socket in ("TCP", "unix")),
    *(linkspan(name, EPOLL, f"--file={how}", only=FETCH, unix=True)
      for name, how in ((EACH, "each"), (f"{CACHED}, pread", "pread"), (CACHED_MAPPED, "mapped"))),
)


def job(case, size, source="memory", summed="no"):
    params = {"case": case, "bytes": size, "source": source, "summed": summed}
    load = (case, f"--bytes={size}", f"--source={source}", *(["--summed"] if summed == "yes" else []))
    told = size == MIB and summed == "no" and case != "fetch"
    quick = size == MIB and summed == "no" and (source == "memory" or case == "fetch")
    return Job(params, load, quick=quick, ledger=told)


JOBS = (
    *(job(case, size) for case in ("read", "write") for size in CHUNKS),
    job("read", MIB, "file"),
    *(job(case, MIB, summed="yes") for case in ("read", "write")),
    *(job("fetch", MIB, "file", summed) for summed in ("no", "yes")),
)


def throughput(variant, limit, to, **params):
    return Bound(variant, "throughput", "at least", limit, to, {"bytes": MIB, **params})


NOT_TOUCHED = {"source": "memory", "summed": "no"}
BOUNDS = tuple(
    bound for variant in (IO_URING, EPOLL)
    for bound in (throughput(variant, 0.9, C_FLOOR, case="read", **NOT_TOUCHED),
                  *(throughput(variant, 3, grpc, case="read", **NOT_TOUCHED) for grpc in (GRPC, GRPC_WARM)),
                  *(throughput(variant, 2, grpc, case="write", **NOT_TOUCHED) for grpc in (GRPC, GRPC_WARM)),
                  throughput(CACHED_MAPPED, 4, f"{variant}, TCP", case="fetch", summed="no"))
) + tuple(Bound(variant, f"copied, {place}", "at most", 0)
          for variant in (IO_URING, EPOLL, ASIO) for place in ("marshal", "framing", "write"))
