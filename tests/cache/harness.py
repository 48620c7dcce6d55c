# SPDX-License-Identifier: Apache-2.0
# Copyright The Linkspan authors
"""Runs linkspan-cached and other servers for tests, on free ports, and speaks RESP with them by hand."""

import os
import re
import socket
import subprocess
import tempfile
import time

PROGRAM = os.environ["LINKSPAN_CACHED"]
PATIENCE_SECONDS = 60


def transports():
    return os.environ["LINKSPAN_TRANSPORTS"].split(",")


def until(condition, what, explain=lambda: ""):
    """Waits for another process; the limit only ends a test that has failed."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not condition():
        if time.monotonic() > deadline:
            raise AssertionError(f"never: {what} {explain()}")
        time.sleep(0.01)


def free_port():
    """One that nobody has at the moment."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Process:
    """A server of a test; leaving the context ends it and checks that it ends well."""

    def __init__(self, arguments, stdout=None):
        self.log = tempfile.TemporaryFile()
        self.process = subprocess.Popen(arguments, stdout=stdout or self.log, stderr=self.log,
                                        stdin=subprocess.DEVNULL, text=True)

    def __enter__(self):
        return self

    def __exit__(self, failure, *_):
        if self.process.poll() is None:
            self.process.terminate()
        status = self.process.wait(PATIENCE_SECONDS)
        if self.process.stdout:
            self.process.stdout.close()
        if failure is None and status != self.expected_status():
            raise AssertionError(f"it ended with {status}: {self.messages()}")
        self.log.close()

    def expected_status(self):
        return 0

    def messages(self):
        self.log.seek(0)
        return self.log.read().decode(errors="replace")


class Cached(Process):
    """linkspan-cached on a free port."""

    def __init__(self, *options, transport="auto"):
        super().__init__([PROGRAM, "--port", "0", "--transport", transport, *options],
                         stdout=subprocess.PIPE)
        match = re.match(r"listening on (\S+):(\d+) transport (\S+)", self.process.stdout.readline())
        if not match:
            self.process.wait(PATIENCE_SECONDS)
            raise AssertionError(f"no server: {self.messages()}")
        self.port, self.transport = int(match.group(2)), match.group(3)

    def metrics_port(self):
        return int(re.match(r"metrics on \S+:(\d+)", self.process.stdout.readline()).group(1))


class OnFreePort(Process):
    """A server that has to be told its port: tries others when somebody was faster."""

    def __init__(self, arguments, attempts=5):
        for attempt in range(attempts):
            self.port = free_port()
            super().__init__(arguments(self.port))
            until(lambda: self.process.poll() is not None or self.listens(), "it listens", self.messages)
            if self.process.poll() is None:
                return
            if attempt + 1 == attempts:
                raise AssertionError(f"no server: {self.messages()}")
            self.log.close()

    def listens(self):
        try:
            socket.create_connection(("127.0.0.1", self.port)).close()
            return True
        except OSError:
            return False


class RedisServer(OnFreePort):
    def __init__(self):
        self.directory = tempfile.TemporaryDirectory()
        super().__init__(lambda port: [
            "redis-server", "--port", str(port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no",
            "--databases", "1", "--dir", self.directory.name])

    def __exit__(self, *failure):
        super().__exit__(*failure)
        self.directory.cleanup()


class Reply:
    """A reply that is no string, number or list: an error, or a type of RESP3."""

    def __init__(self, kind, value):
        self.kind, self.value = kind, value

    def __eq__(self, other):
        return isinstance(other, Reply) and (self.kind, self.value) == (other.kind, other.value)

    def __repr__(self):
        return f"{self.kind}{self.value!r}"


def error(text):
    return Reply("-", text.encode())


def simple(text):
    return Reply("+", text.encode())


def encoded(arguments):
    parts = [b"*%d\r\n" % len(arguments)]
    for argument in arguments:
        if not isinstance(argument, bytes):
            argument = str(argument).encode()
        parts.append(b"$%d\r\n%s\r\n" % (len(argument), argument))
    return b"".join(parts)


class Client:
    """A connection."""

    def __init__(self, address):
        if isinstance(address, str):
            self.socket = socket.socket(socket.AF_UNIX)
            self.socket.settimeout(PATIENCE_SECONDS)
            self.socket.connect(address)
        else:
            self.socket = socket.create_connection(("127.0.0.1", address), timeout=PATIENCE_SECONDS)
        self.received = b""

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.socket.close()

    def send(self, data):
        self.socket.sendall(data)

    def __call__(self, *arguments):
        self.send(encoded(arguments))
        return self.reply()

    def _more(self):
        part = self.socket.recv(1 << 20)
        if not part:
            raise EOFError("the server has closed the connection")
        self.received += part

    def _take(self, size):
        while len(self.received) < size:
            self._more()
        taken, self.received = self.received[:size], self.received[size:]
        return taken

    def _line(self):
        while b"\r\n" not in self.received:
            self._more()
        line, self.received = self.received.split(b"\r\n", 1)
        return line

    def reply(self):
        line = self._line()
        kind, rest = line[:1].decode(), line[1:]
        if kind in "+-,#(":
            return Reply(kind, rest)
        if kind == ":":
            return int(rest)
        if kind == "_" or rest == b"-1":
            return None
        if kind in "$!=":
            text = self._take(int(rest) + 2)[:-2]
            return text if kind == "$" else Reply(kind, text)
        count = int(rest) * (2 if kind == "%" else 1)
        values = [self.reply() for _ in range(count)]
        return values if kind == "*" else Reply(kind, values)

    def raw_until(self, end):
        """Everything up to and with `end`, which has to come last."""
        parts, tail = [self.received], self.received
        self.received = b""
        while not tail.endswith(end):
            part = self.socket.recv(1 << 20)
            if not part:
                raise EOFError(f"the server has closed the connection after {b''.join(parts)[-200:]!r}")
            parts.append(part)
            tail = (tail + part)[-len(end):] if len(part) < len(end) else part
        return b"".join(parts)

    def until_end(self):
        """Everything that comes until the server closes."""
        parts = [self.received]
        while True:
            try:
                part = self.socket.recv(1 << 20)
            except ConnectionResetError:
                part = b""
            if not part:
                return b"".join(parts)
            parts.append(part)
