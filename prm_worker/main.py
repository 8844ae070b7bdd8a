"""The prm worker process: loads one scorer and serves it."""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from prm_worker.batcher import Batcher
from prm_worker.scorer_file import Metadata, ScorerFileError, load_scorer
from prm_worker.scorers.base import Scorer
from prm_worker.scoring_service import SERVICE, ScoringService
from thoughtbeam.runtime.log import EventLogger, setup_logging
from thoughtbeam.runtime.rpc import MAX_MESSAGE_BYTES, start_server, stop_on_signals
from thoughtbeam.runtime.tasks import task_group
from thoughtbeam.v1.scoring_pb2_grpc import add_ScorerServiceServicer_to_server

log = EventLogger("prm_worker.main")

STOP_GRACE = 5.0  # seconds for calls that run when the worker is told to stop
# Room in a message for what is not rows: a trace takes less than a hundred bytes of it.
_OVERHEAD_BYTES = 4 * 1024 * 1024


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point of `python -m prm_worker`; returns the exit status."""
    options = _parser().parse_args(argv)
    setup_logging()
    torch.set_num_threads(options.threads)
    try:
        scorer, recorded = load_scorer(options.scorer, options.device)
        trained_for = with_flags(recorded, options.model_fingerprint, options.boundary_rule)
        asyncio.run(serve(options.listen, scorer, trained_for, options.max_rows))
    except (ScorerFileError, MismatchError, OSError) as error:
        log.error("cannot_start", error=error)
        return 1
    return 0


class MismatchError(ValueError):
    """A flag contradicts what a scorer file records."""


def with_flags(recorded: Metadata, model_fingerprint: str, boundary_rule: str) -> Metadata:
    """What a scorer was trained for: as its file records, else as the flags say (empty: not given).

    Raises MismatchError when both say something and differ.
    """
    flags = {"model_fingerprint": model_fingerprint, "boundary_rule": boundary_rule}
    for name, given in flags.items():
        own = getattr(recorded, name)
        if own and given and own != given:
            flag = "--" + name.replace("_", "-")
            raise MismatchError(f"{flag} is {given}, but the scorer file records {own}; leave the flag out")
    return replace(
        recorded,
        model_fingerprint=recorded.model_fingerprint or model_fingerprint,
        boundary_rule=recorded.boundary_rule or boundary_rule,
    )


async def serve(address: str, scorer: Scorer, trained_for: Metadata, max_rows: int) -> None:
    """Serves until SIGTERM or SIGINT. Health is SERVING once a forward pass has been done.

    Raises OSError when the address cannot be bound.
    """
    stop = stop_on_signals()
    batcher = Batcher(scorer, rows_that_fit(max_rows, scorer.hidden_size))
    service = ScoringService(batcher, trained_for)
    server = await start_server(
        address, [lambda server: add_ScorerServiceServicer_to_server(service, server)], [SERVICE]
    )
    async with task_group() as group:
        scoring = group.create_task(batcher.run(), name="batcher")
        await batcher.score(np.zeros((batcher.max_rows, scorer.hidden_size), dtype=np.float32))
        await server.set_serving(True)
        log.info(
            "serving",
            port=server.port,
            kind=scorer.kind,
            hidden_size=scorer.hidden_size,
            model_fingerprint=trained_for.model_fingerprint or "unchecked",
            boundary_rule=trained_for.boundary_rule or "unchecked",
            max_rows=batcher.max_rows,
        )
        await stop.wait()
        log.info("stopping", passes=batcher.passes)
        await server.stop(STOP_GRACE)
        scoring.cancel()


def rows_that_fit(max_rows: int, hidden_size: int) -> int:
    """Rows that one message always holds, in float32, at most max_rows."""
    return max(1, min(max_rows, (MAX_MESSAGE_BYTES - _OVERHEAD_BYTES) // (4 * hidden_size)))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m prm_worker", description="Serves one scorer of hidden states to decoder workers."
    )
    parser.add_argument(
        "--listen", metavar="HOST:PORT", default="127.0.0.1:50552", help="default: %(default)s"
    )
    parser.add_argument("--scorer", metavar="FILE", type=Path, required=True, help="scorer file (.pt)")
    parser.add_argument(
        "--model-fingerprint",
        metavar="F",
        default="",
        help="for a scorer file that does not record it: the model it was trained for (default: not checked)",
    )
    parser.add_argument(
        "--boundary-rule",
        metavar="R",
        default="",
        help="for a scorer file that does not record it: the rule of its positions (default: not checked)",
    )
    parser.add_argument("--threads", type=_positive, default=1, help="CPU threads of one pass (default: 1)")
    parser.add_argument(
        "--max-rows",
        type=_positive,
        default=1024,
        help="rows in one call and one pass (default: %(default)s)",
    )
    parser.add_argument("--device", type=_device, default="cpu", help="cpu, cuda, cuda:1 … (default: cpu)")
    return parser


def _positive(text: str) -> int:
    number = int(text) if text.isdecimal() else 0
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text!r}; it must be a whole number, at least 1")
    return number


def _device(text: str) -> str:
    try:
        device = torch.device(text)
    except RuntimeError as error:
        raise argparse.ArgumentTypeError(f"{text!r} is no device that torch knows") from error
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise argparse.ArgumentTypeError(f"{text!r}; there are {torch.cuda.device_count()} CUDA devices here")
    return text
