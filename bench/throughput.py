"""`python -m bench.throughput`: tokens per second through the whole service, and what capturing costs.

Three comparisons, each of two ways to decode the same 64 traces of the same question:

* service / direct: self_consistency through client, gateway, decoder worker and tree store, against one
  request with n = 64 to vLLM, started as ours is, with no hook of ours;
* capture on / off: the decoder worker's engine, with boundary rows captured and without;
* confidence on / capture off: the same, with a confidence of every token besides.

Machines are noisy and drift. So both ways run again and again, one right after the other, which of them first
is drawn by lot, and what counts is the ratio of the two in each repetition: the median of these, with an
interval that holds the true one with 95 %. Traces are cut at the same length, so that a repetition decodes
64 of them from its start to its end. What the hooks of the capture cost by themselves is measured as well, in
microseconds per step: a difference that small is lost in the noise of the second comparison.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import time
import uuid
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from bench import spying
from bench.asking import Question, load
from bench.report import markdown, quantile, quantile_interval, save
from bench.service import service
from bench.step_hooks import hook_costs
from decoder_worker.engine.base import SamplingSpec
from decoder_worker.engine.vllm_config import engine_arguments
from decoder_worker.engine.vllm_engine import VllmConfig, VllmEngine
from thoughtbeam import AsyncClient
from thoughtbeam.models import BUNDLED_MODEL
from thoughtbeam.runtime.vllm_life import prepare_environment, shut_down_llm, start_llm

TokensOf = Callable[[Question], Awaitable[int]]
_PROFILE_SECONDS = 20


async def _nothing() -> None:
    pass


@dataclass(frozen=True, slots=True)
class Args:
    """traces: at once. tokens: most of each. profile: whether the engine is looked at with py-spy."""

    traces: int
    tokens: int
    repetitions: int
    profile: bool


@dataclass(frozen=True, slots=True)
class Way:
    """One way to decode. prepare: what it needs before, not timed."""

    tokens_of: TokensOf
    prepare: Callable[[], Awaitable[None]] = _nothing

    async def rate(self, question: Question) -> float:
        """Tokens per second."""
        await self.prepare()
        began = time.perf_counter()
        tokens = await self.tokens_of(question)
        return tokens / (time.perf_counter() - began)


@dataclass(frozen=True, slots=True)
class Comparison:
    """Tokens per second of two ways in each repetition, and their ratio."""

    ways: tuple[str, str]
    rates: list[tuple[float, float]] = field(default_factory=list)

    @property
    def ratios(self) -> list[float]:
        return [first / second for first, second in self.rates]

    @property
    def name(self) -> str:
        return " / ".join(self.ways)


async def compare(
    ways: Mapping[str, Way], questions: Sequence[Question], repetitions: int, draw: random.Random
) -> Comparison:
    """The ratio of the first way to the second."""
    one, other = ways
    comparison = Comparison((one, other))
    for number in range(repetitions + 1):
        question = questions[number % len(questions)]
        order = list(ways)
        draw.shuffle(order)
        rates = {name: await ways[name].rate(question) for name in order}
        first, second = (rates[name] for name in comparison.ways)
        if number:  # the one before only warms up
            comparison.rates.append((first, second))
            print(f"{comparison.name}: {first:,.0f} / {second:,.0f} = {first / second:.3f}", flush=True)
    return comparison


def through_service(client: AsyncClient, traces: int, tokens: int) -> Way:
    async def tokens_of(question: Question) -> int:
        result = await client.solve(
            question.text,
            policy="self_consistency",
            parameters={"N": traces},
            answer_mode="integer",
            max_trace_tokens=tokens,
        )
        return result.usage.generated

    return Way(tokens_of)


def through_vllm(llm: Any, tokenizer: Any, sampling: SamplingSpec, traces: int) -> Way:
    from vllm import SamplingParams
    from vllm.sampling_params import RequestOutputKind

    async def tokens_of(question: Question) -> int:
        prompt = tokenizer.encode_chat([{"role": "user", "content": question.text}])
        parameters = SamplingParams(
            n=traces,
            temperature=sampling.temperature,
            top_p=sampling.top_p,
            top_k=sampling.top_k,
            max_tokens=sampling.max_tokens,
            output_kind=RequestOutputKind.FINAL_ONLY,
        )
        tokens = 0
        async for output in llm.generate({"prompt_token_ids": prompt}, parameters, str(uuid.uuid4())):
            tokens += sum(len(trace.token_ids) for trace in output.outputs)
        return tokens

    return Way(tokens_of)


def through_engine(
    engine: VllmEngine, traces: int, most: int, *, capture: bool, confidence: bool = False
) -> Way:
    async def prepare() -> None:
        await engine.set_capture(capture)

    async def tokens_of(question: Question) -> int:
        prompt = engine.tokenizer.encode_chat([{"role": "user", "content": question.text}])
        sampling = replace(engine.info.default_sampling, max_tokens=most, confidence=confidence)
        name = uuid.uuid4().hex
        for number in range(traces):
            await engine.add(f"{name}/{number}", prompt, sampling)
        tokens = running = 0
        running = traces
        async for batch in engine.steps():
            for output in batch.outputs:
                tokens += len(output.tokens)
                running -= output.finish is not None
            if not running:
                break
        return tokens

    return Way(tokens_of, prepare)


async def service_against_direct(endpoint: str, questions: Sequence[Question], args: Args) -> Comparison:
    """The service and stock vLLM, both loaded, one idle while the other works."""
    prepare_environment()
    from vllm.engine.arg_utils import AsyncEngineArgs
    from vllm.platforms import current_platform

    from decoder_worker.engine.tokenizer import HuggingFaceTokenizer

    arguments = engine_arguments(
        VllmConfig(str(BUNDLED_MODEL), slots=args.traces), on_cpu=current_platform.is_cpu()
    )
    del arguments["worker_extension_cls"]
    llm = start_llm(AsyncEngineArgs(**arguments).create_engine_config())
    try:
        async with AsyncClient(endpoint) as client:
            tokenizer = HuggingFaceTokenizer.load(str(BUNDLED_MODEL))
            ways = {
                "service": through_service(client, args.traces, args.tokens),
                "direct": through_vllm(llm, tokenizer, SamplingSpec(max_tokens=args.tokens), args.traces),
            }
            return await compare(ways, questions, args.repetitions, random.Random(0))
    finally:
        await asyncio.to_thread(shut_down_llm, llm)


async def capture_on_against_off(
    questions: Sequence[Question], args: Args
) -> tuple[list[Comparison], list[list[str]]]:
    """The decoder worker's engine alone, with capture and with confidences too; and where its core spends its
    time with capture on."""
    engine = await VllmEngine.start(VllmConfig(str(BUNDLED_MODEL), slots=args.traces))
    try:
        on = through_engine(engine, args.traces, args.tokens, capture=True)
        sure = through_engine(engine, args.traces, args.tokens, capture=True, confidence=True)
        off = through_engine(engine, args.traces, args.tokens, capture=False)
        comparisons = [
            await compare({name: way, "capture off": off}, questions, args.repetitions, random.Random(seed))
            for seed, (name, way) in enumerate({"capture on": on, "confidence on": sure}.items(), 1)
        ]
        if not args.profile:
            return comparisons, []
        await on.prepare()
        return comparisons, await spying.spied(lambda: on.tokens_of(questions[0]), _PROFILE_SECONDS)
    finally:
        await engine.close()


def table_of(comparisons: Sequence[Comparison]) -> str:
    """Rates and ratios."""
    rates = [
        [way, f"{quantile(values, 0.5):,.0f}", f"{min(values):,.0f} – {max(values):,.0f}"]
        for comparison in comparisons
        for way, values in zip(comparison.ways, map(list, zip(*comparison.rates, strict=True)), strict=True)
    ]
    ratios = []
    for comparison in comparisons:
        low, high = quantile_interval(comparison.ratios, 0.5)
        middle = quantile(comparison.ratios, 0.5)
        ratios.append(
            [comparison.name, f"{middle:.3f}", f"{low:.3f} – {high:.3f}", f"{len(comparison.ratios)}"]
        )
    return (
        markdown(["way", "tokens/s, median", "range"], rates)
        + "\n\n"
        + markdown(["ratio", "median", "95 % interval", "repetitions"], ratios)
    )


def main() -> None:
    options = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    options.add_argument("--traces", type=int, default=64)
    options.add_argument("--tokens", type=int, default=320, help="at which a trace is cut")
    options.add_argument("--repetitions", type=int, default=12)
    options.add_argument("--split", default="hard", help="questions: most traces are longer than --tokens")
    options.add_argument("--only", choices=["service", "capture"], help="the first comparison, or the others")
    options.add_argument("--profile", action="store_true", help="also where the time goes, by py-spy")
    options.add_argument("--quick", action="store_true", help="a small run that only shows that it works")
    given = options.parse_args()
    args = Args(given.traces, given.tokens, given.repetitions, given.profile)
    if given.quick:
        args = Args(8, 64, 2, given.profile)
    if args.profile and not spying.available():
        options.error("--profile needs py-spy: pip install py-spy")
    questions = load(given.split, args.repetitions)
    comparisons: list[Comparison] = []
    seen: list[list[str]] = []
    if given.only != "capture":
        with service(slots=args.traces) as endpoint:
            comparisons.append(asyncio.run(service_against_direct(endpoint, questions, args)))
    if given.only != "service":
        # nothing is set up or voted on here, so a repetition may be short, and there can be more of them
        shorter = replace(args, tokens=args.tokens // 2, repetitions=2 * args.repetitions)
        engines, seen = asyncio.run(capture_on_against_off(questions, shorter))
        comparisons += engines
    hooks = {} if given.only == "service" else hook_costs(args.traces)
    table = table_of(comparisons)
    if hooks:
        rows = [[name, f"{cost:.0f}"] for name, cost in hooks.items()]
        table += "\n\n" + markdown([f"capture of {args.traces} traces", "µs per step"], rows)
    if seen:
        table += "\n\n" + markdown(["process", "with capture on: function", "itself", "with its calls"], seen)
    result = {
        **asdict(args),
        "split": given.split,
        "comparisons": {c.name: {"tokens_per_second": c.rates, "ratios": c.ratios} for c in comparisons},
        "hooks_us": hooks,
        "profile": seen,
    }
    name = "throughput" + ("-quick" if given.quick else "") + (f"-{given.only}" if given.only else "")
    path = save(name, result, table)
    print(f"{table}\n\nwritten to {path}")


if __name__ == "__main__":
    main()
