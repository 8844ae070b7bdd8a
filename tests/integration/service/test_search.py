"""One question, solved end to end on real vLLM."""

from __future__ import annotations

import asyncio

import pytest
from redis.asyncio import Redis

from decoder_worker.worker import Worker
from tests.integration.gateway.harness import eventually
from tests.integration.service.conftest import SMALL_GAMBIT, Service, working
from thoughtbeam import ResourceExhaustedError, Result
from thoughtbeam.results import NodeState, NodeTransition, Round, Tree, TreeState

MEDIUM = (
    "Start with 654 and work modulo 1000. a) +726 b) *9 c) +523 d) +597 e) +675 f) +746 g) -942. "
    "Report the value after g."
)
EASY = "Start with 723 and work modulo 1000. a) +501 b) -328 c) *3 d) *3. Report the value after d."


def assert_accounts(tree: Tree) -> None:
    """nodes = roots + branches = finished + pruned + cancelled, by the counters and by the nodes."""
    counts = tree.counts
    assert counts.nodes == counts.roots + counts.branches == len(tree.nodes)
    assert counts.nodes == counts.finished + counts.pruned + counts.cancelled
    for state in NodeState:
        if state is not NodeState.UNSPECIFIED:
            assert getattr(counts, state) == sum(node.state is state for node in tree.nodes), state
    assert counts.roots == sum(node.parent is None for node in tree.nodes)


async def test_gambit_answers_and_its_tree_adds_up(service: Service, worker: Worker) -> None:
    result = await service.client.solve(
        MEDIUM, policy="gambit", parameters=SMALL_GAMBIT, answer_mode="integer"
    )
    tree = await service.client.tree(result.tree_id)

    assert result.state is TreeState.SUCCEEDED
    assert result.answer is not None
    assert_accounts(tree)
    assert tree.counts.branches > 0
    assert tree.counts.pruned > 0
    assert result.counts == tree.counts
    assert not result.degraded
    # each token of the tree was generated once, by one node
    assert result.usage.generated == sum(node.unique_tokens for node in tree.nodes)
    # the answer stands on a finished trace, and the path to it is marked
    winning = [node for node in tree.nodes if node.winning]
    assert result.answer.node in {node.number for node in winning}
    by_number = {node.number: node for node in tree.nodes}
    leaf = by_number[result.answer.node]
    assert leaf.state is NodeState.FINISHED
    path = [leaf]
    while (parent := path[-1].parent) is not None:
        path.append(by_number[parent])
    assert winning == sorted(path, key=lambda node: node.number)


async def test_the_store_holds_text_tokens_and_scores_of_every_trace(
    service: Service, worker: Worker
) -> None:
    result = await service.client.solve(
        MEDIUM, policy="gambit", parameters=SMALL_GAMBIT, answer_mode="integer"
    )
    records = {node.node: node for node in await service.store.nodes(result.tree_id)}
    contents = await service.store.contents(result.tree_id, list(records))
    content = dict(zip(records, contents, strict=True))
    decode = service.engine.tokenizer.decode
    for number, record in records.items():
        own = content[number]
        assert len(own.tokens) == record.unique_tokens
        assert own.text == decode(own.tokens)
        positions = [thought.position for thought in own.thoughts]
        assert positions == sorted(set(positions))
        assert all(record.branch_position < p <= record.total_tokens for p in positions)
        if record.state == "finished":
            assert all(thought.score is not None for thought in own.thoughts)
        if record.parent is not None:
            # a branch starts at a scored boundary of its parent
            parent = {t.position: t.score for t in content[record.parent].thoughts}
            assert parent.get(record.branch_position) is not None


async def test_the_feed_tells_every_transition_once_and_in_order(service: Service, worker: Worker) -> None:
    states: dict[int, NodeState] = {}
    rounds: list[Round] = []
    seen: list[str] = []
    final: Result | None = None
    async for item in service.client.stream(
        MEDIUM, policy="gambit", parameters=SMALL_GAMBIT, answer_mode="integer"
    ):
        if isinstance(item, Result):
            final = item
            continue
        seen.append(item.event_id)
        if isinstance(item, NodeTransition):
            assert states.get(item.node) == item.before
            if item.before is None and item.parent is not None:
                assert states[item.parent] is not NodeState.GHOST
            states[item.node] = item.after
        elif isinstance(item, Round):
            rounds.append(item)
    assert final is not None
    assert len(seen) == len(set(seen))
    tree = await service.client.tree(final.tree_id)
    assert states == {node.number: node.state for node in tree.nodes}
    assert [r.number for r in rounds] == list(range(1, tree.counts.rounds + 1))
    assert sum(len(r.branched) for r in rounds) == tree.counts.branches
    assert sum(len(r.pruned) for r in rounds) == tree.counts.pruned


async def test_under_memory_pressure_ghosts_appear_and_none_is_branched(
    service: Service, worker: Worker
) -> None:
    ghosts: set[int] = set()
    final: Result | None = None
    async for item in service.client.stream(MEDIUM, policy="gambit", answer_mode="integer"):
        if isinstance(item, Result):
            final = item
        elif isinstance(item, NodeTransition):
            if item.before is None and item.parent is not None:
                assert item.parent not in ghosts
            if item.after is NodeState.GHOST:
                ghosts.add(item.node)
    assert final is not None
    assert final.answer is not None
    assert final.counts.evictions == len(ghosts) > 0
    assert final.counts.branches <= final.counts.pruned + final.counts.finished
    assert_accounts(await service.client.tree(final.tree_id))


