"""Sentences that several commands say about a search."""

from __future__ import annotations

from collections.abc import Sequence

from thoughtbeam.results import Node, NodeState, Result, TreeState

_BUDGETS = {
    "deadline": "the deadline of the search passed",
    "tokens": "the token budget of the search was spent",
}


def counted(number: int, one: str, many: str | None = None) -> str:
    """`1 node`, `2 nodes`, `1,234 nodes`."""
    return f"{number:,} {one if number == 1 else many or one + 's'}"


def why_no_answer(result: Result, nodes: Sequence[Node] = ()) -> str:
    """Of a search that has ended without an answer. nodes: its traces, where they are known: they tell
    whether those that finished were cut."""
    finished = result.counts.finished
    if not finished:
        if result.ended_by:
            return f"No answer: {_spent(result.ended_by)} before any trace had finished."
        if result.state is TreeState.CANCELLED:
            return "No answer: the search was cancelled before any trace had finished."
        return "No answer: the search has ended, and no trace had finished."
    reasons = [n.finish_reason for n in nodes if n.state is NodeState.FINISHED]
    if reasons and set(reasons) == {"length"}:
        which = "the only finished trace was" if finished == 1 else f"all {finished:,} finished traces were"
        text = f"No answer: {which} cut at the length limit"
    elif finished == 1:
        text = "No answer: the only finished trace gave none"
    else:
        text = f"No answer: none of the {finished:,} finished traces gave one"
    if result.ended_by:
        text += f"; {_spent(result.ended_by)}"
    return f"{text}."


def how_cancelled(state: TreeState) -> str:
    """What became of a search that was to be cancelled."""
    if state is TreeState.CANCELLED:
        return "the search was cancelled"
    if state in (TreeState.QUEUED, TreeState.RUNNING):
        return "the search is being cancelled"
    return f"the search had already {'ended' if state is TreeState.UNSPECIFIED else state}"


def _spent(budget: str) -> str:
    return _BUDGETS.get(budget, f"the budget {budget!r} of the search was spent")
