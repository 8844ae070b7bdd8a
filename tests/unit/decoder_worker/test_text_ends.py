"""Where the thoughts end in the text of their nodes: enough to put any trace's text together from its
ancestors', also across a change of workers; and confidences that stay with their tokens."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from decoder_worker.embedding.queue import ThoughtText
from decoder_worker.engine.base import HiddenRow, SamplingSpec, TraceOutput
from decoder_worker.policies.base import Action, Branch, Evict, Observation, Policy, Prune, SpawnRoot, Step
from decoder_worker.policies.gambit import Gambit, GambitState
from decoder_worker.policies.gambit_parameters import GambitParameters
from decoder_worker.resume import resume
from decoder_worker.scoring.client import BoundaryRow, ScoredRow
from decoder_worker.search import Search
from decoder_worker.spec import SearchSpec
from decoder_worker.tree_log import TreeLog
from decoder_worker.tree_view import Trace
from tests.unit.engine.test_detokenizer import TOKENIZERS
from tree_store.model import Batch, NodeContent, NodeRecord, NodeState, TreeState
from tree_store.packing import pack_thoughts, unpack_thoughts

PROMPT = (1, 2, 3)
INCOMPLETE = "\N{REPLACEMENT CHARACTER}"


@dataclass(eq=False)
class Kept:
    """What a tree store keeps of the batches that it is sent, as far as a search reads it back."""

    batches: list[Batch] = field(default_factory=list)

    async def commit(self, tree_id: str, epoch: int, seq: int, batch: Batch) -> None:
        self.batches.append(batch)

    async def requeue(self, tree_id: str, epoch: int) -> None: ...

    async def policy_state(self, tree_id: str) -> str | None:
        return None

    @property
    def count(self) -> int:
        return len({change.node for batch in self.batches for change in batch.nodes})

    async def nodes(self, tree_id: str, first: int, count: int) -> list[NodeRecord]:
        return [self.node(number) for number in range(first, min(first + count, self.count + 1))]

    async def contents(self, tree_id: str, nodes: Sequence[int]) -> list[NodeContent]:
        return [self.content(number) for number in nodes]

    def node(self, number: int) -> NodeRecord:
        changes = [c for batch in self.batches for c in batch.nodes if c.node == number]
        path = [state for change in changes for state in change.path]
        return NodeRecord(
            node=number,
            state=path[-1],
            parent=changes[0].parent,
            branch_position=changes[0].branch_position,
            mean_score=None,
            thoughts=0,
            unique_tokens=0,
            total_tokens=0,
            finish_reason="",
            finish_order=None,
            answer=None,
            winning=False,
            evictions=0,
        )

    def content(self, number: int) -> NodeContent:
        changes = [c for batch in self.batches for c in batch.nodes if c.node == number]
        return NodeContent(
            tuple(token for change in changes for token in change.tokens),
            "".join(change.text for change in changes),
            unpack_thoughts(b"".join(pack_thoughts(change.thoughts) for change in changes)),
            tuple(confidence for change in changes for confidence in change.confidences),
        )

    def inherited(self, number: int) -> bytes:
        """Text up to where the node's own begins."""
        node = self.node(number)
        if node.parent is None:
            return b""
        parent = self.content(node.parent)
        end = next(t.text_end for t in parent.thoughts if t.position == node.branch_position)
        return self.inherited(node.parent) + parent.text.encode()[:end]


class Obedient(Gambit):
    """Does what it is told, when it is told."""

    def __init__(self, orders: list[Action]) -> None:
        super().__init__(GambitParameters())
        self.orders = orders

    def step(self, state: GambitState, view: Any, observation: Observation) -> Step[GambitState]:
        actions, self.orders[:] = tuple(self.orders), []
        return Step(state, actions)


def confidence(token: int) -> float:
    return 1.0 + token % 97  # 0 would say that the engine does not know it


class Scene:
    """A search without an engine: what its traces decode is told."""

    kv_use = 0.0

    def __init__(self, tokenizer: Any) -> None:
        self.tokenizer = tokenizer
        self.store: Any = Kept()
        self.orders: list[Action] = []
        self.epoch = 0
        self.begin()

    def begin(self) -> None:
        self.epoch += 1
        self.rows: list[BoundaryRow] = []
        self.waiting: list[Trace] = []
        self.log = TreeLog(self.store, "t", self.epoch)
        policy: Policy[GambitState] = Obedient(self.orders)
        spec = SearchSpec("t", PROMPT, SamplingSpec(), 1000, 0, 0.0, "none", "", 0)
        self.search = Search(spec, policy, self, self.log, self.tokenizer)

    # the host of the search

    def enqueue(self, search: Search, trace: Trace) -> None:
        self.waiting.append(trace)

    def withdraw(self, search: Search, trace: Trace, *, running: bool) -> None:
        self.waiting = [other for other in self.waiting if other is not trace]

    def score(self, search: Search, rows: Sequence[BoundaryRow]) -> None:
        self.rows += rows

    def forget(self, search: Search, trace: Trace) -> None:
        pass

    def embed(self, search: Search, thoughts: Sequence[ThoughtText]) -> None:
        raise AssertionError("nobody asked for vectors")

    # what happens

    @property
    def live(self) -> list[Trace]:
        return self.search.view.in_state(NodeState.LIVE)

    def start(self) -> None:
        self.orders.append(SpawnRoot())
        self.search.start()
        self.grant()

    def grant(self) -> None:
        for trace in list(self.waiting):
            self.search.granted(trace)
        self.waiting = []

    def decode(self, trace: Trace, tokens: Sequence[int], *, boundary: bool) -> None:
        """The row of a boundary comes with what follows it."""
        row = HiddenRow(len(PROMPT) + trace.total_tokens - 1, b"", "float32") if boundary else None
        output = TraceOutput(f"t/{trace.number}", tokens, row, confidences=[confidence(t) for t in tokens])
        self.search.on_outputs([(trace.number, output)])

    def act(self, action: Action) -> None:
        """Scores what waits for it, and has the policy do this."""
        rows, self.rows = self.rows, []
        if rows:
            self.orders.append(action)
            self.search.on_scores([ScoredRow(row, 0.5) for row in rows])
            self.grant()

    async def hand_over(self) -> None:
        """To another worker, which goes on from what is stored."""
        self.search.abandon()
        self.search.checkpoint()
        await self.log.hand_back()
        self.begin()
        record: Any = _Record()
        assert await resume(self.search, self.log, self.store, record)
        self.grant()

    async def end(self) -> None:
        self.search.stop()
        await self.log.hand_back()


