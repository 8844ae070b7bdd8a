"""How changes gather into numbered batches, and under which number a batch is sent again."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

import pytest

from decoder_worker import patience, tree_log
from decoder_worker.tree_log import TreeLog
from decoder_worker.tree_view import Trace, TreeView
from tree_store.errors import StaleEpochError, StoreUnavailableError
from tree_store.model import Batch, Failure, NodeState, Outcome, RoundRecord, Thought, TreeState

LIVE, FINISHED, PENDING = NodeState.LIVE, NodeState.FINISHED, NodeState.PENDING


@dataclass(eq=False)
class Recorder:
    """A tree store that notes what it is sent. away: so many calls fail, applied or not. gate: closed, a call
    hangs."""

    calls: list[tuple[int, Batch]] = field(default_factory=list)
    ended: list[TreeState] = field(default_factory=list)
    requeued: int = 0
    away: int = 0
    gate: asyncio.Event = field(default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        self.gate.set()

    @property
    def numbers(self) -> list[int]:
        return [number for number, _ in self.calls]

    async def commit(self, tree_id: str, epoch: int, seq: int, batch: Batch) -> None:
        self.calls.append((seq, batch))
        await self.gate.wait()
        if self.away:
            self.away -= 1
            raise StoreUnavailableError("away")

    async def finish(
        self,
        tree_id: str,
        epoch: int,
        seq: int,
        batch: Batch,
        state: TreeState,
        outcome: Outcome | None,
        failure: Failure | None,
    ) -> None:
        await self.commit(tree_id, epoch, seq, batch)
        self.ended.append(state)

    async def requeue(self, tree_id: str, epoch: int) -> None:
        self.requeued += 1


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tree_log, "WRITE_PAUSE_SECONDS", 0)
    monkeypatch.setattr(patience, "RETRY_SECONDS", 0)


class Scene:
    """A log with its tree."""

    def __init__(self) -> None:
        self.store = Recorder()
        self.log = TreeLog(self.store, "t", 1)
        self.view = TreeView()

    def root(self) -> Trace:
        trace = self.view.add_root()
        self.log.moved(trace)
        return trace

    def move(self, trace: Trace, to: NodeState, reason: str = "") -> None:
        self.view.move(trace, to)
        self.log.moved(trace, reason)

    async def written(self, calls: int) -> None:
        async with asyncio.timeout(10):
            while len(self.store.calls) < calls:  # noqa: ASYNC110 - nothing announces it
                await asyncio.sleep(0)


async def test_what_gathers_goes_into_one_batch_and_batches_count_from_one() -> None:
    scene = Scene()
    running = asyncio.create_task(scene.log.run())
    # given a node that is born, lives, and passes a boundary between two writes
    trace = scene.root()
    scene.move(trace, LIVE)
    scene.view.append_tokens(trace, [5, 6])
    scene.log.checkpoint(trace, [5, 6], "so\n\n")
    scene.log.thought(trace, Thought(2, 0.5))
    scene.log.fields(generated=2)
    await scene.written(1)
    # and ends in the next
    scene.view.append_tokens(trace, [7])
    scene.log.checkpoint(trace, [7], " 42")
    trace.finish_reason, trace.answer = "stop", "42"
    scene.move(trace, FINISHED, "stop")
    await scene.written(2)
    scene.log.close()
    await running
    assert scene.store.numbers == [1, 2]
    [born], [end] = (batch.nodes for _, batch in scene.store.calls)
    assert (born.before, born.path) == (None, (PENDING, LIVE))
    assert (born.tokens, born.text, born.thoughts) == ((5, 6), "so\n\n", (Thought(2, 0.5),))
    assert scene.store.calls[0][1].fields == {"generated": "2"}
    assert (end.before, end.path, end.reason) == (LIVE, (FINISHED,), "stop")
    assert (end.tokens, end.text, end.thoughts) == ((7,), " 42", ())
    assert (end.fields["answer"], end.fields["finish_order"], end.fields["unique_tokens"]) == ("42", "1", "3")


async def test_nothing_is_written_while_nothing_changes() -> None:
    scene = Scene()
    running = asyncio.create_task(scene.log.run())
    scene.root()
    await scene.written(1)
    for _ in range(50):
        await asyncio.sleep(0)
    scene.log.close()
    await running
    assert scene.store.numbers == [1]


async def test_a_batch_keeps_its_number_until_it_is_acknowledged() -> None:
    scene = Scene()
    scene.store.away = 3
    running = asyncio.create_task(scene.log.run())
    trace = scene.root()
    await scene.written(2)
    scene.move(trace, LIVE)  # while the first is still under way
    await scene.written(5)
    scene.log.close()
    await running
    assert scene.store.numbers == [1, 1, 1, 1, 2]
    sent = [batch for _, batch in scene.store.calls]
    assert sent[0] is sent[1] is sent[2] is sent[3]
    assert [node.path for node in sent[4].nodes] == [(LIVE,)]
    assert sent[4].nodes[0].before is PENDING


async def test_rounds_and_the_last_policy_state_go_with_the_batch() -> None:
    scene = Scene()
    dumped: list[str] = []

    def dump(text: str) -> str:
        dumped.append(text)
        return text

    running = asyncio.create_task(scene.log.run())
    held = [RoundRecord(number, 0, 0, 0, 0, 0.0, (), ()) for number in (1, 2)]
    for record in held:
        scene.log.round(record)
        scene.log.policy_state(lambda number=record.number: dump(f"state {number}"))
    await scene.written(1)
    scene.log.close()
    await running
    [(_, batch)] = scene.store.calls
    assert batch.rounds == tuple(held)
    assert batch.policy_state == "state 2"
    assert dumped == ["state 2"]  # one that nobody will read is not made


async def test_the_end_takes_the_next_number_and_the_rest() -> None:
    scene = Scene()
    running = asyncio.create_task(scene.log.run())
    trace = scene.root()
    scene.move(trace, LIVE)
    await scene.written(1)
    scene.log.close()
    await running
    scene.move(trace, FINISHED)
    scene.log.winner(trace)
    scene.store.away = 1
    await scene.log.finish(TreeState.SUCCEEDED, Outcome(answer=None))
    assert scene.store.numbers == [1, 2, 2]
    assert scene.store.ended == [TreeState.SUCCEEDED]
    [end] = scene.store.calls[-1][1].nodes
    assert (end.path, end.fields["winning"]) == ((FINISHED,), "1")


async def test_a_hand_back_sends_again_what_was_cut_short_and_then_the_rest() -> None:
    scene = Scene()
    running = asyncio.create_task(scene.log.run())
    trace = scene.root()
    scene.store.gate.clear()
    await scene.written(1)
    # when the worker stops while the reply is still to come
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    scene.move(trace, LIVE)
    scene.store.gate.set()
    await scene.log.hand_back()
    assert scene.store.numbers == [1, 1, 2]
    assert scene.store.calls[0][1] is scene.store.calls[1][1]
    assert [node.path for node in scene.store.calls[2][1].nodes] == [(LIVE,)]
    assert scene.store.requeued == 1


async def test_a_hand_back_with_nothing_to_write_only_returns_the_tree() -> None:
    scene = Scene()
    await scene.log.hand_back()
    assert scene.store.calls == []
    assert scene.store.requeued == 1


async def test_a_node_that_an_earlier_owner_wrote_starts_from_what_is_stored() -> None:
    scene = Scene()
    trace = Trace(number=1, parent=None, state=PENDING)
    scene.view.restore(trace)
    scene.log.restore(trace, LIVE)
    scene.log.moved(trace, "resumed")
    await scene.log.hand_back()
    [(_, batch)] = scene.store.calls
    [change] = batch.nodes
    assert (change.before, change.path, change.reason) == (LIVE, (PENDING,), "resumed")


async def test_a_tree_that_has_another_owner_ends_the_log(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene()

    async def stale(*arguments: object) -> None:
        raise StaleEpochError("epoch 2")

    monkeypatch.setattr(scene.store, "commit", stale)
    scene.root()
    with pytest.raises(StaleEpochError):
        await scene.log.run()


async def test_the_feed_tells_of_a_branch_before_its_parent_is_gone() -> None:
    scene = Scene()
    parent = scene.root()
    scene.view.move(parent, LIVE)
    scene.log.moved(parent)
    scene.view.append_tokens(parent, range(4))
    parent.thoughts.append(Thought(4))
    scene.view.set_score(parent, 0, 0.5)
    scene.log.moved(scene.view.add_branch(parent))
    scene.view.move(parent, NodeState.GHOST)
    scene.log.moved(parent)

    await scene.log.finish(TreeState.SUCCEEDED, Outcome(None))

    told = [
        (change.node, state)
        for _, batch in scene.store.calls
        for change in batch.nodes
        for state in change.path
    ]
    assert told == [(1, PENDING), (1, LIVE), (2, PENDING), (1, NodeState.GHOST)]


async def test_a_tournament_is_one_batch_whatever_was_noted_before_it() -> None:
    scene = Scene()
    first, second = scene.root(), scene.root()
    for trace in (first, second):
        scene.view.move(trace, LIVE)
        scene.log.moved(trace)
    record = RoundRecord(1, 2, 2, 2, 0, 0.1, (2, 1), ())
    scene.log.round(record)
    for trace in (second, first):
        scene.view.move(trace, NodeState.PRUNED)
        scene.log.moved(trace)

    await scene.log.finish(TreeState.SUCCEEDED, Outcome(None))

    last = scene.store.calls[-1][1]
    assert last.rounds == (record,)
    assert [(change.node, change.path) for change in last.nodes] == [
        (2, (NodeState.PRUNED,)),
        (1, (NodeState.PRUNED,)),
    ]


async def test_batches_that_wait_are_written_at_once_and_an_end_ends_the_pause(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(tree_log, "WRITE_PAUSE_SECONDS", 3600)
    scene = Scene()
    # given two tournaments, which are batches of their own, behind what was noted before them
    trace = scene.root()
    for number in (1, 2):
        scene.log.round(RoundRecord(number, 2, 1, 1, 0, 0.1, (), ()))
        scene.move(trace, LIVE if number == 1 else FINISHED)
    running = asyncio.create_task(scene.log.run())

    # the last one may still gather something
    await scene.written(2)
    scene.log.close()

    async with asyncio.timeout(10):
        await running
    assert scene.store.numbers == [1, 2]


async def test_a_reason_is_told_of_the_move_that_it_belongs_to() -> None:
    scene = Scene()
    trace = scene.root()
    scene.move(trace, LIVE)
    scene.move(trace, NodeState.GHOST, "pressure")
    scene.move(trace, PENDING, "revived")
    scene.move(trace, LIVE)
    await scene.log.hand_back()
    moved = [(change.path, change.reason) for _, batch in scene.store.calls for change in batch.nodes]
    assert moved == [
        ((PENDING, LIVE, NodeState.GHOST), "pressure"),
        ((PENDING,), "revived"),
        ((LIVE,), ""),
    ]
