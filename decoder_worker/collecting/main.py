"""`python -m decoder_worker.collecting`: runs questions with known answers and stores their traces."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import math
import sys
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from pathlib import Path

from decoder_worker.collecting.questions import MODES, Question, QuestionError, read_questions
from decoder_worker.engine.base import Engine, EngineError, SamplingSpec
from decoder_worker.engine.boundaries import BLANK_LINE, RULES
from decoder_worker.engine.vllm_config import VllmConfig
from decoder_worker.main import start_vllm
from thoughtbeam.runtime.arguments import whole
from thoughtbeam.runtime.log import setup_logging
from thoughtbeam.runtime.scorer_dataset import DatasetError, Manifest, Origin
from thoughtbeam.runtime.signals import ending_at_once, stop_on_signals

FAILED, BAD_INPUT, INTERRUPTED = 1, 2, 130  # exit statuses

_DESCRIPTION = (
    "Runs questions with known answers on a model and stores, for every trace, the hidden rows of its "
    "thought boundaries and whether its final answer is right: what a scorer is trained on. A run that was "
    "interrupted goes on where it stopped when it is started again with the same --out."
)


def parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="thoughtbeam scorer collect", description=_DESCRIPTION, allow_abbrev=False
    )
    add = parser.add_argument
    add("--model", required=True, metavar="DIR", help="Hugging Face directory or name of the model")
    add(
        "--questions",
        required=True,
        nargs="+",
        type=Path,
        metavar="FILE",
        help='JSON lines with "question" and "answer" and, if wanted, "id"',
    )
    add("--out", required=True, type=Path, metavar="DIR", help="directory of the data set")
    add("--traces", type=whole(1), default=4, help="independent traces of each question (default 4)")
    add(
        "--siblings",
        type=whole(0),
        default=2,
        help="branches of each question, from random boundaries of its traces (default 2)",
    )
    add(
        "--limit",
        type=whole(0),
        default=0,
        help="take only so many questions, a random sample of all lists; 0: all (default)",
    )
    add(
        "--answer-mode",
        choices=MODES,
        default="boxed",
        help="how answers are read (default boxed)",
    )
    add("--answer-regex", metavar="PATTERN", help="for the answer mode regex")
    add(
        "--boundary-rule",
        choices=RULES,
        default=BLANK_LINE,
        help=f"where thoughts end (default {BLANK_LINE})",
    )
    sampling = parser.add_argument_group("sampling", "default: what the model recommends")
    sampling.add_argument("--temperature", type=_number(least=0.0))
    sampling.add_argument("--top-p", type=_number(above=0.0, most=1.0), help="above 0, at most 1")
    sampling.add_argument("--top-k", type=whole(0), help="0: off")
    sampling.add_argument("--max-tokens", type=whole(1), help="of a trace (default: what the context holds)")
    sampling.add_argument(
        "--seed", type=whole(0), default=0, help="of the engine and of the branches' places"
    )
    engine = parser.add_argument_group("engine", "as the decoder worker's; serve with the same dtype")
    engine.add_argument("--slots", type=whole(1), default=64, help="traces decoded at once (default 64)")
    engine.add_argument("--max-context", type=whole(0), default=0, help="tokens; 0: the model's")
    engine.add_argument(
        "--dtype", choices=("auto", "float32", "float16", "bfloat16"), default="auto", help="default auto"
    )
    engine.add_argument("--kv-blocks", type=whole(0), default=0, help="0: what memory allows")
    engine.add_argument("--block-size", type=whole(0), default=0, help="tokens; 0: the engine's default")
    engine.add_argument(
        "--gpu-memory", type=_number(above=0.0, most=1.0), default=0.9, help="share (default 0.9)"
    )
    engine.add_argument("--tensor-parallel", type=whole(1), default=1, help="GPUs that share the model")
    return parser


async def collect(
    options: argparse.Namespace,
    questions: Sequence[Question],
    start_engine: Callable[[VllmConfig], Awaitable[Engine]] = start_vllm,
) -> int:
    """Collects the questions; returns the exit status. Raises EngineError, DatasetError, OSError."""
    # heavy imports wait until the options are known to be good
    from decoder_worker.answers.equivalence import Equivalence
    from decoder_worker.collecting.collector import Collector, CollectorConfig
    from decoder_worker.collecting.progress import Progress
    from thoughtbeam.runtime.scorer_dataset_writer import DatasetWriter

    engine = await start_engine(_engine_config(options))
    async with contextlib.AsyncExitStack() as cleanup:
        cleanup.push_async_callback(engine.close)
        stop = stop_on_signals()
        sampling = _sampling(options, engine)
        writer = cleanup.enter_context(DatasetWriter(options.out, _origin(options, engine, sampling)))
        equivalence = await cleanup.enter_async_context(Equivalence())
        config = CollectorConfig(
            traces=options.traces,
            siblings=options.siblings,
            sampling=sampling,
            answer_mode=options.answer_mode,
            answer_regex=options.answer_regex,
            seed=options.seed,
        )
        collector = Collector(engine, writer, equivalence, config)
        collecting = asyncio.ensure_future(collector.collect(questions, Progress()))
        stopping = asyncio.ensure_future(stop.wait())
        await asyncio.wait([collecting, stopping], return_when=asyncio.FIRST_COMPLETED)
        stopping.cancel()
        interrupted = not collecting.done()
        if interrupted:
            collecting.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await collecting
        _say_the_end(writer.manifest, questions, options.out, interrupted)
        if interrupted:
            return INTERRUPTED
        return 0 if collector.tally.done else FAILED


def _say_the_end(manifest: Manifest, questions: Sequence[Question], out: Path, interrupted: bool) -> None:
    done = sum(question.key in manifest.questions for question in questions)
    traces = sum(shard.traces for shard in manifest.shards)
    right = sum(shard.right for shard in manifest.shards)
    thoughts = sum(shard.thoughts for shard in manifest.shards)
    in_all = f"in all {traces} traces ({right} right), {thoughts} thoughts"
    print(f"{out}: {done} of {len(questions)} questions; {in_all}", file=sys.stderr)
    # the data set may have those of other lists too, which the same command would not try again
    if failed := [manifest.failed[question.key] for question in questions if question.key in manifest.failed]:
        print(f"{len(failed)} questions failed; run the same command to try them again:", file=sys.stderr)
        for message in failed:
            print(f"  {message}", file=sys.stderr)
    if interrupted:
        print("interrupted; run the same command to go on", file=sys.stderr)


def _engine_config(options: argparse.Namespace) -> VllmConfig:
    return VllmConfig(
        model=options.model,
        served_name=Path(options.model).name,
        dtype=options.dtype,
        slots=options.slots,
        max_context=options.max_context,
        kv_blocks=options.kv_blocks,
        block_size=options.block_size,
        boundary_rule=options.boundary_rule,
        gpu_memory=options.gpu_memory,
        tensor_parallel=options.tensor_parallel,
        seed=options.seed,
    )


def _sampling(options: argparse.Namespace, engine: Engine) -> SamplingSpec:
    given = {name: getattr(options, name) for name in ("temperature", "top_p", "top_k", "max_tokens")}
    default = replace(engine.info.default_sampling, max_tokens=engine.info.max_context - 1)
    return replace(default, **{name: value for name, value in given.items() if value is not None})


def _origin(options: argparse.Namespace, engine: Engine, sampling: SamplingSpec) -> Origin:
    info = engine.info
    return Origin(
        model=info.model,
        fingerprint=info.fingerprint,
        engine_version=info.version,
        boundary_rule=info.boundary_rule,
        hidden_size=info.hidden_size,
        sampling={name: getattr(sampling, name) for name in ("temperature", "top_p", "top_k", "max_tokens")},
        traces=options.traces,
        siblings=options.siblings,
        answer_mode=options.answer_mode,
        answer_regex=options.answer_regex or "",
    )


def _number(
    *, least: float = -math.inf, above: float = -math.inf, most: float = math.inf
) -> Callable[[str], float]:
    """Reads a finite number of a range."""
    bounds = {"at least": least, "above": above, "at most": most}
    allowed = ", ".join(f"{word} {bound:g}" for word, bound in bounds.items() if math.isfinite(bound))

    def read(text: str) -> float:
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        if not (math.isfinite(value) and above < value and least <= value <= most):
            raise argparse.ArgumentTypeError(f"is {text!r}; must be a number {allowed}")
        return value

    return read


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs until everything is collected, or SIGINT or SIGTERM; returns the exit status."""
    options = parser().parse_args(arguments)
    setup_logging("warning")
    try:
        with ending_at_once():
            questions = read_questions(
                options.questions, options.answer_mode, options.answer_regex, options.limit
            )
            return asyncio.run(collect(options, questions))
    except (QuestionError, DatasetError) as error:
        print(f"thoughtbeam scorer collect: {error}", file=sys.stderr)
        return BAD_INPUT
    except (EngineError, OSError) as error:
        print(f"thoughtbeam scorer collect: {error}", file=sys.stderr)
        return FAILED
