"""A connection to Redis or Valkey that shows what came over the wire (RESP3): a status is no string, a hash
no list.

Small on purpose: one command, one reply. redis-py would turn replies into what is handy for a program.
"""

from __future__ import annotations

import socket
from dataclasses import dataclass
from types import TracebackType
from typing import Self
from urllib.parse import unquote, urlsplit


class RedisError(Exception):
    """The server cannot be reached, or has gone."""


@dataclass(frozen=True, slots=True)
class Status:
    """A plain word such as OK."""

    text: str


@dataclass(frozen=True, slots=True)
class Failure:
    """An error that the server answers with."""

    text: str


@dataclass(frozen=True, slots=True)
class Pairs:
    """A hash, in the order of the wire."""

    items: tuple[tuple[Reply, Reply], ...]


Reply = Status | Failure | Pairs | bytes | int | float | bool | list["Reply"] | None


class Connection:
    """One connection. url: `redis://[[user]:password@]host[:port][/database]`. Raises RedisError."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        if parts.scheme != "redis" or not parts.hostname:
            raise RedisError(f"{url!r} is not redis://[[user]:password@]host[:port][/database]")
        try:
            self._socket = socket.create_connection((parts.hostname, parts.port or 6379), timeout=5.0)
        except OSError as error:
            raise RedisError(f"{parts.hostname}:{parts.port or 6379} does not answer: {error}") from error
        # a command may block for as long as it likes
        self._socket.settimeout(None)
        self._stream = self._socket.makefile("rb")
        hello = ["HELLO", "3"]
        if parts.password:
            hello += ["AUTH", unquote(parts.username or "default"), unquote(parts.password)]
        setup = [hello]
        if database := parts.path.strip("/"):
            setup.append(["SELECT", database])
        for command in setup:
            answer = self.call([part.encode() for part in command])
            if isinstance(answer, Failure):
                self.close()
                where = f"{parts.hostname}:{parts.port or 6379}"
                if answer.text.startswith("NOAUTH"):
                    raise RedisError(f"{where} asks for a password: redis://:PASSWORD@{where}")
                raise RedisError(f"{where}, {command[0]}: {answer.text}")

    def call(self, command: list[bytes]) -> Reply:
        """Sends a command and reads its reply."""
        packed = b"".join(b"$%d\r\n%s\r\n" % (len(part), part) for part in command)
        try:
            self._socket.sendall(b"*%d\r\n%s" % (len(command), packed))
            return self._read()
        except OSError as error:
            raise RedisError(f"the connection broke: {error}") from error

    def close(self) -> None:
        self._stream.close()
        self._socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _read(self) -> Reply:
        line = self._stream.readline()
        if not line.endswith(b"\r\n"):
            raise RedisError("the server closed the connection")
        kind, body = line[:1], line[1:-2]
        match kind:
            case b"+":
                return Status(body.decode())
            case b"-":
                return Failure(body.decode())
            case b":" | b"(":
                return int(body)
            case b",":
                return float(body)
            case b"#":
                return body == b"t"
            case b"_":
                return None
            case b"$" | b"!" | b"=":
                return self._bulk(kind, int(body))
            case b"*" | b"~" | b">":
                return None if body == b"-1" else [self._read() for _ in range(int(body))]
            case b"%":
                return Pairs(tuple((self._read(), self._read()) for _ in range(int(body))))
        raise RedisError(f"the server does not speak RESP: {line[:40]!r}")

    def _bulk(self, kind: bytes, length: int) -> Reply:
        if length < 0:
            return None
        data = self._stream.read(length + 2)
        if len(data) != length + 2:
            raise RedisError("the server closed the connection")
        body = data[:-2]
        match kind:
            case b"!":
                return Failure(body.decode())
            case b"=":
                return body[4:]  # verbatim: a three-letter format and a colon go before
        return body
