"""`thoughtbeam demo`: starts everything, solves one question, shows the tree and the store, stops
everything."""

from __future__ import annotations

import argparse
import contextlib
import shutil
import subprocess
import sys
import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path

from thoughtbeam import local
from thoughtbeam.cli import exits
from thoughtbeam.cli.serve import report
from thoughtbeam.cli.solve import cancelled
from thoughtbeam.client import Client
from thoughtbeam.results import Result
from thoughtbeam.supervision.probes import free_ports, port_is_free
from thoughtbeam.supervision.signals import StopSignals
from thoughtbeam.supervision.state import AlreadyRunningError, Running, StateDirectory
from thoughtbeam.supervision.supervisor import ServiceFailedError

# of the kind that the bundled model was trained for
QUESTION = (
    "Start with 654 and work modulo 1000. a) +726 b) *9 c) +523 d) +597 e) +675 f) +746 g) -942. "
    "Report the value after g."
)
EXPECTED = 19
_DRAWN = 40
_QUERIES = (
    "ZREVRANGE tb:trees 0 2",
    "HMGET 'tb:{%s}:meta' state nodes roots branches finished pruned cancelled generated answer",
    "ZREVRANGE 'tb:{%s}:state:finished' 0 4 WITHSCORES",
    "ZRANGE 'tb:{%s}:state:pruned' 0 2 WITHSCORES",
    # the first rounds: the last ones have little left to prune
    "XRANGE 'tb:{%s}:rounds' - + COUNT 2",
    "XREVRANGE 'tb:{%s}:events' + - COUNT 2",
    "PTTL 'tb:{%s}:meta'",
)
_USAGE = """
The services are still up:
  {command} solve "{question}"{endpoint}
  {command} tree list{endpoint}
  {command} policies gambit{endpoint}
  {command} redis
  {command} stop                          ends them"""


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser(
        "demo",
        help="see it work: one question, from start to stop",
        description="Starts the service on this machine with the bundled model, solves a sample question "
        "with gambit, shows the tree and the store's own view of it, and stops everything it has started.",
        epilog=exits.SUMMARY,
    )
    parser.set_defaults(run=run)
    parser.add_argument(
        "--keep", action="store_true", help="leave the services up; `thoughtbeam stop` ends them"
    )


def run(args: argparse.Namespace) -> int:
    import rich  # noqa: F401 (before anything is started)

    state = StateDirectory()
    if (holder := state.holder()) is not None:
        raise AlreadyRunningError(state.path, holder)
    port = local.DEFAULT_PORT if port_is_free(local.DEFAULT_PORT) else free_ports(1)[0]
    report("Starting the service on this machine.")
    with StopSignals() as signals:
        services = _left_running if args.keep else _stopped_at_the_end
        with services(port, state, signals) as running:
            code = _solve_and_show(running, signals)
        if args.keep:
            endpoint = "" if port == local.DEFAULT_PORT else f" --endpoint {running.endpoint}"
            print(_USAGE.format(command=_command(), question=QUESTION, endpoint=endpoint))
        else:
            report("everything has been stopped")
    return code


@contextlib.contextmanager
def _stopped_at_the_end(port: int, state: StateDirectory, signals: StopSignals) -> Iterator[Running]:
    config = local.LocalConfig(port=port)
    with local.running(config, state, signals, report) as (running, _):
        yield running


@contextlib.contextmanager
def _left_running(port: int, state: StateDirectory, signals: StopSignals) -> Iterator[Running]:
    """A `serve --local` that outlives this process; it is ended again only if the demo does not succeed."""
    state.logs.mkdir(parents=True, exist_ok=True)
    log = state.logs / "serve.log"
    with log.open("wb") as output:
        supervisor = subprocess.Popen(
            [sys.executable, "-P", "-m", "thoughtbeam.cli.main", "serve", "--local", "--port", str(port)],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        with log.open() as progress:
            while (running := state.running()) is None or running.supervisor != supervisor.pid:
                sys.stderr.write(progress.read())
                if (code := supervisor.poll()) is not None:
                    raise ServiceFailedError("serve --local", f"ended with status {code}", log)
                signals.wait(0.2)
            sys.stderr.write(progress.read())
        yield running
    except BaseException:
        supervisor.terminate()
        supervisor.wait()
        raise
    # from here on it is on its own, and Python must not warn that nobody has waited for it
    supervisor.returncode = 0


def _solve_and_show(running: Running, signals: StopSignals) -> int:
    from thoughtbeam.cli import terminal
    from thoughtbeam.cli.result_view import result_view
    from thoughtbeam.cli.tree_drawing import draw_tree

    console = terminal.output()
    tree_id = str(uuid.uuid4())
    with Client(running.endpoint) as client:
        try:
            with signals.interruptible():
                result = _solve(client, tree_id)
                tree = client.tree(tree_id)
        except KeyboardInterrupt:
            report(cancelled(client, tree_id))
            signals.check()
            raise
    console.rule("the answer")
    console.print(f"Question: {QUESTION}", markup=False)
    console.print(result_view(result, tree.nodes))
    console.print(_verdict(result))
    console.rule("the tree")
    console.print(draw_tree(tree, _DRAWN), crop=False)
    console.rule("the tree in the store")
    _query(running.redis_url, queries(result), console.width)
    return exits.OK if result.answer else exits.NO_ANSWER


def _solve(client: Client, tree_id: str) -> Result:
    from thoughtbeam.cli.progress import shown

    report(f"\nAsking, with the policy gambit: {QUESTION}")
    with shown("gambit", sys.stderr.isatty()) as on_event:
        return client.solve(
            QUESTION, policy="gambit", answer_mode="integer", request_id=tree_id, on_event=on_event
        )


def _verdict(result: Result) -> str:
    if result.text is None:
        return f"There is no answer; it would have been {EXPECTED}."
    right = result.text.strip().isdecimal() and int(result.text) == EXPECTED
    return f"That is {'[bold green]right' if right else '[bold red]wrong'}[/]: the value is {EXPECTED}."


def _command() -> str:
    """How this program can be called again from here."""
    found = shutil.which("thoughtbeam")
    own = Path(sys.argv[0]).absolute()
    if own.name != "thoughtbeam" or (found and own.samefile(found)):
        return "thoughtbeam"
    return str(own.relative_to(Path.cwd()) if own.is_relative_to(Path.cwd()) else own)


def queries(result: Result) -> list[str]:
    """What to ask the store about a search that has ended, as redis-cli takes it."""
    asked = [query.replace("%s", result.tree_id) for query in _QUERIES]
    if result.answer is not None:
        asked.insert(3, f"HGETALL 'tb:{{{result.tree_id}}}:node:{result.answer.node}'")
    return asked


def _query(redis_url: str, commands: Sequence[str], width: int) -> None:
    """Asks the store itself, as anybody can with redis-cli or `thoughtbeam redis`."""
    from thoughtbeam.cli.resp import Connection
    from thoughtbeam.cli.resp_text import reply_lines, split_command

    with Connection(redis_url) as connection:
        for command in commands:
            print(f"\nredis> {command}")
            for line in reply_lines(connection.call(split_command(command))):
                print(line if len(line) <= width else line[: width - 1] + "…")
