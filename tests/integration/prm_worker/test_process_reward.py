"""Scores of a process reward model from a real pooling engine, against a plain forward pass."""

from __future__ import annotations

import asyncio
import warnings
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Any

import grpc
import numpy as np
import numpy.typing as npt
import pytest
from grpc import StatusCode

from prm_worker.process_reward.engine import PoolingEngine
from prm_worker.process_reward.keeper import EngineKeeper
from prm_worker.process_reward.launch import EngineConfig
from prm_worker.process_reward.service import ProcessRewardService
from prm_worker.process_reward.tokenizer import PromptTokenizer
from prm_worker.scoring_service import SERVICE
from tests.process_reward_model import Reference
from thoughtbeam.runtime.rpc import open_channel, start_server
from thoughtbeam.runtime.status import from_rpc_error
from thoughtbeam.v1 import scoring_pb2 as pb
from thoughtbeam.v1.scoring_pb2_grpc import ScorerServiceStub, add_ScorerServiceServicer_to_server

TOLERANCE = 1e-4
CONTEXT = 1024
CHUNK = 128  # the most tokens that the engine computes at once
BLOCK = 32
QUESTION = "What is 6 times 7?"

Floats = npt.NDArray[np.float32]

pytestmark = pytest.mark.timeout(600)  # an engine starts slowly beside others


@dataclass(frozen=True)
class Service:
    stub: Any
    engine: PoolingEngine
    reference: Reference
    tokenizer: PromptTokenizer

    async def scores(self, *traces: pb.TraceText) -> Floats:
        answer = await self.stub.ScoreText(pb.ScoreTextRequest(traces=traces), timeout=120)
        found: Floats = np.frombuffer(answer.scores.data, "<f4")
        assert list(answer.scores.shape) == [len(found)]
        assert answer.scores.dtype == pb.DATA_TYPE_FLOAT32
        return found

    async def refused(self, *traces: pb.TraceText) -> str:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await self.scores(*traces)
        error = from_rpc_error(caught.value)
        assert error.code is StatusCode.INVALID_ARGUMENT
        return error.message

    def length(self, steps: Sequence[str]) -> int:
        """Tokens of a whole prompt."""
        opening = self.tokenizer.opening([("user", QUESTION)], CONTEXT)
        return len(opening) + sum(len(self.tokenizer.text(step, CONTEXT)) + 1 for step in steps)


@pytest.fixture(scope="module")
async def service(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Service]:
    reference = Reference(CONTEXT)
    folder = tmp_path_factory.mktemp("model")
    reference.model.save(folder, reference.tokenizer)
    # so few blocks that two traces of the longest kind do not fit beside each other
    config = EngineConfig(str(folder), dtype="float32", kv_blocks=41, chunk=CHUNK)
    tokenizer = PromptTokenizer.load(config.model)
    keeper = EngineKeeper(lambda: PoolingEngine.start(config))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # vLLM's and torch's own, at import and start
        await keeper.open()
    servicer = ProcessRewardService(tokenizer, keeper, max_texts=64)
    server = await start_server(
        "127.0.0.1:0", [lambda server: add_ScorerServiceServicer_to_server(servicer, server)], [SERVICE]
    )
    async with open_channel(f"127.0.0.1:{server.port}") as channel:
        yield Service(ScorerServiceStub(channel), keeper.engine, reference, tokenizer)
    await server.stop(0)
    await keeper.engine.close()


def trace(steps: Sequence[str], first_step: int = 0, question: str = QUESTION, node: int = 1) -> pb.TraceText:
    message = pb.TraceText.Message(role="user", content=question)
    return pb.TraceText(tree_id="t", node=node, messages=[message], steps=steps, first_step=first_step)


def steps_of(name: str, count: int) -> list[str]:
    """Plain steps that no other name has."""
    return [f"step {number} of {name}, so the {7 * number} is" for number in range(count)]


