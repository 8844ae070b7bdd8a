from __future__ import annotations

import contextlib
import os
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from thoughtbeam.cli import exits
from thoughtbeam.cli.main import main
from thoughtbeam.cli.resp import Connection, Failure, Pairs, RedisError, Reply, Status
from thoughtbeam.cli.resp_text import quoted, reply_lines, split_command
from thoughtbeam.supervision.state import Running, StateDirectory

HELLO = b"%1\r\n$6\r\nserver\r\n$5\r\nredis\r\n"


@contextlib.contextmanager
def answering(*answers: bytes) -> Iterator[tuple[str, bytearray]]:
    """A server that says these bytes, one after each command; gives its URL and what it was sent."""
    received = bytearray()

    def serve() -> None:
        connection, _ = listener.accept()
        with connection:
            for answer in answers:
                received.extend(connection.recv(4096))
                connection.sendall(answer)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve)
        thread.start()
        yield f"redis://127.0.0.1:{listener.getsockname()[1]}", received
        thread.join()


@pytest.mark.parametrize(
    ("wire", "reply"),
    [
        (b"+OK\r\n", Status("OK")),
        (b"-ERR no\r\n", Failure("ERR no")),
        (b":7\r\n", 7),
        (b",0.5\r\n", 0.5),
        (b"#t\r\n", True),
        (b"_\r\n", None),
        (b"$-1\r\n", None),
        (b"$0\r\n\r\n", b""),
        (b"$4\r\na\r\nb\r\n", b"a\r\nb"),
        (b"=8\r\ntxt:hell\r\n", b"hell"),
        (b"!5\r\nERR x\r\n", Failure("ERR x")),
        (b"*2\r\n:1\r\n*1\r\n$1\r\na\r\n", [1, [b"a"]]),
        (b"~1\r\n:1\r\n", [1]),
        (b"%1\r\n$1\r\nk\r\n:1\r\n", Pairs(((b"k", 1),))),
    ],
)
def test_every_kind_of_reply_is_read(wire: bytes, reply: Reply) -> None:
    with answering(HELLO, wire) as (url, received), Connection(url) as connection:
        assert connection.call([b"GET", b"k"]) == reply
        assert received.endswith(b"*2\r\n$3\r\nGET\r\n$1\r\nk\r\n")


def test_password_and_database_of_the_url() -> None:
    with answering(HELLO, b"+OK\r\n") as (url, received):
        Connection(url.replace("//", "//:p%40ss@") + "/3").close()

    assert received == (
        b"*5\r\n$5\r\nHELLO\r\n$1\r\n3\r\n$4\r\nAUTH\r\n$7\r\ndefault\r\n$4\r\np@ss\r\n"
        b"*2\r\n$6\r\nSELECT\r\n$1\r\n3\r\n"
    )


def test_a_wrong_password() -> None:
    with answering(b"-WRONGPASS invalid\r\n") as (url, _), pytest.raises(RedisError, match="WRONGPASS"):
        Connection(url)


def test_no_password_where_one_is_asked_for() -> None:
    with (
        answering(b"-NOAUTH HELLO must be called with the client already authenticated\r\n") as (url, _),
        pytest.raises(RedisError, match=r"asks for a password: redis://:PASSWORD@127\.0\.0\.1:\d+$"),
    ):
        Connection(url)


def test_a_connection_that_breaks() -> None:
    with (
        answering(HELLO, b"$10\r\nabc") as (url, _),
        Connection(url) as connection,
        pytest.raises(RedisError, match="closed the connection"),
    ):
        connection.call([b"GET", b"k"])


@pytest.mark.parametrize("url", ["127.0.0.1:6379", "rediss://host", "redis://"])
def test_a_url_that_is_not_understood(url: str) -> None:
    with pytest.raises(RedisError, match="is not redis://"):
        Connection(url)


