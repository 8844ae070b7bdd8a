"""The Scheduler View: what the engine is really running, and the KV use.

It decides which tree is told of memory pressure: the one furthest above its fair share of the KV blocks
(the policy then decides what to give up; raw scores are never compared across trees). And it ranks the live
traces for the engine's own preemption, by (share rank of the tree, rank inside the tree).

Block counts are computed from the Tree View: traces share the blocks of their common prefix.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from decoder_worker.policies.base import Pressure
from decoder_worker.policies.ranking import ranked
from decoder_worker.tree_view import TreeView
from tree_store.model import NodeState

# An abort reaches the engine between steps and its blocks are free one step later (two with asynchronous
# scheduling): until then the KV use still shows what was already given up.
SETTLE_STEPS = 3
PRIORITY_KV_USE = 0.8  # from here on the engine is told whom to preempt first …
PRIORITY_STEPS = 16  # … every so many steps


class RunningTree(Protocol):
    """What the Scheduler View reads of a search."""

    @property
    def tree_id(self) -> str: ...

    @property
    def view(self) -> TreeView: ...

    @property
    def prompt_tokens(self) -> int: ...

    @property
    def high_water(self) -> float: ...


@dataclass(frozen=True, slots=True)
class KvShare:
    """KV blocks of one tree. total: blocks in use by it. private: by live trace, blocks that only it uses."""

    total: int
    private: Mapping[int, int]


class SchedulerView:
    """Follows the engine step by step."""

    def __init__(self, kv_blocks: int, block_size: int) -> None:
        self.kv_blocks = kv_blocks
        self.block_size = block_size
        self.step = 0
        self.kv_use = 0.0
        self._settled_at = 0
        self._ranked_at = 0

    def observe(self, step: int, kv_use: float) -> None:
        """Takes over a step batch's number and KV use (share of blocks, in [0, 1])."""
        self.step, self.kv_use = step, kv_use

    def pressure(self, trees: Iterable[RunningTree]) -> tuple[str, Pressure] | None:
        """The tree to tell, and what of; None while there is no pressure or the last relief still settles."""
        if self.step < self._settled_at:
            return None
        # a tree's last live trace stays: one that has no other can give nothing
        squeezed = [
            tree for tree in trees if self.kv_use > tree.high_water and tree.view.count(NodeState.LIVE) > 1
        ]
        if not squeezed:
            return None
        shares = {tree.tree_id: kv_share(tree.view, tree.prompt_tokens, self.block_size) for tree in squeezed}
        worst = max(squeezed, key=lambda tree: shares[tree.tree_id].total)
        blocks = math.ceil((self.kv_use - worst.high_water) * self.kv_blocks)
        self._settled_at = self.step + SETTLE_STEPS
        held = tuple(sorted(shares[worst.tree_id].private.items()))
        return worst.tree_id, Pressure(max(1, blocks), held)

    @property
    def ranking_due(self) -> bool:
        """Whether the engine is to be told `priorities` now."""
        return self.kv_use >= PRIORITY_KV_USE and self.step - self._ranked_at >= PRIORITY_STEPS

    def priorities(self, trees: Sequence[RunningTree]) -> dict[tuple[str, int], int]:
        """Preemption order of all live traces by (tree id, node): larger numbers go first."""
        self._ranked_at = self.step
        by_share = sorted(
            trees, key=lambda tree: kv_share(tree.view, tree.prompt_tokens, self.block_size).total
        )
        ranks: dict[tuple[str, int], int] = {}
        for tree in by_share:
            for trace in ranked(tree.view.in_state(NodeState.LIVE)):
                ranks[tree.tree_id, trace.number] = len(ranks)
        return ranks


def kv_share(view: TreeView, prompt_tokens: int, block_size: int) -> KvShare:
    """KV blocks of one tree's live traces, shared ones counted once.

    A full block is shared by the traces whose paths run through its last token; a trace's last, partial block
    is always its own. So each node owns the blocks that end inside its own tokens, and of those a trace uses
    the ones up to where it (or the branch of it) leaves the node.
    """
    live = view.in_state(NodeState.LIVE)
    uses: dict[int, list[tuple[int, int]]] = {}  # node: (full blocks of the sequence up to there, trace)
    private: dict[int, int] = {}
    for trace in live:
        end = trace.total_tokens
        for node in (trace, *trace.ancestors()):
            uses.setdefault(node.number, []).append(((prompt_tokens + end) // block_size, trace.number))
            end = node.branch_position
        private[trace.number] = 1 if (prompt_tokens + trace.total_tokens) % block_size else 0
    total = sum(private.values()) + (prompt_tokens // block_size if live else 0)
    for number, used in uses.items():
        first = (prompt_tokens + view[number].branch_position) // block_size
        used.sort()
        longest, longest_trace = used[-1]
        runner_up = used[-2][0] if len(used) > 1 else first
        total += longest - first
        private[longest_trace] += longest - runner_up
    return KvShare(total, private)