@dataclass(frozen=True)
class _Record:
    """Of a TreeRecord what is read here."""

    tree_id: str = "t"
    state: TreeState = TreeState.RUNNING
    degraded: bool = False
    steps: int = 0
    scorer_id: str = ""
    usage: Any = field(default_factory=lambda: {"generated": 0, "recomputed": 0})
    counts: Any = field(default_factory=lambda: {"rounds": 0})


async def play(data: st.DataObject, tokenizer: Any, tokens: st.SearchStrategy[list[int]]) -> Scene:
    """A search at random: traces decode, boundaries anywhere, branches, evictions, prunings, hand-overs."""
    scene = Scene(tokenizer)
    scene.start()
    for _ in range(data.draw(st.integers(1, 25))):
        if not scene.live:
            break
        trace = data.draw(st.sampled_from(scene.live))
        match data.draw(st.sampled_from(["decode", "decode", "boundary", "branch", "leave", "hand over"])):
            case "decode":
                scene.decode(trace, data.draw(tokens), boundary=False)
            case "boundary" if trace.own_tokens:
                scene.decode(trace, data.draw(tokens), boundary=True)
            case "branch" if trace.last_scored() is not None:
                scene.act(Branch(trace.number))
            case "branch":
                scene.act(SpawnRoot())
            case "leave" if len(scene.live) > 1:
                scene.act(data.draw(st.sampled_from([Prune(trace.number), Evict(trace.number)])))
            case "hand over":
                await scene.hand_over()
    await scene.end()
    return scene


def check_texts(scene: Scene) -> None:
    store, view = scene.store, scene.search.view
    for number, trace in view.traces.items():
        content = store.content(number)
        assert content.confidences == tuple(map(confidence, content.tokens))
        assert trace.confidences.tolist() == list(map(confidence, trace.tokens))
        start = trace.branch_position
        for thought in content.thoughts:
            own = content.confidences[
                start - trace.branch_position : thought.position - trace.branch_position
            ]
            assert thought.confidence is not None
            assert abs(thought.confidence - sum(own) / len(own)) < 1e-3
            start = thought.position
        before = store.inherited(number)
        sequence = trace.sequence()
        if content.tokens:
            assert before.decode() + content.text == scene.tokenizer.decode(sequence)
        ends = {thought.position: thought.text_end for thought in trace.thoughts}
        assert {thought.position: thought.text_end for thought in content.thoughts}.items() <= ends.items()
        for thought in content.thoughts:
            so_far = (before + content.text.encode()[: thought.text_end]).decode()
            decoded = scene.tokenizer.decode(sequence[: thought.position])
            # but for a character that is not complete there
            assert decoded.startswith(so_far)
            assert set(decoded[len(so_far) :]) <= {INCOMPLETE}
            if not decoded.endswith(INCOMPLETE):
                assert so_far == decoded


@given(data=st.data())
def test_the_text_of_a_trace_is_that_of_its_ancestors_up_to_where_it_leaves_them(data: st.DataObject) -> None:
    letters = TOKENIZERS["byte level"]._tokenizer
    # whole characters, cut anywhere, and bytes that are none
    tokens = st.one_of(
        st.text(alphabet="a é€😀\n", min_size=1, max_size=5).map(lambda text: letters(text)["input_ids"]),
        st.lists(st.integers(0, 255), min_size=1, max_size=5),
        st.text(alphabet="é€😀", min_size=1, max_size=2).map(lambda text: letters(text)["input_ids"][:-1]),
    )
    check_texts(asyncio.run(play(data, TOKENIZERS["byte level"], tokens)))


@given(data=st.data())
def test_so_it_is_where_decoding_drops_the_first_space(data: st.DataObject) -> None:
    tokenizer = TOKENIZERS["sentence piece"]
    words = st.lists(st.integers(2, len(tokenizer._tokenizer) - 1), min_size=1, max_size=5)
    check_texts(asyncio.run(play(data, tokenizer, words)))
