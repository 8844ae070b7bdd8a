"""A tree of traces on the terminal; a big one is folded to what matters of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

import rich.tree
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.text import Text

from thoughtbeam.cli.result_view import STATE_STYLES, accounting
from thoughtbeam.cli.terminal import one_line
from thoughtbeam.cli.words import counted, why_no_answer
from thoughtbeam.results import Node, NodeState, Tree

WINNING_MARK = "★"
_INDENT = 4  # columns that rich indents a level by
_LABEL_WIDTH = 120


def draw_tree(tree: Tree, limit: int | None) -> Group:
    """The whole search, to be printed without cropping. limit: most nodes to draw; None: all."""
    header = Text(f"{tree.policy}", style="bold")
    header.append(f" ({tree.profile})" if tree.profile else "")
    header.append(f"  {tree.state}", style="bold green" if tree.state == "succeeded" else "bold yellow")
    if tree.result and tree.result.answer:
        header.append(f"  answer {one_line(tree.result.answer.text, 60)}", style="bold green")
    if tree.result and tree.result.ended_by:
        header.append(f"  ended by its budget: {tree.result.ended_by}", style="yellow")
    if tree.error:
        header.append(f"  {tree.error.reason}: {one_line(tree.error.message, 200)}", style="red")
    root = rich.tree.Tree(Text(one_line(tree.question, 100), style="italic"), guide_style="dim")
    drawn = worth_drawing(tree.nodes, limit)
    _grow(root, tree.nodes, drawn)
    legend = "score: mean over the trace's thoughts"
    if any(n.winning for n in tree.nodes):
        legend = f"{WINNING_MARK} the path to the answer · {legend}"
    if hidden := len(tree.nodes) - len(drawn):
        legend += f" · {hidden} of {len(tree.nodes)} nodes are folded, --all draws them"
    parts: list[RenderableType] = [
        header,
        _Wide(root),
        Text(legend, style="dim"),
        accounting(tree.counts, tree.usage),
    ]
    if tree.result and tree.result.answer is None:
        parts.append(Text(why_no_answer(tree.result, tree.nodes), style="bold yellow"))
    return Group(*parts)


class _Wide:
    """A tree with room for its labels however deep it is; rich would leave them out."""

    def __init__(self, tree: rich.tree.Tree) -> None:
        self._tree = tree

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        width = _INDENT * _depth(self._tree) + _LABEL_WIDTH
        yield from console.render(self._tree, options.update(width=max(width, options.max_width)))


def _depth(tree: rich.tree.Tree) -> int:
    depth, level = 0, [tree]
    while level:
        depth, level = depth + 1, [child for at in level for child in at.children]
    return depth


def worth_drawing(nodes: Iterable[Node], limit: int | None) -> set[int]:
    """Numbers of at most `limit` nodes: the winning path first, then finished traces by score, then traces
    that still count, then the rest; each with the nodes that lead to it."""
    by_number = {n.number: n for n in nodes}
    if limit is None or len(by_number) <= limit:
        return set(by_number)
    drawn: set[int] = set()
    for node in sorted(by_number.values(), key=_interest):
        path = [n.number for n in _path(node, by_number) if n.number not in drawn]
        if len(drawn) + len(path) <= limit:
            drawn.update(path)
    return drawn


def _interest(node: Node) -> tuple[int, float, int]:
    if node.winning:
        rank = 0
    elif node.state is NodeState.FINISHED:
        rank = 1
    elif node.state in (NodeState.PRUNED, NodeState.CANCELLED):
        rank = 3
    else:
        rank = 2
    return rank, -(node.mean_score or 0.0), node.number


def _path(node: Node, by_number: Mapping[int, Node]) -> Iterator[Node]:
    """The node, its parent, … up to a root."""
    at: Node | None = node
    while at is not None:
        yield at
        at = by_number.get(at.parent) if at.parent is not None else None


def _grow(root: rich.tree.Tree, nodes: Iterable[Node], drawn: set[int]) -> None:
    """Adds the nodes; what is not drawn is counted on the line of the nearest node that is."""
    by_number = {n.number: n for n in nodes}
    places: dict[int | None, rich.tree.Tree] = {None: root}
    folded: dict[int | None, Counter[NodeState]] = {}
    # a parent has a lower number than its branches
    for node in sorted(by_number.values(), key=lambda n: n.number):
        if node.number in drawn:
            places[node.number] = places[node.parent].add(_label(node))
        else:
            shown = next((n.number for n in _path(node, by_number) if n.number in drawn), None)
            folded.setdefault(shown, Counter())[node.state] += 1
    for number, states in folded.items():
        summary = ", ".join(f"{count} {state}" for state, count in states.most_common())
        places[number].add(Text(f"… {states.total()} folded: {summary}", style="dim"))


def _label(node: Node) -> Text:
    label = Text()
    if node.winning:
        label.append(f"{WINNING_MARK} ", style="bold green")
    label.append(f"{node.number} ", style="bold")
    label.append(node.state, style=STATE_STYLES[node.state])
    label.append(f"  score {node.mean_score:.3f}" if node.mean_score is not None else "  unscored")
    label.append(f"  {counted(node.total_tokens, 'token')}")
    if node.parent is not None:
        label.append(f" ({node.unique_tokens} own, from {node.branch_position})", style="dim")
    if node.finish_reason == "length":
        label.append("  cut at its length limit", style="yellow")
    if node.answer:
        label.append(f"  = {one_line(node.answer, 60)}", style="bold green" if node.winning else "bold")
    return label
