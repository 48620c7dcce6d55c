# SPDX-License-Identifier: Apache-2.0
# Copyright The Linkspan authors
"""Benchmarks over the network: a server and the load generator, each on cores of its own.

In a round each job goes to every variant, one right after the other. Servers live for a round, so that each
round has fresh ones; what they print and how they end is said in perf/support/server.h.
"""

import contextlib
import dataclasses
import json
import os
import pathlib
import re
import select
import subprocess
import tempfile
import time

from . import measure

START_SECONDS = 60
END_SECONDS = 20
SETTLE_SECONDS = 3  # caches that are given back after a while are not the connections'
LOAD_SECONDS = 120  # more than a load takes


@dataclasses.dataclass(frozen=True)
class Server:
    name: str  # the variant
    program: str  # in build/perf, as are the files that it needs
    arguments: tuple = ()
    needs: tuple = ()
    load: tuple = ()  # options of the load generator when it meets this variant
    client: str = "load"  # in build/perf: what plays the load generator; the kinds and options are the same
    unix: bool = False  # listens on a unix socket, whatever the job says
    only: dict = dataclasses.field(default_factory=dict)  # for jobs with these params; a tuple: one of these
    warm_up: float = 0  # seconds of load before it is measured: what compiles itself while it runs
    countable: bool = True  # callgrind can run it
    ledger: bool = False  # its client says what both sides have copied
    spins: bool = False  # also when it has nothing to do: it is ended at once, to leave others their core


@dataclasses.dataclass(frozen=True)
class Job:
    params: dict
    load: tuple  # arguments of the load generator: the kind, then options
    server: tuple = ()  # options of every server
    unix: bool = False
    quick: bool = False
    counted: bool = False  # system calls and instructions, too
    ledger: bool = False  # what was copied, too, of servers that say it
    times: int = 1  # as long as others: when few requests are done in that time
    backend: tuple = ()  # a program and its options, which servers that are proxies are told with --to


@dataclasses.dataclass(frozen=True)
class Place:
    """Where everything runs."""
    build: pathlib.Path
    network: object
    cores: object

    def program(self, name):
        return str(self.build / "perf" / name)

    def server(self, command):
        return [*self.network.prefix, *self.cores.server, *command]

    def backend(self, job):
        return [*self.network.prefix, *self.cores.load, self.program(job.backend[0]), *job.backend[1:], "0"]

    def load(self, job, options, endpoint, client="load"):
        return [*self.network.prefix, *self.cores.load, self.program(client), *job.load, *options,
                f"--threads={self.cores.load_threads}", endpoint]


def fits(server, job):
    return all(job.params.get(name) in (value if isinstance(value, tuple) else (value,))
               for name, value in server.only.items())


def built(build, servers):
    folder = build / "perf"
    return [server for server in servers if os.access(folder / server.program, os.X_OK)
            and all((folder / name).is_file() for name in (server.client, *server.needs))]


class Running:
    """A server that listens; ends with the context."""

    def __init__(self, command):
        self.command = command
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                                        env=measure.environment())
        ready, _, _ = select.select([self.process.stdout], [], [], START_SECONDS)
        line = self.process.stdout.readline() if ready else ""
        if not line.startswith("listening on "):
            self.close()
            raise measure.Failed(f"{' '.join(command)} does not listen")
        self.endpoint = line.removeprefix("listening on ").strip().removeprefix("127.0.0.1:")

    @property
    def pid(self):
        return self.process.pid

    def close(self):
        self.process.stdin.close()
        try:
            self.process.wait(END_SECONDS)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.process.stdout.close()


def backend_option(stack, place, job):
    """Starts the job's backend, if it has one, on the cores of the load: it is not what is measured."""
    if not job.backend:
        return ()
    backend = Running(place.backend(job))
    stack.callback(backend.close)
    return (f"--to={backend.endpoint}",)


class Servers:
    """Those of a round, started when they are first needed."""

    def __init__(self, place):
        self.place = place
        self.stack = contextlib.ExitStack()
        self.running = {}

    def __enter__(self):
        return self

    def __exit__(self, *problem):
        self.close()

    def close(self):
        self.stack.close()
        self.running.clear()

    def end(self, server, job):
        self.running.pop(self.key(server, job)).close()

    @staticmethod
    def key(server, job):
        return server.program, server.arguments, job.server, job.unix or server.unix, job.backend

    def find(self, server, job):
        """A running server, and whether it is a new one."""
        key = self.key(server, job)
        is_unix = job.unix or server.unix
        if key in self.running:
            return self.running[key], False
        endpoint = "0"
        if is_unix:
            endpoint = "unix:" + self.stack.enter_context(tempfile.TemporaryDirectory()) + "/socket"
        command = [self.place.program(server.program), *server.arguments, *job.server,
                   *backend_option(self.stack, self.place, job), endpoint]
        found = self.running[key] = Running(self.place.server(command))
        self.stack.callback(found.close)
        return found, True


