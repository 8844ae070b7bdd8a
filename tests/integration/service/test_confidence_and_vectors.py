"""What policies ask for beyond scores, on real vLLM: confidences of tokens, vectors of thoughts."""

from __future__ import annotations

import math

import pytest

from decoder_worker.worker import Worker
from tests.integration.service.conftest import Service, working
from tests.integration.service.test_search import MEDIUM, assert_accounts
from thoughtbeam.results import NodeState, TreeState


async def test_deepconf_online_stops_unsure_traces(service: Service, worker: Worker) -> None:
    parameters = {"N": 16, "warmup_traces": 8, "window": 32, "tau": 1.0, "consensus_traces": 16}
    result = await service.client.solve(
        MEDIUM, policy="deepconf", parameters=parameters, answer_mode="integer"
    )
    tree = await service.client.tree(result.tree_id)
    assert result.state is TreeState.SUCCEEDED
    assert result.answer is not None
    assert_accounts(tree)
    assert tree.counts.nodes == 16
    assert tree.counts.pruned > 0
    assert all(node.number > 8 for node in tree.nodes if node.state is NodeState.PRUNED)
    contents = await service.store.contents(result.tree_id, [node.number for node in tree.nodes])
    assert all(len(content.confidences) == len(content.tokens) for content in contents)
    values = [confidence for content in contents for confidence in content.confidences]
    assert 1 < min(values) < max(values) < 60
    # a person sees those of the thoughts
    trace = await service.client.trace(result.tree_id, result.answer.node)
    assert trace.thoughts
    assert all(thought.confidence is not None for thought in trace.thoughts)


async def test_the_models_confidence_scores_thoughts_without_a_prm_worker(service: Service) -> None:
    async with working(service, scorer="127.0.0.1:1"):
        result = await service.client.solve(
            MEDIUM, policy="gambit", scorer="confidence", answer_mode="integer", parameters={"C": 12, "K": 3}
        )
    assert result.state is TreeState.SUCCEEDED
    assert result.answer is not None
    assert (result.scorer, result.degraded) == ("confidence", False)
    tree = await service.client.tree(result.tree_id)
    assert_accounts(tree)
    assert tree.counts.branches > 0
    trace = await service.client.trace(result.tree_id, result.answer.node)
    assert trace.thoughts
    for thought in trace.thoughts:
        assert thought.score is not None
        assert thought.confidence is not None
        assert thought.score == pytest.approx(1 - math.log(20) / thought.confidence, abs=1e-5)


@pytest.mark.parametrize("pruning", ["diversity", "random"])
async def test_slim_sc_prunes_traces_that_think_the_same(
    service: Service, worker: Worker, pruning: str
) -> None:
    parameters = {"N": 12, "start_after": 1, "threshold": 0.9, "shortest": 10, "pruning": pruning}
    result = await service.client.solve(
        MEDIUM, policy="slim_sc", parameters=parameters, answer_mode="integer"
    )
    tree = await service.client.tree(result.tree_id)
    assert result.state is TreeState.SUCCEEDED
    assert result.answer is not None
    assert not result.degraded
    assert_accounts(tree)
    assert tree.counts.pruned > 0
    assert tree.counts.finished >= 1
