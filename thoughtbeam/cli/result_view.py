"""A result on the terminal: the answer, the votes, and where the tokens went."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from thoughtbeam.cli.terminal import one_line, printable
from thoughtbeam.cli.words import counted, why_no_answer
from thoughtbeam.results import Node, NodeState, Result, TokenUsage, TreeCounts

STATE_STYLES = {
    NodeState.UNSPECIFIED: "",
    NodeState.PENDING: "blue",
    NodeState.LIVE: "cyan",
    NodeState.HELD: "yellow",
    NodeState.GHOST: "magenta",
    NodeState.FINISHED: "green",
    NodeState.PRUNED: "red",
    NodeState.CANCELLED: "dim",
}
# policies that give the answer of the one trace with the best score
_BY_SCORE = ("best_of_n", "sart", "sart_no_prune")
_MOST_VOTES = 8
_LONGEST_TEXT = 2000


def result_view(result: Result, nodes: Sequence[Node] = ()) -> RenderableType:
    """Everything of a result that a person wants to know. nodes: its traces, where they are known: without an
    answer they help to tell why."""
    parts: list[RenderableType] = []
    if result.answer is not None:
        if text := result.answer.final_text.strip():
            parts.append(Text(printable(text[:_LONGEST_TEXT]) + "\n", style="dim"))
        parts.append(_answer_line(result))
        parts.append(_votes(result))
    else:
        parts.append(Text(why_no_answer(result, nodes), style="bold yellow"))
    if result.scorer_mismatch:
        parts.append(Text(_mismatch_line(result), style="bold yellow"))
    parts.append(accounting(result.counts, result.usage))
    parts.append(Text(_timing(result), style="dim"))
    parts.append(Text(f"tree {result.tree_id}", style="dim"))
    return Group(*parts)


def accounting(counts: TreeCounts, usage: TokenUsage) -> Text:
    """What became of every node, so that it can be checked: nodes = roots + branches = …"""
    open_states = (NodeState.PENDING, NodeState.LIVE, NodeState.HELD, NodeState.GHOST)
    ended = (NodeState.FINISHED, NodeState.PRUNED, NodeState.CANCELLED)
    shown = [s for s in open_states if getattr(counts, s)] + list(ended)
    fates = " + ".join(f"{getattr(counts, state):,} {state}" for state in shown)
    return Text(
        f"{origins(counts)} = {fates}\n"
        f"{counted(counts.rounds, 'tournament')} · {counted(counts.thoughts, 'thought')} · "
        f"{counted(counts.evictions, 'eviction')} · {counted(usage.generated, 'token')} generated, "
        f"{usage.recomputed:,} recomputed, {usage.prompt:,} prompt",
        style="dim",
    )


def origins(counts: TreeCounts) -> str:
    """Where the nodes come from: the first half of the accounting."""
    return (
        f"{counted(counts.nodes, 'node')} = {counted(counts.roots, 'root')} + "
        f"{counted(counts.branches, 'branch', 'branches')}"
    )


def _answer_line(result: Result) -> Text:
    assert result.answer is not None
    line = Text("Answer: ", style="bold")
    line.append(printable(result.answer.text), style="bold green")
    line.append(f"   {_standing(result)}trace {result.answer.node}", style="not bold dim")
    if result.ended_by:
        line.append(f"   ended by its budget: {result.ended_by}", style="not bold yellow")
    if result.degraded:
        line.append("   degraded: scores were missing, the vote is unscored", style="not bold red")
    return line


def _mismatch_line(result: Result) -> str:
    different = printable(result.scorer_mismatch)
    return f"Warning: the scorer was made for something else, its scores may mean nothing: {different}"


def _standing(result: Result) -> str:
    """What the answer won by: its share of a vote, or, where one best trace decides, that trace's score."""
    assert result.answer is not None
    if _by_score(result):
        return f"score {result.answer.weight:.2f}, "
    return "" if result.counts.finished == 1 else f"{result.answer.share:.0%} of the vote, "


def _by_score(result: Result) -> bool:
    # without scores it falls back to a majority
    return result.policy in _BY_SCORE and not result.degraded


def _votes(result: Result) -> Table:
    table = Table(box=None, padding=(0, 2), header_style="dim")
    table.add_column("answer" if _by_score(result) else "vote")
    table.add_column("best score" if _by_score(result) else "weight", justify="right")
    table.add_column("traces", justify="right")
    for vote in result.votes[:_MOST_VOTES]:
        table.add_row(one_line(vote.answer, 60), f"{vote.weight:.2f}", str(len(vote.nodes)))
    if (more := len(result.votes) - _MOST_VOTES) > 0:
        table.add_row(Text(f"… {more} more", style="dim"))
    if (silent := result.counts.finished - sum(len(v.nodes) for v in result.votes)) > 0:
        table.add_row(Text("no answer", style="dim"), "", str(silent))
    return table


def _timing(result: Result) -> str:
    running = result.elapsed - result.queued
    rate = f" · {result.usage.generated / running:,.0f} tok/s" if running > 0 else ""
    scored = f", scored by {result.scorer}" if result.scorer else ""
    return f"{result.policy}{scored} · {result.elapsed:.1f} s, of them {result.queued:.1f} s queued{rate}"