async def test_scores_are_those_of_a_plain_forward_pass(service: Service) -> None:
    steps = steps_of("plain", 6)
    expected = service.reference.scores(QUESTION, steps)
    assert expected.std() > 100 * TOLERANCE  # else any score would do
    assert await service.scores(trace(steps)) == pytest.approx(expected, abs=TOLERANCE)


async def test_a_trace_beyond_the_chunk_size_is_scored_whole(service: Service) -> None:
    steps = steps_of("long", 24)
    assert service.length(steps) > 4 * CHUNK
    expected = service.reference.scores(QUESTION, steps)
    assert await service.scores(trace(steps)) == pytest.approx(expected, abs=TOLERANCE)


async def test_every_step_has_its_score_whatever_is_written_in_it(service: Service) -> None:
    steps = ["<extra_0>", "", " ", "\n\n", "a<extra_0>b<extra_0>", "", "<|im_end|>\n<|im_start|>user\n", "é🜁"]
    odd = "<extra_0> or <|im_end|>?"
    found = await service.scores(trace(steps, question=odd))
    assert len(found) == len(steps)
    assert ((found >= 0) & (found <= 1)).all()
    # a separator that was written is text: the steps before it are not scored otherwise for it
    other = await service.scores(
        trace(["<extra_0>", "", " ", "\n\n", "else"], question="<extra_0> or <|im_end|>?")
    )
    assert found[:4] == pytest.approx(other[:4], abs=TOLERANCE)
    assert (await service.scores(trace(["", ""]))) == pytest.approx(
        service.reference.scores(QUESTION, ["", ""]), abs=TOLERANCE
    )


async def test_ragged_batches_are_answered_in_their_order(service: Service) -> None:
    lengths = [1, 24, 0, 3, 17, 1, 8]
    traces = [steps_of(f"ragged {node}", length) for node, length in enumerate(lengths)]
    found = await service.scores(*(trace(steps, node=node) for node, steps in enumerate(traces)))
    expected = [service.reference.scores(QUESTION, steps) for steps in traces if steps]
    assert found == pytest.approx(np.concatenate(expected), abs=TOLERANCE)


async def test_more_traces_at_once_than_the_cache_holds_are_scored_right(service: Service) -> None:
    traces = [steps_of(f"crowd {node}", 20) for node in range(12)]
    calls = [service.scores(trace(steps, node=node)) for node, steps in enumerate(traces)]
    for found, steps in zip(await asyncio.gather(*calls), traces, strict=True):
        assert found == pytest.approx(service.reference.scores(QUESTION, steps), abs=TOLERANCE)


async def test_a_growing_trace_is_scored_from_the_cached_prefix(service: Service) -> None:
    steps = steps_of("growing", 20)
    expected = service.reference.scores(QUESTION, steps)
    found = list(await service.scores(trace(steps[:15])))
    for count in range(16, 21):
        before = service.engine.usage.computed
        found += list(await service.scores(trace(steps[:count], first_step=count - 1)))
        new = service.length(steps[:count]) - service.length(steps[: count - 1])
        # the new step, and what its block shares with those before it
        assert service.engine.usage.computed - before < new + BLOCK
    assert found == pytest.approx(expected, abs=TOLERANCE)


async def test_a_branch_reuses_what_it_shares_with_its_parent(service: Service) -> None:
    shared, own = steps_of("parent", 15), steps_of("branch", 2)
    await service.scores(trace([*shared, *steps_of("parent's end", 3)]))
    before = service.engine.usage.computed
    found = await service.scores(trace([*shared, *own], first_step=15, node=2))
    new = service.length([*shared, *own]) - service.length(shared)
    assert service.engine.usage.computed - before < new + BLOCK
    assert found == pytest.approx(service.reference.scores(QUESTION, [*shared, *own])[15:], abs=TOLERANCE)


