"""`thoughtbeam redis`: look into the tree store without redis-cli."""

from __future__ import annotations

import argparse
import contextlib
import sys

from thoughtbeam.cli import exits
from thoughtbeam.cli.resp import Connection, Failure, RedisError
from thoughtbeam.cli.resp_text import reply_lines, split_command
from thoughtbeam.supervision.state import StateDirectory

# their replies never end, or come when they like
_STREAMING = frozenset({b"MONITOR", b"SUBSCRIBE", b"PSUBSCRIBE", b"SSUBSCRIBE", b"SYNC", b"PSYNC"})
_HELLO = """\
Connected to {url}. Try:
  ZREVRANGE tb:trees 0 4                    the newest trees
  HGETALL 'tb:{{TREE_ID}}:meta'               state, counts and answer of one
  ZREVRANGE 'tb:{{TREE_ID}}:state:finished' 0 9 WITHSCORES
Ctrl-D or `quit` ends."""


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser(
        "redis",
        help="look into the tree store",
        description="A small redis-cli. Without a COMMAND it reads commands from the terminal.",
        epilog=exits.SUMMARY,
    )
    parser.set_defaults(run=run)
    parser.add_argument(
        "--url", help="redis://host:port/database (default: the store that `serve --local` runs)"
    )
    parser.add_argument(
        "command",
        metavar="COMMAND",
        nargs=argparse.REMAINDER,
        help="for example: HGETALL 'tb:{TREE_ID}:meta'",
    )


def run(args: argparse.Namespace) -> int:
    url = args.url or _local_url()
    if url is None:
        print(
            f"thoughtbeam: no services run in {StateDirectory().path}; start them with "
            "`thoughtbeam serve --local`, or name a server with --url",
            file=sys.stderr,
        )
        return exits.UNREACHABLE
    try:
        with Connection(url) as connection:
            if args.command:
                return _one(connection, [part.encode() for part in args.command])
            return _many(connection, url)
    except RedisError as error:
        print(f"thoughtbeam: {error}", file=sys.stderr)
        return exits.UNREACHABLE


def _local_url() -> str | None:
    running = StateDirectory().running()
    return running.redis_url if running else None


def _one(connection: Connection, command: list[bytes]) -> int:
    if command[0].upper() in _STREAMING:
        print(f"(error) {command[0].decode().upper()} never ends; use redis-cli for it")
        return exits.USAGE
    reply = connection.call(command)
    print("\n".join(reply_lines(reply)))
    return exits.FAILED if isinstance(reply, Failure) else exits.OK


def _many(connection: Connection, url: str) -> int:
    terminal = sys.stdin.isatty()
    if terminal:
        # importing it gives input() line editing and a history
        with contextlib.suppress(ImportError):
            import readline  # noqa: F401
        print(_HELLO.format(url=url))
    code = exits.OK
    while True:
        try:
            line = input("redis> " if terminal else "").strip()
        except EOFError:
            return code
        if line.lower() in ("quit", "exit"):
            return code
        try:
            if command := split_command(line):
                code = _one(connection, command)
        except ValueError as error:
            print(f"(error) {error}")
            code = exits.USAGE
