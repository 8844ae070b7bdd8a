"""Goes on with a search that another worker began: the Tree View as the tree store has it.

Finished traces, scores, the policy's state and votes are kept. Pending and live traces go on by prefill from
their last checkpoint, ghosts stay ghosts. Held traces stay held, so that the policy decides what it was about
to decide; one whose boundary has got lost with its score goes back to it, and is held there again.
Where another scorer scored before, the search is degraded from here on.
"""

from __future__ import annotations

from array import array

from decoder_worker.patience import until_available
from decoder_worker.scoring.info import ScorerInfo
from decoder_worker.search import Search
from decoder_worker.tree_log import TreeLog
from decoder_worker.tree_view import Trace, TreeView
from tree_store.model import NodeContent, NodeRecord, NodeState, TreeRecord
from tree_store.store import TreeStore

PAGE = 500


async def resume(search: Search, log: TreeLog, store: TreeStore, record: TreeRecord) -> bool:
    """Loads what an earlier epoch wrote into the search and starts it. False: nothing was written yet."""
    scorer = search.spec.scorer
    row_bytes = 2 * scorer.history_size if scorer is not None else 0
    nodes, contents, state = await until_available(
        lambda: _load(store, record.tree_id), tree_id=record.tree_id
    )
    if not nodes:
        return False
    view = TreeView()
    live: list[Trace] = []
    pending: list[Trace] = []
    for node, content in zip(nodes, contents, strict=True):
        trace = _trace(view, node, content, row_bytes)
        view.restore(trace)
        log.restore(trace, node.state)
        if node.state is NodeState.PENDING:
            pending.append(trace)
        elif node.state is NodeState.LIVE or _has_lost_its_boundary(trace):
            view.move(trace, NodeState.PENDING)
            log.moved(trace, "resumed")
            live.append(trace)
    view.generated = record.usage["generated"]
    search.resume(
        view,
        search.policy.initial(search.spec.seed) if state is None else search.policy.load(state),
        [*live, *pending],  # those that had a slot have waited for it already
        recomputed=record.usage["recomputed"],
        rounds=record.counts["rounds"],
        steps=record.steps,
        degraded=record.degraded,
        same_scorer=_is_same_scorer(scorer, record, view),
    )
    return True


async def _load(store: TreeStore, tree_id: str) -> tuple[list[NodeRecord], list[NodeContent], str | None]:
    """All nodes with what they added, and the policy's state."""
    nodes: list[NodeRecord] = []
    contents: list[NodeContent] = []
    while page := await store.nodes(tree_id, first=len(nodes) + 1, count=PAGE):
        nodes += page
        contents += await store.contents(tree_id, [node.node for node in page])
    return nodes, contents, await store.policy_state(tree_id)


def _is_same_scorer(scorer: ScorerInfo | None, record: TreeRecord, view: TreeView) -> bool:
    """Whether what scores now made the scores that there are, if there are any, and has its history."""
    if scorer is None or not view.thoughts_scored:
        return True
    if record.scorer_id and scorer.scorer_id and record.scorer_id != scorer.scorer_id:
        return False
    return not scorer.history_size or all(len(t.projected) == t.own_scored for t in view.traces.values())


def _trace(view: TreeView, node: NodeRecord, content: NodeContent, row_bytes: int) -> Trace:
    """row_bytes: of a thought in the scorer's history; 0: it keeps none."""
    parent = view[node.parent] if node.parent is not None else None
    return Trace(
        number=node.node,
        parent=parent,
        branch_position=node.branch_position,
        state=node.state,
        tokens=array("i", content.tokens),
        thoughts=list(content.thoughts),
        confidences=array("f", content.confidences),
        projected=_rows(content.history, row_bytes),
        text_bytes=len(content.text.encode()),
        finish_reason=node.finish_reason,
        finish_order=node.finish_order,
        answer=node.answer,
        evictions=node.evictions,
    )


def _rows(history: bytes, row_bytes: int) -> list[bytes]:
    if not row_bytes:
        return []
    return [history[start : start + row_bytes] for start in range(0, len(history), row_bytes)]


def _has_lost_its_boundary(trace: Trace) -> bool:
    """Whether it is held where no thought of it ends, as far as is known."""
    known = bool(trace.thoughts) and trace.thoughts[-1].position == trace.total_tokens
    return trace.state is NodeState.HELD and not known
