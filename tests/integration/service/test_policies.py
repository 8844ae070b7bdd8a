"""The policies of the papers on real vLLM: each solves a question, and acts where its definition does."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any

import pytest

from decoder_worker.policies import POLICIES
from decoder_worker.worker import Worker
from tests.integration.service.conftest import SMALL_GAMBIT, Service
from tests.integration.service.test_search import EASY, MEDIUM, assert_accounts
from thoughtbeam import Result
from thoughtbeam.results import NodeState, NodeTransition, Round, Tree, TreeState

SOLVED = "Start with 734 and work modulo 1000. a) *2 b) *7 c) -545 d) *8. Report the value after d."
ASKED: dict[str, dict[str, Any]] = {
    "vanilla": {},
    "self_consistency": {"N": 8},
    "best_of_n": {"N": 8},
    "gambit": SMALL_GAMBIT,
    "sart": {"N": 8, "M": 3, "alpha": 0.55, "interval": 40},
    "sart_no_prune": {"N": 8, "M": 3},
    "step": {"N": 24, "high_water": 0.6},
    "rebase": {"W": 8},
}


@dataclass
class Seen:
    """What the feed told. lives: how often a trace came to the engine. held: how often one was held."""

    lives: int = 0
    held: int = 0
    states: dict[int, NodeState] = field(default_factory=dict)
    born_of: list[NodeState] = field(default_factory=list)
    rounds: list[Round] = field(default_factory=list)

    def tell(self, item: object) -> None:
        if isinstance(item, NodeTransition):
            assert self.states.get(item.node) == item.before
            if item.before is None and item.parent is not None:
                self.born_of.append(self.states[item.parent])
            self.states[item.node] = item.after
            self.lives += item.after is NodeState.LIVE
            self.held += item.after is NodeState.HELD
        elif isinstance(item, Round):
            self.rounds.append(item)


async def solved(service: Service, question: str, policy: str) -> tuple[Result, Tree, Seen]:
    seen, result = Seen(), None
    async for item in service.client.stream(
        question, policy=policy, parameters=ASKED[policy], answer_mode="integer"
    ):
        seen.tell(item)
        if isinstance(item, Result):
            result = item
    assert result is not None
    assert result.state is TreeState.SUCCEEDED
    assert result.answer is not None
    assert not result.degraded
    tree = await service.client.tree(result.tree_id)
    assert_accounts(tree)
    assert seen.states == {node.number: node.state for node in tree.nodes}
    assert result.usage.generated == sum(node.unique_tokens for node in tree.nodes)
    return result, tree, seen


def assert_acted(policy: str, tree: Tree, seen: Seen) -> None:
    counts = tree.counts
    match policy:
        case "gambit":
            assert counts.branches > 0
            assert counts.pruned > 0
        case "sart":
            assert counts.pruned > 0
            assert counts.finished >= 3 or counts.finished + counts.pruned == 8
            assert seen.rounds
        case "sart_no_prune":
            assert counts.pruned == counts.branches == 0
            assert counts.finished >= 3
            assert counts.cancelled > 0
        case "step":
            assert counts.pruned > 0
            assert counts.branches == counts.evictions == 0
        case "rebase":
            assert counts.branches > 0
            assert counts.pruned > 0
            assert seen.held > counts.nodes
            assert set(seen.born_of) == {NodeState.HELD}
        case _:
            assert counts.finished == counts.nodes


@pytest.mark.parametrize("policy", ASKED)
async def test_each_policy_solves_a_question_and_acts(service: Service, worker: Worker, policy: str) -> None:
    _, tree, seen = await solved(service, MEDIUM, policy)
    assert_acted(policy, tree, seen)


@pytest.mark.parametrize("policy", POLICIES)
async def test_each_policy_finds_the_right_answer(service: Service, worker: Worker, policy: str) -> None:
    # nearly every trace is right at this temperature: what could be wrong is what was made of the traces
    parameters = {**ASKED, "deepconf": {"N": 8, "warmup_traces": 4}, "slim_sc": {"N": 8}}[policy]
    result = await service.client.solve(
        SOLVED, policy=policy, parameters=parameters, answer_mode="integer", temperature=0.2
    )
    assert result.text == "848"


async def test_four_of_them_at_once_share_one_worker(service: Service, worker: Worker) -> None:
    policies = ["sart", "rebase", "sart_no_prune", "gambit"]
    found = await asyncio.gather(*(solved(service, MEDIUM, policy) for policy in policies))
    for policy, (result, tree, seen) in zip(policies, found, strict=True):
        assert result.policy == policy
        assert_acted(policy, tree, seen)
    assert await service.engine.block_ids() == {}


async def test_rebase_shares_kv_and_keeps_nothing_beyond_a_boundary(service: Service, worker: Worker) -> None:
    result, tree, seen = await solved(service, EASY, "rebase")
    numbers = [node.number for node in tree.nodes]
    contents = await service.store.contents(result.tree_id, numbers)
    for node, content in zip(tree.nodes, contents, strict=True):
        if node.state is NodeState.PRUNED:
            assert content.thoughts[-1].position == node.total_tokens
    # Everything fits here, so that what a held trace had is still in the cache when it goes on, or a branch
    # of it does: but for the last block, of which at most all tokens are computed again.
    again = seen.lives - tree.counts.roots
    print(f"{again} adds, {result.usage.recomputed} tokens again, {result.usage.generated} generated")
    assert again > 8
    assert result.usage.recomputed <= again * service.engine.info.block_size


async def test_gambits_ghosts_come_back_when_there_is_room(service: Service, worker: Worker) -> None:
    asked = {"revive_ghosts": True, "revive_interval": 4, "revive_margin": 0.05, "high_water": 0.7}
    seen, revived, result = Seen(), 0, None
    async for item in service.client.stream(MEDIUM, policy="gambit", parameters=asked, answer_mode="integer"):
        if isinstance(item, NodeTransition):
            revived += item.before is NodeState.GHOST and item.after is NodeState.PENDING
        seen.tell(item)
        if isinstance(item, Result):
            result = item
    assert result is not None
    assert result.answer is not None
    assert result.counts.evictions > 0
    assert revived > 0
    tree = await service.client.tree(result.tree_id)
    assert_accounts(tree)
    assert result.usage.generated == sum(node.unique_tokens for node in tree.nodes)
    # and each is written as its tokens say, over all its lives
    contents = await service.store.contents(result.tree_id, [node.number for node in tree.nodes])
    for node, content in zip(tree.nodes, contents, strict=True):
        assert len(content.tokens) == node.unique_tokens
        assert content.text == service.engine.tokenizer.decode(content.tokens)
