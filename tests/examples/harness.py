# SPDX-License-Identifier: Apache-2.0
# Copyright The Linkspan authors
"""Runs linkspan-blocks for tests: servers on free ports, clients, and connections that break the rules."""

import os
import signal
import socket
import struct
import subprocess
import tempfile
import time

PROGRAM = os.environ["LINKSPAN_BLOCKS"]
PATIENCE_SECONDS = 60


def transports():
    return subprocess.run([PROGRAM, "transports"], check=True, capture_output=True, text=True).stdout.split()


class Server:
    """A server of its own directory; leaving the context stops it and checks that it ends well."""

    def __init__(self, transport="auto", directory=None, address="127.0.0.1:0", wrapper=(), options=(),
                 expect_status=0):
        self.own_directory = tempfile.TemporaryDirectory() if directory is None else None
        self.directory = directory or os.path.join(self.own_directory.name, "blocks")
        self.expect_status = expect_status
        self.log = tempfile.TemporaryFile()
        environment = dict(os.environ)
        if wrapper:  # LeakSanitizer cannot work under another tracer
            environment["ASAN_OPTIONS"] = environment.get("ASAN_OPTIONS", "") + ":detect_leaks=0"
        self.process = subprocess.Popen(
            [*wrapper, PROGRAM, "--transport", transport, "--address", address, *options, "serve",
             "--directory", self.directory], stdout=subprocess.PIPE, stderr=self.log, text=True,
            env=environment)
        first = self.process.stdout.readline()
        if not first.startswith("listening on "):
            self.process.wait(PATIENCE_SECONDS)
            raise AssertionError(f"no server: {first!r} {self.messages()}")
        words = first.split()
        self.address, self.transport = words[2], words[4]

    def __enter__(self):
        return self

    def __exit__(self, failure, *_):
        if self.process.poll() is None:
            self.process.terminate()
        status = self.process.wait(PATIENCE_SECONDS)
        self.process.stdout.close()
        if failure is None and status != self.expect_status:
            raise AssertionError(f"the server ended with {status}: {self.messages()}")
        self.log.close()
        if self.own_directory:
            self.own_directory.cleanup()

    def messages(self):
        self.log.seek(0)
        return self.log.read().decode()

    def wait_for_message(self, text):
        until(lambda: text in self.messages(), f"the server says {text!r}", self.messages)

    def client(self, *arguments, transport=None, timeout=PATIENCE_SECONDS):
        return run("--transport", transport or self.transport, "--address", self.address, *arguments,
                   timeout=timeout)

    def connect(self):
        if self.address.startswith("unix:"):
            connection = socket.socket(socket.AF_UNIX)
            connection.settimeout(PATIENCE_SECONDS)
            connection.connect(self.address[len("unix:"):])
            return connection
        host, port = self.address.rsplit(":", 1)
        return socket.create_connection((host, int(port)), timeout=PATIENCE_SECONDS)

    def stored(self):
        return sorted(os.listdir(self.directory))

    def blocks(self):
        return [name for name in self.stored() if name != ".lock"]


def run(*arguments, timeout=PATIENCE_SECONDS):
    return subprocess.run([PROGRAM, *arguments], capture_output=True, text=True, timeout=timeout, check=False)


def until(condition, what, explain=lambda: ""):
    """Waits for another process; the limit only ends a test that has failed."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not condition():
        if time.monotonic() > deadline:
            raise AssertionError(f"never: {what} {explain()}")
        time.sleep(0.01)


# --- the protocol by hand: what blocks.proto says, encoded without protobuf ---------------------------------


def varint(value):
    encoded = b""
    while value > 0x7F:
        encoded += bytes([value & 0x7F | 0x80])
        value >>= 7
    return encoded + bytes([value])


def field(number, value):
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    return varint(number << 3 | 2) + varint(len(value)) + value


def frame(message):
    return struct.pack(">I", len(message)) + message


def begin_put(name):
    return frame(field(1, field(1, name.encode())))


def put_chunk(payload):
    return frame(field(2, b"") + field(15, payload))


def finish_put(size, crc32):
    return frame(field(3, field(1, size) + field(2, crc32)))


def get(name):
    return frame(field(4, field(1, name.encode())))


def receive_frame(connection):
    prefix = receive_exactly(connection, 4)
    return receive_exactly(connection, struct.unpack(">I", prefix)[0])


def receive_exactly(connection, size):
    received = b""
    while len(received) < size:
        part = connection.recv(size - len(received))
        if not part:
            raise EOFError(f"the connection ended after {len(received)} of {size} bytes")
        received += part
    return received


def failure_reason(message):
    """The reason, when `message` is a Reply with a Failure; else None."""
    if message[:1] != b"\x0a":
        return None
    _, failure = split_varint(message[1:])
    size, reason = split_varint(failure[1:])
    return reason[:size].decode()


def split_varint(encoded):
    value, shift = 0, 0
    for i, byte in enumerate(encoded):
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return value, encoded[i + 1:]
    raise ValueError("a varint without an end")


def receive_until_end(connection):
    received = b""
    while True:
        try:
            part = connection.recv(1 << 16)
        except ConnectionResetError:
            return received
        if not part:
            return received
        received += part


SIGNALS = {"SIGINT": signal.SIGINT, "SIGTERM": signal.SIGTERM}


def receive_until_end_or_failure(connection):
    """The reason of the failure that ends a get, or None when the connection was cut."""
    try:
        while True:
            reason = failure_reason(receive_frame(connection))
            if reason is not None:
                return reason
    except (EOFError, ConnectionResetError):
        return None
