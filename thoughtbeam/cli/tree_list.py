"""Searches as lines of a terminal, one each."""

from __future__ import annotations

from collections.abc import Sequence

from rich.cells import cell_len, set_cell_size
from rich.text import Text

from thoughtbeam.cli.terminal import one_line
from thoughtbeam.results import Tree

# `tree show` and `tree cancel` take how an id begins
ID_SHOWN = 8
_GAP = "  "
_FIXED = (("tree", -ID_SHOWN), ("state", -9), ("policy", -16), ("nodes", 5), ("tokens", 9))
_ANSWER_COLUMN = 12  # a longer answer takes room from the question beside it


def tree_lines(trees: Sequence[Tree], width: int) -> list[Text]:
    """A header and one line per search, none wider than `width` columns. The question gets what the others
    leave; an answer is cut only if it does not fit even without it."""
    answers = [one_line((t.result and t.result.text) or "", width) for t in trees]
    column = min(max(map(cell_len, ["answer", *answers])), _ANSWER_COLUMN)
    header = [name for name, _ in _FIXED]
    lines = [Text(_line(header, "answer", "question", column, width), style="dim")]
    for tree, answer in zip(trees, answers, strict=True):
        tokens = f"{tree.usage.generated:,}"
        fixed = [tree.id[:ID_SHOWN], tree.state, tree.policy, str(tree.counts.nodes), tokens]
        lines.append(Text(_line(fixed, answer, tree.question, column, width)))
    return lines


def _line(fixed: Sequence[str], answer: str, question: str, column: int, width: int) -> str:
    cells = [_cell(text, size) for text, (_, size) in zip(fixed, _FIXED, strict=True)]
    left = width - sum(len(cell) + len(_GAP) for cell in cells)
    answer = _cut(answer, left)
    answer += " " * (column - cell_len(answer))
    question = _cut(one_line(question, width), left - cell_len(answer) - len(_GAP))
    return _GAP.join([*cells, answer, question]).rstrip()


def _cell(text: str, width: int) -> str:
    """width: of the column; negative: of one of words, which are cut to it, while numbers never are."""
    return set_cell_size(text, -width) if width < 0 else text.rjust(width)


def _cut(text: str, width: int) -> str:
    cut = Text(text)
    cut.truncate(max(width, 0), overflow="ellipsis")
    return cut.plain
