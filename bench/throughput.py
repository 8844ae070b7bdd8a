"""`python -m bench.throughput`: tokens per second through the whole service, and what capturing rows costs.

Two ratios, each of things that take turns in one run, since machines are noisy:

* service / direct: 64 traces of one question by self_consistency through client, gateway, decoder worker
  and tree store, against one request with n = 64 to stock vLLM with the same engine settings and no hook of
  ours;
* capture on / off: 64 traces on the decoder worker's engine, with boundary rows captured and without.
"""

from __future__ import annotations

import argparse
import asyncio
import time
import uuid
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from bench.compare import Question, load
from bench.report import markdown, quantile, save
from bench.service import service
from decoder_worker.engine.base import SamplingSpec
from decoder_worker.engine.vllm_config import engine_arguments, prepare_environment
from decoder_worker.engine.vllm_engine import VllmConfig, VllmEngine
from thoughtbeam import AsyncClient
from thoughtbeam.models import BUNDLED_MODEL

TokensOf = Callable[[Question], Awaitable[int]]


async def rates(ways: Mapping[str, TokensOf], questions: Sequence[Question]) -> dict[str, list[float]]:
    """Tokens per second of every way on every question; the ways take turns."""
    found: dict[str, list[float]] = {name: [] for name in ways}
    for question in questions:
        for name, tokens_of in ways.items():
            began = time.perf_counter()
            tokens = await tokens_of(question)
            found[name].append(tokens / (time.perf_counter() - began))
    return found


def through_service(client: AsyncClient, traces: int) -> TokensOf:
    async def tokens_of(question: Question) -> int:
        result = await client.solve(
            question.text, policy="self_consistency", parameters={"N": traces}, answer_mode="integer"
        )
        return result.usage.generated

    return tokens_of


def through_vllm(llm: Any, tokenizer: Any, sampling: SamplingSpec, traces: int) -> TokensOf:
    from vllm import SamplingParams
    from vllm.sampling_params import RequestOutputKind

    async def tokens_of(question: Question) -> int:
        prompt = tokenizer.encode_chat([{"role": "user", "content": question.text}])
        parameters = SamplingParams(
            n=traces,
            temperature=sampling.temperature,
            top_p=sampling.top_p,
            top_k=sampling.top_k,
            max_tokens=sampling.max_tokens - len(prompt),
            output_kind=RequestOutputKind.FINAL_ONLY,
        )
        tokens = 0
        async for output in llm.generate({"prompt_token_ids": prompt}, parameters, str(uuid.uuid4())):
            tokens += sum(len(trace.token_ids) for trace in output.outputs)
        return tokens

    return tokens_of


def through_engine(engine: VllmEngine, traces: int, *, capture: bool) -> TokensOf:
    async def tokens_of(question: Question) -> int:
        await engine.set_capture(capture)
        prompt = engine.tokenizer.encode_chat([{"role": "user", "content": question.text}])
        sampling = replace(engine.info.default_sampling, max_tokens=engine.info.max_context - len(prompt))
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

    return tokens_of


async def service_against_direct(
    endpoint: str, questions: Sequence[Question], traces: int
) -> dict[str, list[float]]:
    """The service and stock vLLM, both loaded, one idle while the other works."""
    prepare_environment()
    from vllm.engine.arg_utils import AsyncEngineArgs
    from vllm.platforms import current_platform
    from vllm.v1.engine.async_llm import AsyncLLM

    from decoder_worker.engine.tokenizer import HuggingFaceTokenizer

    arguments = engine_arguments(
        VllmConfig(str(BUNDLED_MODEL), slots=traces), on_cpu=current_platform.is_cpu()
    )
    del arguments["worker_extension_cls"]
    llm = AsyncLLM.from_engine_args(AsyncEngineArgs(**arguments, disable_log_stats=True))
    try:
        async with AsyncClient(endpoint) as client:
            tokenizer = HuggingFaceTokenizer.load(str(BUNDLED_MODEL))
            context = llm.model_config.max_model_len
            ways = {
                "direct": through_vllm(llm, tokenizer, SamplingSpec(max_tokens=context), traces),
                "service": through_service(client, traces),
            }
            await rates(ways, questions[:1])  # warms both up
            return await rates(ways, questions)
    finally:
        llm.shutdown()


async def capture_on_against_off(questions: Sequence[Question], traces: int) -> dict[str, list[float]]:
    """The decoder worker's engine alone."""
    engine = await VllmEngine.start(VllmConfig(str(BUNDLED_MODEL), slots=traces))
    try:
        ways = {
            "capture off": through_engine(engine, traces, capture=False),
            "capture on": through_engine(engine, traces, capture=True),
        }
        await rates(ways, questions[:1])
        return await rates(ways, questions)
    finally:
        await engine.close()


def main() -> None:
    options = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    options.add_argument("--traces", type=int, default=64)
    options.add_argument("--questions", type=int, default=8, help="repetitions, each with another question")
    options.add_argument("--split", default="hard")
    args = options.parse_args()
    questions = load(args.split, args.questions)
    with service(slots=args.traces) as endpoint:
        found = asyncio.run(service_against_direct(endpoint, questions, args.traces))
    found |= asyncio.run(capture_on_against_off(questions, args.traces))
    medians = {name: quantile(values, 0.5) for name, values in found.items()}
    ratios = {
        "service / direct": medians["service"] / medians["direct"],
        "capture on / off": medians["capture on"] / medians["capture off"],
    }
    rows = [
        [name, f"{medians[name]:,.0f}", f"{min(values):,.0f} – {max(values):,.0f}"]
        for name, values in found.items()
    ]
    table = markdown(["way", "tokens/s, median", "range"], rows)
    table += "\n\n" + markdown(["ratio", ""], [[name, f"{value:.3f}"] for name, value in ratios.items()])
    path = save(
        "throughput",
        {"traces": args.traces, "split": args.split, "tokens_per_second": found, "ratios": ratios},
        table,
    )
    print(f"{table}\n\nwritten to {path}")


if __name__ == "__main__":
    main()