def run_load(place, job, options, endpoint, client="load"):
    output = measure.run(place.load(job, options, endpoint, client), timeout=LOAD_SECONDS)
    try:
        return json.loads(output)
    except ValueError as error:
        raise measure.Failed(f"{client} printed {output!r}") from error


def latencies(found, name):
    return [(f"{name} p{percent}", "us", found[f"p{percent}_ns"] / 1000) for percent in ("50", "99", "99.9")]


def echo_values(found):
    requests, busy = found["requests"], found["cpu_ns"] / found["cpu_wall_ns"]
    return [("requests", "1/s", requests / found["seconds"]),
            ("server cpu", "ns/request", busy * found["seconds"] * 1e9 / requests),
            ("server busy", "%", 100 * busy), *latencies(found, "latency")]


def connect_values(found):
    return [("connections", "1/s", found["requests"] / found["seconds"]),
            ("server cpu", "ns/connection", found["cpu_ns"] / found["requests"]),
            *latencies(found, "first byte")]


def stream_values(found):
    return [("throughput", "GB/s", found["bytes"] / found["seconds"] / 1e9),
            ("server cpu", "ns/KiB", found["cpu_ns"] / (found["bytes"] / 1024)),
            ("server busy", "%", found["cpu_ns"] / found["seconds"] / 1e7)]


def block_values(found):
    kib = found["bytes"] / 1024
    return [("throughput", "MB/s", found["bytes"] / found["seconds"] / 1e6),
            ("server cpu", "ns/KiB", found["cpu_ns"] / kib),
            ("client cpu", "ns/KiB", found["client_cpu_ns"] / kib)]


def fetch_values(found):
    return [("time", "us", found["seconds"] * 1e6 / found["operations"]), *block_values(found)]


def private_bytes(process):
    """Memory that only this process has: what it would give back if it ended."""
    text = pathlib.Path(f"/proc/{process}/smaps_rollup").read_text(encoding="utf-8")
    return 1024 * int(re.search(r"^Private_Dirty:\s+(\d+) kB", text, re.M).group(1))


def peak_memory(process):
    text = pathlib.Path(f"/proc/{process}/status").read_text(encoding="utf-8")
    return [("peak memory", "KiB", int(re.search(r"^VmHWM:\s+(\d+) kB", text, re.M).group(1)))]


def idle_values(place, job, server):
    """Two counts of connections, so that what a server has anyway is not counted."""
    more = job.params["connections"]
    before = more // 10
    with contextlib.closing(Running(place.server([place.program(server.program), *server.arguments, "0"]))) \
            as running, subprocess.Popen(place.load(job, (), running.endpoint), stdin=subprocess.PIPE,
                                         stdout=subprocess.PIPE, text=True) as load:
        memory = []
        for count in (before, before + more):
            load.stdin.write(f"{count}\n")
            load.stdin.flush()
            if not load.stdout.readline():
                raise measure.Failed(f"{server.name}: the load ended at {count} connections")
            time.sleep(SETTLE_SECONDS)
            memory.append(private_bytes(running.pid))
        load.stdin.close()
    return [("private memory", "B/connection", (memory[1] - memory[0]) / more)]


def fill_values(place, job, server):
    """What a server has more when it holds so many values."""
    with contextlib.closing(Running(place.server([place.program(server.program), *server.arguments, "0"]))) \
            as running:
        before = private_bytes(running.pid)
        values = job.params["values"]
        run_load(place, job, (*server.load, f"--messages={values}"), running.endpoint)
        return [("private memory", "B/value", (private_bytes(running.pid) - before) / values)]


VALUES = {"echo": echo_values, "cache": echo_values, "connect": connect_values, "stream": stream_values,
          "read": block_values, "write": block_values, "fetch": fetch_values}
# Seconds that are measured, and those of load before.
TIMES, QUICK_TIMES = (1, 0.3), (0.3, 0.1)
BLOCK_KINDS, BLOCK_TIMES = ("read", "write", "fetch"), (0.5, 0.1)
WARM_UP_BYTES = 2 << 28  # at least two blocks for everybody, so that clients are as warm as servers


def timing(kind, quick, times=1):
    is_block = kind in BLOCK_KINDS
    seconds, warm_up = QUICK_TIMES if quick else BLOCK_TIMES if is_block else TIMES
    blocks = (f"--warm-up-bytes={WARM_UP_BYTES}",) if is_block else ()
    return f"--seconds={seconds * times}", f"--warm-up={warm_up}", *blocks