async def test_a_call_that_is_repeated_gets_the_same_scores(service: Service) -> None:
    steps = steps_of("repeated", 12)
    first = await service.scores(trace(steps))
    for again in (trace(steps), trace(steps, first_step=5), trace(steps[:7], first_step=3)):
        expected = first[again.first_step : len(again.steps)]
        assert await service.scores(again) == pytest.approx(expected, abs=TOLERANCE)


async def test_beyond_the_context_there_are_no_scores(service: Service) -> None:
    steps = steps_of("endless", 60)
    fitting = next(n for n in range(60) if service.length(steps[: n + 1]) > CONTEXT)
    expected = service.reference.scores(QUESTION, steps[:fitting])
    beside = steps_of("beside", 2)
    found = await service.scores(trace(steps), trace(beside, node=2))
    assert found[:fitting] == pytest.approx(expected, abs=TOLERANCE)
    assert np.isnan(found[fitting:60]).all()
    # the others of the call are none the worse
    assert found[60:] == pytest.approx(
        service.reference.scores(QUESTION, steps_of("beside", 2)), abs=TOLERANCE
    )


async def test_a_prompt_may_be_as_long_as_the_context(service: Service) -> None:
    steps = steps_of("brimful", 20)
    steps.append("x" * (CONTEXT - service.length(steps) - 1))
    assert service.length(steps) == CONTEXT
    expected = service.reference.scores(QUESTION, steps)
    assert await service.scores(trace(steps, first_step=20)) == pytest.approx(expected[20:], abs=TOLERANCE)
    steps[-1] += "x"
    assert np.isnan(await service.scores(trace(steps, first_step=20))).all()


async def test_steps_and_questions_of_any_size_are_answered(service: Service) -> None:
    huge = "step <extra_0> " * 1_000_000
    found = await service.scores(trace(["a", huge, "b"]), trace(["a"], question=huge))
    assert np.isnan(found).tolist() == [False, True, True, True]


async def test_a_call_that_is_given_up_leaves_its_room_to_others(service: Service) -> None:
    crowd = [trace(steps_of(f"given up {node}", 24), node=node) for node in range(16)]
    call = asyncio.create_task(service.scores(*crowd))
    await asyncio.sleep(0.05)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    steps = steps_of("after", 24)
    found = await service.scores(trace(steps))
    assert found == pytest.approx(service.reference.scores(QUESTION, steps), abs=TOLERANCE)


async def test_bad_calls_name_the_field(service: Service) -> None:
    good = trace(["a"])
    assert await service.refused() == "traces: are 0; there must be 1 to 64"
    assert await service.refused(*[good] * 65) == "traces: are 65; there must be 1 to 64"
    assert "traces[1].first_step: is 2; it must be at most the number of steps, 1" in await service.refused(
        good, trace(["a"], first_step=2)
    )
    silent = pb.TraceText(tree_id="t", node=1, steps=["a"])
    assert "traces[0].messages: is empty" in await service.refused(silent)
    oracle = pb.TraceText(messages=[pb.TraceText.Message(role="oracle", content="?")], steps=["a"])
    assert "traces[0].messages: are refused by the model's chat template" in await service.refused(oracle)


async def test_it_says_what_it_is_and_scores_no_rows(service: Service) -> None:
    info = await service.stub.GetScorerInfo(pb.GetScorerInfoRequest())
    assert (info.kind, info.hidden_size, info.history_size, info.max_rows) == ("process_reward", 0, 0, 64)
    assert (info.model_fingerprint, info.boundary_rule) == ("", "")
    assert len(info.scorer_id) == 16
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await service.stub.Score(pb.ScoreRequest())
    error = from_rpc_error(caught.value)
    assert (error.code, error.reason) == (StatusCode.FAILED_PRECONDITION, "WRONG_SCORER_KIND")
    assert await service.stub.DropTraces(pb.DropTracesRequest(tree_id="t")) == pb.DropTracesResponse()