async def test_four_policies_at_once_share_one_worker(service: Service, worker: Worker) -> None:
    asked = {
        "vanilla": {},
        "self_consistency": {"N": 4},
        "best_of_n": {"N": 4},
        "gambit": {**SMALL_GAMBIT, "C": 4, "N_max": 4},
    }
    results = await asyncio.gather(
        *(
            service.client.solve(EASY, policy=policy, parameters=parameters, answer_mode="integer")
            for policy, parameters in asked.items()
        )
    )
    for policy, result in zip(asked, results, strict=True):
        assert result.policy == policy
        assert result.answer is not None
        assert_accounts(await service.client.tree(result.tree_id))


async def test_a_trace_cut_inside_its_thinking_has_no_vote(service: Service, worker: Worker) -> None:
    result = await service.client.solve(
        MEDIUM, policy="self_consistency", parameters={"N": 4}, answer_mode="integer", max_trace_tokens=50
    )
    tree = await service.client.tree(result.tree_id)
    assert result.state is TreeState.SUCCEEDED
    assert result.answer is None
    assert result.votes == ()
    assert [node.finish_reason for node in tree.nodes] == ["length"] * 4
    assert [node.total_tokens for node in tree.nodes] == [50] * 4


async def test_a_token_budget_ends_the_search_with_the_best_answer_so_far(
    service: Service, worker: Worker
) -> None:
    result = await service.client.solve(
        EASY, policy="self_consistency", parameters={"N": 16}, answer_mode="integer", max_tokens=2500
    )
    tree = await service.client.tree(result.tree_id)
    assert result.ended_by == "tokens"
    assert result.state is TreeState.SUCCEEDED
    # one engine step of 16 traces may go beyond
    assert 2500 <= result.usage.generated < 2500 + 16
    assert_accounts(tree)


async def test_cancelling_frees_the_engine_and_keeps_the_accounts(service: Service, worker: Worker) -> None:
    tree_id = ""
    async for item in service.client.stream(MEDIUM, policy="self_consistency", parameters={"N": 128}):
        if isinstance(item, NodeTransition) and item.after is NodeState.LIVE and not tree_id:
            tree_id = (await anext(aiter(service.client.trees()))).id
            cancelled = await service.client.cancel(tree_id)
            assert cancelled.state is TreeState.CANCELLED
            break
    tree = await service.client.tree(tree_id)
    assert tree.state is TreeState.CANCELLED
    assert_accounts(tree)
    assert tree.counts.cancelled > 0

    async def freed() -> bool:
        return worker.accepts_request and await service.engine.block_ids() == {}

    await eventually(freed)


async def test_without_its_prm_worker_a_search_ends_degraded_by_an_unscored_vote(service: Service) -> None:
    async with working(service, name="unscored", scorer="127.0.0.1:1", scorer_deadline=0.5):
        result = await service.client.solve(
            EASY, policy="best_of_n", parameters={"N": 4}, answer_mode="integer"
        )
    assert result.degraded
    assert result.answer is not None
    assert sum(vote.weight for vote in result.votes) == sum(len(vote.nodes) for vote in result.votes)


async def test_a_search_that_was_handed_back_is_resumed_where_it_was(service: Service) -> None:
    stream = aiter(
        service.client.stream(MEDIUM, policy="gambit", parameters=SMALL_GAMBIT, answer_mode="integer")
    )
    before: Tree | None = None
    async with working(service, name="first"):
        async for item in stream:
            if isinstance(item, Round):
                tree_id = (await anext(aiter(service.client.trees()))).id
                break
    before = await service.client.tree(tree_id)
    assert before.state is TreeState.QUEUED
    final: Result | None = None
    async with working(service, name="second"):
        async for item in stream:
            if isinstance(item, Result):
                final = item
    after = await service.client.tree(tree_id)
    assert final is not None
    assert final.answer is not None
    assert after.epoch == 2
    assert after.worker == "second"
    assert_accounts(after)
    old = {node.number: node for node in before.nodes}
    new = {node.number: node for node in after.nodes}
    for number, node in old.items():
        assert new[number].parent == node.parent
        assert new[number].unique_tokens >= node.unique_tokens
        if node.state in (NodeState.FINISHED, NodeState.PRUNED):
            assert new[number].state is node.state


async def test_a_full_store_fails_the_search_and_says_so(service: Service, worker: Worker) -> None:
    async with Redis.from_url(service.redis_url) as redis:
        stream = service.client.stream(
            MEDIUM, policy="gambit", parameters=SMALL_GAMBIT, answer_mode="integer"
        )
        try:
            async for item in stream:
                if isinstance(item, NodeTransition) and item.after is NodeState.LIVE:
                    await redis.config_set("maxmemory", 1)
                    break
            with pytest.raises(ResourceExhaustedError) as failed:
                _ = [item async for item in stream]
        finally:
            await redis.config_set("maxmemory", "1gb")
    assert failed.value.reason == "STORE_FULL"
    tree = await anext(aiter(service.client.trees()))
    assert tree.state is TreeState.FAILED
    assert_accounts(await service.client.tree(tree.id))
    # the next request works
    assert (
        await service.client.solve(EASY, policy="vanilla", answer_mode="integer")
    ).state is TreeState.SUCCEEDED
