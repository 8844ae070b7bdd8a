"""`thoughtbeam scorer`: makes and judges scorers; the work is done by programs of the workers, with `python
-m`."""

from __future__ import annotations

import argparse
import importlib.util
import os
import sys
from dataclasses import dataclass
from typing import NoReturn

from thoughtbeam.local import ENGINE_INSTALL, LocalSetupError


@dataclass(frozen=True, slots=True)
class _Program:
    """module: what is run. needs: packages that are not in the base install. install: what brings them."""

    module: str
    help: str
    needs: tuple[str, ...]
    install: str


_TORCH = ("numpy", "torch")
_TORCH_INSTALL = "pip install 'thoughtbeam[prm]'"
_PROGRAMS = {
    "collect": _Program(
        "decoder_worker.collecting",
        "run questions with known answers and store what a scorer learns from",
        ("numpy", "pebble", "vllm"),
        ENGINE_INSTALL,
    ),
    "train": _Program(
        "prm_worker.training.train", "train a scorer on what was collected", _TORCH, _TORCH_INSTALL
    ),
    "evaluate": _Program(
        "prm_worker.training.evaluate",
        "judge scorers on questions that they were not trained on",
        _TORCH,
        _TORCH_INSTALL,
    ),
    "calibrate": _Program(
        "prm_worker.training.calibrate",
        "make a scorer's scores probabilities, on what was collected",
        _TORCH,
        _TORCH_INSTALL,
    ),
}
# no argument begins with it: what follows the program's name is the program's own, --help too
_NO_PREFIX = "\0"


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser(
        "scorer",
        help="collect, train, judge and calibrate scorers of your own",
        description="The life of a scorer for a model of your own: collect traces of questions with known "
        "answers, train on them, judge the result on other questions, and serve it with "
        "`thoughtbeam serve --local --model DIR --scorer FILE`.",
        epilog="`thoughtbeam scorer PROGRAM --help` tells what each of them takes.",
    )
    programs = parser.add_subparsers(metavar="PROGRAM", required=True)
    for name, program in _PROGRAMS.items():
        own = programs.add_parser(name, help=program.help, add_help=False, prefix_chars=_NO_PREFIX)
        own.add_argument("arguments", nargs="*", help="of the program; its own --help tells them")
        own.set_defaults(run=run, program=name)


def run(args: argparse.Namespace) -> NoReturn:
    """Becomes the program: signals, output and exit status are then its own."""
    program = _PROGRAMS[args.program]
    missing = [name for name in program.needs if importlib.util.find_spec(name) is None]
    if missing:
        raise LocalSetupError(
            f"scorer {args.program} needs {', '.join(missing)}, not installed here: {program.install}"
        )
    sys.stdout.flush()
    sys.stderr.flush()
    # -P: a folder of the same name in the working directory must not be taken for ours
    os.execv(sys.executable, [sys.executable, "-P", "-m", program.module, *args.arguments])
