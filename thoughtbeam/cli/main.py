"""`thoughtbeam`: reads the arguments, runs one command, turns errors into one line and an exit code."""

from __future__ import annotations

import argparse
import io
import math
import os
import sys
from collections.abc import Sequence

import thoughtbeam
from thoughtbeam import errors
from thoughtbeam._channel import resolve_endpoint
from thoughtbeam.cli import (
    demo,
    exits,
    load,
    policies,
    redis,
    scorer,
    serve,
    solve,
    stop,
    submit,
    tree,
    workers,
)
from thoughtbeam.local import LocalSetupError
from thoughtbeam.supervision.signals import StopRequestedError
from thoughtbeam.supervision.state import AlreadyRunningError
from thoughtbeam.supervision.supervisor import ServiceFailedError

_COMMANDS = (serve, solve, submit, tree, policies, workers, load, demo, scorer, redis, stop)


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point; returns the exit code."""
    _prepare_output()
    args = parser().parse_args(argv)
    try:
        code: int = args.run(args)
        sys.stdout.flush()
        return code
    except (KeyboardInterrupt, StopRequestedError) as error:
        print("stopped", file=sys.stderr)
        return 128 + error.signal_number if isinstance(error, StopRequestedError) else exits.INTERRUPTED
    except BrokenPipeError:
        # `thoughtbeam tree show | head`: nobody reads on
        _give_up_output()
        return exits.FAILED
    except UnicodeError as error:
        return _fail(f"what was given is not UTF-8: {error}", exits.USAGE)
    except ModuleNotFoundError as error:
        if error.name != "rich":
            raise
        return _fail("the command line needs rich: pip install 'thoughtbeam[cli]'", exits.FAILED)
    except ServiceFailedError as error:
        print(error.log, file=sys.stderr)
        return _fail(str(error), exits.FAILED)
    except AlreadyRunningError as error:
        hint = "use them, end them with `thoughtbeam stop`, or name another directory in THOUGHTBEAM_HOME"
        return _fail(f"{error}: {hint}", exits.FAILED)
    except LocalSetupError as error:
        return _fail(str(error), exits.USAGE)
    except errors.ApiError as error:
        return _fail(explain(error, _endpoint(args)), code_of(error))
    except OSError as error:
        # a full disk, a directory of THOUGHTBEAM_HOME that cannot be one
        _give_up_output()
        return _fail(str(error), exits.FAILED)


def _prepare_output() -> None:
    """What the terminal has no characters for is escaped; what is closed takes all, as with print()."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, open(os.devnull, "w"))  # noqa: SIM115 - for as long as the process
        elif isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def _give_up_output() -> None:
    """Python must not fail once more at its exit, with what could not be written."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def parser() -> argparse.ArgumentParser:
    """The whole command line."""
    top = argparse.ArgumentParser(
        prog="thoughtbeam",
        description="Thought-level search for reasoning models: one question in, one answer out.",
        epilog=exits.SUMMARY,
    )
    top.add_argument("--version", action="version", version=f"thoughtbeam {thoughtbeam.__version__}")
    commands = top.add_subparsers(metavar="COMMAND", required=True)
    for command in _COMMANDS:
        command.add_parser(commands)
    return top


def explain(error: errors.ApiError, endpoint: str) -> str:
    """One line: what went wrong and what to do. endpoint: where the service was looked for."""
    match error:
        case errors.UnavailableError(reason="UNKNOWN"):
            return (
                f"nothing answers at {endpoint}; start the service with `thoughtbeam serve --local`, or name "
                "another address with --endpoint or THOUGHTBEAM_ENDPOINT"
            )
        case errors.UnimplementedError():
            return f"what listens there is not (this version of) Thoughtbeam: {error.message}"
        case errors.DeadlineExceededError(reason="CLIENT_TIMEOUT", tree_id=str(tree_id)):
            return (
                f"{error.message.partition(';')[0]}; the search may go on: look at it with `thoughtbeam tree "
                f"show {tree_id}`, end it with `thoughtbeam tree cancel {tree_id}`"
            )
    text = " ".join(error.message.split())
    if error.retry_after is not None and math.isfinite(error.retry_after):
        text += f"; try again in {error.retry_after:g} s"
    return f"{text} ({error.code.name}/{error.reason})"


def _endpoint(args: argparse.Namespace) -> str:
    # the demo has no such argument: it talks to what it has started itself
    return resolve_endpoint(args.endpoint) if "endpoint" in args else "the service's address"


def code_of(error: errors.ApiError) -> int:
    """The exit code for an error of a call."""
    match error:
        case errors.UnavailableError():
            return exits.UNREACHABLE
        case errors.InvalidArgumentError() | errors.FailedPreconditionError() | errors.NotFoundError():
            return exits.USAGE
        case errors.AlreadyExistsError() | errors.OutOfRangeError():
            return exits.USAGE
        case _:
            return exits.FAILED


def _fail(text: str, code: int) -> int:
    print(f"thoughtbeam: {text}", file=sys.stderr)
    return code


if __name__ == "__main__":
    sys.exit(main())