def one_job(place, servers, server, job, quick):
    kind = job.load[0]
    if kind == "idle":
        return idle_values(place, job, server)
    if kind == "fill":
        return fill_values(place, job, server)
    running, is_new = servers.find(server, job)
    if is_new and server.warm_up and not quick:
        run_load(place, job, (f"--seconds={server.warm_up}",), running.endpoint)
    found = run_load(place, job, (*server.load, *timing(kind, quick, job.times), f"--server={running.pid}"),
                     running.endpoint, server.client)
    if not found.get("requests", found.get("bytes")):
        raise measure.Failed(f"{server.name}: nothing came back ({job.params})")
    return VALUES[kind](found) + (peak_memory(running.pid) if job.backend else [])


def samples_of(server, job, values):
    return [{"variant": server.name, "params": job.params, "metric": metric, "unit": unit, "value": value}
            for metric, unit, value in values]


def one_round(place, variants, jobs, quick):
    samples = []
    with Servers(place) as servers:
        for job in jobs:
            for server in variants:
                if fits(server, job):
                    samples += samples_of(server, job, one_job(place, servers, server, job, quick))
                    if server.spins:
                        servers.end(server, job)
                if job.server or job.backend:  # of no use to other jobs, and it may have a lot of memory
                    servers.close()
    return samples


def system_calls(text):
    """All calls in a summary of strace -c."""
    return int(re.search(r"^\s*100\.00\s+\S+\s+\S+\s+(\d+)\s.*total$", text, re.M).group(1))


@dataclasses.dataclass(frozen=True)
class Tool:
    """Runs a server and writes a file about it."""
    command: tuple  # {} is the file
    read: object  # of the file's text
    metrics: tuple
    times: int  # as many messages in the long run: what is rare needs more of them
    shorter: int  # the other run is so many times shorter

    def around(self, path, command):
        return [*(part.format(path) for part in self.command), *command]


STRACE = Tool(("strace", "-f", "-c", "-o", "{}"), lambda text: (system_calls(text),), ("system calls",),
              times=4, shorter=40)
CALLGRIND = Tool(("valgrind", "--quiet", "--tool=callgrind", "--callgrind-out-file={}"),
                 measure.profile_totals, ("instructions", "allocations"), times=2, shorter=2)


def counted_run(place, server, job, messages, tool):
    """What a tool says about a server that has done so many messages and ended."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "counts")
        with contextlib.ExitStack() as stack:
            command = [place.program(server.program), *server.arguments, *job.server,
                       *backend_option(stack, place, job), "0"]
            running = Running(place.server(tool.around(path, command)))
            stack.callback(running.close)
            run_load(place, job, (f"--messages={messages}",), running.endpoint)
        return tool.read(pathlib.Path(path).read_text(encoding="utf-8"))


def counts(place, variants, jobs, messages):
    """Samples of system calls, instructions and allocations a request: the difference of a long run and
    a shorter one, so that what starts and ends a server is gone. System calls vary with how many messages
    a server finds at once: their shorter run is so short that this cannot hide the difference. A server that
    is slowed down by counting finds more requests at a time than it would alone; all servers do.
    """
    samples = []
    for job in jobs:
        for server in variants:
            if not fits(server, job) or server.load:
                continue
            values = []
            for tool in (STRACE, CALLGRIND) if server.countable else (STRACE,):
                most = tool.times * messages
                least = most // tool.shorter
                less, more = (counted_run(place, server, job, count, tool) for count in (least, most))
                values += [(metric, f"{metric}/request", (second - first) / (most - least))
                           for metric, first, second in zip(tool.metrics, less, more)]
            samples += samples_of(server, job, values)
    return samples


ALWAYS_TOLD = ("marshal", "framing", "write")  # where payloads would be copied, if they were


def ledgers(place, variants, jobs):
    """Samples of the bytes that each side has copied for each KiB of payload, by place; of those places where
    nothing was ever copied only the ones that matter."""
    samples = []
    with Servers(place) as servers:
        for job in jobs:
            for server in variants:
                if not server.ledger or not fits(server, job):
                    continue
                running, _ = servers.find(server, job)
                found = run_load(place, job, (*server.load, *timing(job.load[0], True)), running.endpoint,
                                 server.client)
                for side, places in found["copied"].items():
                    values = [(f"copied, {name}", "B/KiB", count / (found["bytes"] / 1024))
                              for name, count in places.items() if count or name in ALWAYS_TOLD]
                    samples += [{**sample, "params": {**job.params, "side": side}}
                                for sample in samples_of(server, job, values)]
    return samples


def startable(place, variants, jobs):
    """The variants that run here, and what the others' names are: io_uring may be forbidden, for one."""
    found, refused = [], []
    for server in variants:
        job = next((job for job in jobs if fits(server, job)), None)
        if job is None:
            continue
        try:
            with Servers(place) as servers:
                servers.find(server, job)
            found.append(server)
        except measure.Failed:
            refused.append(server.name)
    return found, refused
