from __future__ import annotations

import pytest
from rich.cells import cell_len
from rich.console import Console

from tests.unit.thoughtbeam.test_cli_drawing import result, tree
from thoughtbeam.cli.tree_list import tree_lines
from thoughtbeam.results import Answer, TokenUsage, Tree, TreeCounts, TreeState

TREE_ID = "7b1f0bd4-4a0e-4bd3-8c7d-6f7a52c5d2f1"
QUESTION = "Start with 654 and work modulo 1000. " + "a) +726 " * 30
USAGE = TokenUsage(generated=1_234_567)


def search(answer: str | None, question: str = QUESTION, policy: str = "gambit") -> Tree:
    given = result(answer=None if answer is None else Answer(answer, 1.0, 1.0, 1, ""))
    counts = TreeCounts(nodes=10_234)
    return tree(id=TREE_ID, policy=policy, counts=counts, usage=USAGE, question=question, result=given)


def rendered(width: int, *trees: Tree) -> list[str]:
    """What a terminal of that width shows."""
    console = Console(width=width, color_system=None, highlight=False)
    with console.capture() as capture:
        for line in tree_lines(trees, width):
            console.print(line, no_wrap=True)
    return capture.get().splitlines()


@pytest.mark.parametrize("width", [80, 120])
@pytest.mark.parametrize("question", [QUESTION, "short?", "\u554f\u984c" * 200])
def test_a_search_is_one_line(width: int, question: str) -> None:
    searches = [
        search("19", question),
        search(None, question, "self_consistency"),
        tree(id=TREE_ID, state=TreeState.UNSPECIFIED, result=None, question=question, policy="x" * 40),
        search("\\frac{1}{3} + x", question),
    ]

    lines = rendered(width, *searches)

    assert len(lines) == 1 + len(searches)
    assert max(map(cell_len, lines)) <= width
    # everything but the question whole, and in its column
    assert lines[1].startswith("7b1f0bd4  succeeded  gambit            10234  1,234,567  19    ")
    assert lines[2].startswith("7b1f0bd4  succeeded  self_consistency  10234  1,234,567        ")
    assert lines[4].startswith("7b1f0bd4  succeeded  gambit            10234  1,234,567  \\frac{1}{3} + x")
    assert lines[0].split() == ["tree", "state", "policy", "nodes", "tokens", "answer", "question"]
    at = lines[0].index("question")
    assert [line[at - 2 : at] for line in lines[1:4]] == ["  "] * 3
    assert [line.endswith("\u2026") for line in lines[1:]] == [question != "short?"] * 4


@pytest.mark.parametrize(("width", "shown"), [(80, 23), (120, 63)])
def test_a_long_answer_takes_the_place_of_the_question(width: int, shown: int) -> None:
    fits = "y" * shown
    lines = rendered(width, search(fits), search("z" * (shown + 1)))

    assert lines[1].endswith(f"  {fits}")
    assert lines[2].endswith(f"  {'z' * (shown - 1)}\u2026")
    assert [len(line) for line in lines[1:]] == [width, width]