@pytest.mark.parametrize(
    ("reply", "lines"),
    [
        (Status("OK"), ["OK"]),
        (Failure("ERR no"), ["(error) ERR no"]),
        (None, ["(nil)"]),
        (True, ["(true)"]),
        (7, ["(integer) 7"]),
        (0.1, ["(double) 0.1"]),
        (2.0, ["(double) 2"]),
        ([], ["(empty array)"]),
        (Pairs(()), ["(empty hash)"]),
        (b"two words", ['"two words"']),
        ("Größe ≥ 1".encode(), ['"Größe ≥ 1"']),
        (b'a"b\\\n', ['"a\\"b\\\\\\n"']),
        (b"\x00\xff", ['"\\x00\\xff"']),
        (b"\x1b[2J", ['"\\x1b[2J"']),
        ([1, [b"a", b"b"]], ["1) (integer) 1", '2) 1) "a"', '   2) "b"']),
        (
            Pairs(((b"k", b"v"), (b"l", [1, 2]))),
            ['1# "k" => "v"', '2# "l" =>', "   1) (integer) 1", "   2) (integer) 2"],
        ),
        ([0] * 10, [f"{n:>2}) (integer) 0" for n in range(1, 11)]),
    ],
)
def test_replies_look_like_those_of_redis_cli(reply: Reply, lines: list[str]) -> None:
    assert reply_lines(reply) == lines


@pytest.mark.parametrize(
    ("line", "arguments"),
    [
        ("  GET   k ", [b"GET", b"k"]),
        ("HGETALL 'tb:{t1}:meta'", [b"HGETALL", b"tb:{t1}:meta"]),
        (r'SET k "\x00\xfF\n\"q\""', [b"SET", b"k", b'\x00\xff\n"q"']),
        (r"SET k 'it\'s \x00'", [b"SET", b"k", rb"it's \x00"]),
        ('SET k ""', [b"SET", b"k", b""]),
        ("SET größe 1", [b"SET", "größe".encode(), b"1"]),
        ("", []),
    ],
)
def test_commands_are_split_like_those_of_redis_cli(line: str, arguments: list[bytes]) -> None:
    assert split_command(line) == arguments


@pytest.mark.parametrize("line", ['GET "k', "GET 'k", 'GET "k"v'])
def test_quotes_must_close(line: str) -> None:
    with pytest.raises(ValueError, match="clos"):
        split_command(line)


@pytest.mark.parametrize("value", [b"plain", b"\x00\xff\"\\'\r\n\t\a\b", "größe".encode(), b"\x1b\x7f"])
def test_what_is_shown_can_be_typed(value: bytes) -> None:
    assert split_command(quoted(value)) == [value]


def test_one_command(capsys: pytest.CaptureFixture[str]) -> None:
    with answering(HELLO, b"%1\r\n$5\r\nstate\r\n$7\r\nrunning\r\n") as (url, _):
        assert main(["redis", "--url", url, "HGETALL", "tb:{t1}:meta"]) == exits.OK

    assert capsys.readouterr().out == '1# "state" => "running"\n'


def test_commands_from_a_pipe(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    lines = iter(["GET k", "", 'GET "k', "MONITOR", "quit", "never read"])
    monkeypatch.setattr("builtins.input", lambda prompt: next(lines))
    with answering(HELLO, b"$1\r\nv\r\n") as (url, _):
        assert main(["redis", "--url", url]) == exits.USAGE

    assert capsys.readouterr().out.splitlines() == [
        '"v"',
        '(error) a " is not closed',
        "(error) MONITOR never ends; use redis-cli for it",
    ]


def test_the_store_of_the_local_services_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("THOUGHTBEAM_HOME", str(tmp_path))
    state = StateDirectory()
    with answering(HELLO, b"+PONG\r\n") as (url, _), state.locked():
        state.announce(Running("localhost:1", url, os.getpid(), {}, ""))
        assert main(["redis", "PING"]) == exits.OK

    assert capsys.readouterr().out == "PONG\n"


def test_no_local_services(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("THOUGHTBEAM_HOME", str(tmp_path))

    assert main(["redis", "PING"]) == exits.UNREACHABLE

    assert "thoughtbeam serve --local" in capsys.readouterr().err
