from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from rich.console import Console, RenderableType

from thoughtbeam.cli.progress import SearchProgress
from thoughtbeam.cli.result_view import accounting, result_view
from thoughtbeam.cli.terminal import one_line, printable
from thoughtbeam.cli.tree_drawing import draw_tree, worth_drawing
from thoughtbeam.cli.words import how_cancelled
from thoughtbeam.results import (
    Answer,
    Node,
    NodeState,
    Progress,
    Result,
    Round,
    TokenUsage,
    Tree,
    TreeCounts,
    TreeState,
    TreeTransition,
    Vote,
)


def drawn(view: RenderableType) -> list[str]:
    """What is put on a terminal of 120 columns, without colours."""
    console = Console(width=120, color_system=None, highlight=False)
    with console.capture() as capture:
        console.print(view, crop=False)
    return [line.rstrip() for line in capture.get().splitlines()]


def node(number: int, state: NodeState, parent: int | None = None, **fields: Any) -> Node:
    defaults: dict[str, Any] = {
        "branch_position": 0,
        "mean_score": None,
        "thoughts": 1,
        "unique_tokens": 10,
        "total_tokens": 10,
        "finish_reason": "",
        "answer": "",
        "winning": False,
    }
    return Node(number, state, parent, **(defaults | fields))


def result(**fields: Any) -> Result:
    defaults: dict[str, Any] = {
        "tree_id": "t1",
        "state": TreeState.SUCCEEDED,
        "answer": Answer("42", 1.5, 0.75, 4, "The answer is \\boxed{42}."),
        "votes": (Vote("42", 1.5, (4, 1)), Vote("7", 0.5, (3,))),
        "counts": TreeCounts(nodes=5, roots=3, branches=2, finished=3, pruned=1, cancelled=1, rounds=1),
        "usage": TokenUsage(prompt=12, generated=12_345, recomputed=6),
        "ended_by": "",
        "degraded": False,
        "elapsed": 3.0,
        "queued": 0.5,
        "policy": "gambit",
    }
    return Result(**(defaults | fields))


def tree(*nodes: Node, **fields: Any) -> Tree:
    defaults: dict[str, Any] = {
        "id": "t1",
        "state": TreeState.SUCCEEDED,
        "model": "tiny",
        "policy": "gambit",
        "profile": "tiny",
        "parameters": {},
        **dict.fromkeys(("created", "started", "ended", "deadline")),
        "counts": TreeCounts(nodes=5, roots=3, branches=2, finished=3, pruned=1, cancelled=1),
        "usage": TokenUsage(),
        "worker": "w",
        "epoch": 1,
        "result": result(),
        "error": None,
        "question": "What is 6 * 7?",
    }
    return Tree(**(defaults | fields), nodes=nodes)


SMALL = tree(
    node(1, NodeState.FINISHED, mean_score=0.9, answer="42", winning=True),
    node(2, NodeState.PRUNED, mean_score=0.123),
    node(3, NodeState.FINISHED, answer="7", finish_reason="length"),
    node(
        4,
        NodeState.FINISHED,
        parent=1,
        mean_score=0.95,
        branch_position=6,
        unique_tokens=8,
        total_tokens=14,
        answer="[bold]42",
        winning=True,
    ),
    node(5, NodeState.CANCELLED, parent=4, branch_position=14, unique_tokens=0, total_tokens=14),
)


def test_a_small_tree_is_drawn_whole() -> None:
    lines = drawn(draw_tree(SMALL, 100))

    assert lines == [
        "gambit (tiny)  succeeded  answer 42",
        "What is 6 * 7?",
        "├── ★ 1 finished  score 0.900  10 tokens  = 42",
        "│   └── ★ 4 finished  score 0.950  14 tokens (8 own, from 6)  = [bold]42",
        "│       └── 5 cancelled  unscored  14 tokens (0 own, from 14)",
        "├── 2 pruned  score 0.123  10 tokens",
        "└── 3 finished  unscored  10 tokens  cut at its length limit  = 7",
        "★ the path to the answer · score: mean over the trace's thoughts",
        "5 nodes = 3 roots + 2 branches = 3 finished + 1 pruned + 1 cancelled",
        "0 tournaments · 0 thoughts · 0 evictions · 0 tokens generated, 0 recomputed, 0 prompt",
    ]


def test_a_big_tree_is_folded_to_what_matters() -> None:
    # given 200 pruned roots, each with a cancelled branch, and an answer deep among them
    roots = [node(n, NodeState.PRUNED, mean_score=n / 1000) for n in range(1, 201)]
    branches = [node(200 + n, NodeState.CANCELLED, parent=n) for n in range(1, 201)]
    deep = [
        node(401, NodeState.PRUNED, parent=77, winning=True),
        node(402, NodeState.FINISHED, parent=401, answer="42", winning=True),
        node(403, NodeState.FINISHED, parent=88, mean_score=0.5, answer="7"),
    ]
    big = tree(*roots, *branches, *deep)

    lines = drawn(draw_tree(big, 5))

    assert [line.strip("│├└─ ") for line in lines[2:-3]] == [
        "77 pruned  score 0.077  10 tokens",
        "★ 401 pruned  unscored  10 tokens (10 own, from 0)",
        "★ 402 finished  unscored  10 tokens (10 own, from 0)  = 42",
        "… 1 folded: 1 cancelled",
        "88 pruned  score 0.088  10 tokens",
        "403 finished  score 0.500  10 tokens (10 own, from 0)  = 7",
        "… 1 folded: 1 cancelled",
        "… 396 folded: 198 pruned, 198 cancelled",
    ]
    assert "398 of 403 nodes are folded, --all draws them" in lines[-3]


def test_nothing_is_drawn_without_what_leads_to_it() -> None:
    chain = [node(1, NodeState.PRUNED)] + [node(n, NodeState.PRUNED, parent=n - 1) for n in range(2, 50)]
    leaf = node(50, NodeState.FINISHED, parent=49, answer="42", winning=True)

    # too long to be drawn: the limit holds
    assert worth_drawing([*chain, leaf], 10) == set(range(1, 11))
    assert worth_drawing([*chain, leaf], None) == set(range(1, 51))


def test_a_very_deep_tree_can_be_drawn() -> None:
    chain = [node(1, NodeState.PRUNED)] + [node(n, NodeState.PRUNED, parent=n - 1) for n in range(2, 100)]

    lines = drawn(draw_tree(tree(*chain), None))

    assert len(lines) == 99 + 5
    assert lines[100].endswith("└── 99 pruned  unscored  10 tokens (10 own, from 0)")


def test_one_of_a_kind_is_no_plural() -> None:
    counts = TreeCounts(nodes=1, roots=1, branches=1, finished=1, rounds=1, thoughts=1, evictions=1)
    shown = accounting(counts, TokenUsage(generated=1)).plain

    assert shown.startswith("1 node = 1 root + 1 branch = 1 finished")
    assert "1 tournament · 1 thought · 1 eviction · 1 token generated" in shown


def test_a_path_to_the_answer_is_explained_only_where_there_is_one() -> None:
    assert "★" not in "".join(drawn(draw_tree(tree(node(1, NodeState.LIVE), result=None), None)))


def test_a_result_tells_what_scored_it_and_warns_of_a_scorer_made_for_something_else() -> None:
    plain, mismatch = result(scorer="mlp"), "model_fingerprint is [b]a[/b], not c"
    text = "\n".join(drawn(result_view(plain)))
    assert "gambit, scored by mlp · 3.0 s" in text
    assert "Warning" not in text
    [line] = [
        line
        for line in drawn(result_view(dataclasses.replace(plain, scorer_mismatch=mismatch)))
        if "Warning" in line
    ]
    assert line.endswith(mismatch)


def test_a_result_tells_answer_votes_and_accounting() -> None:
    lines = drawn(result_view(result(ended_by="tokens", degraded=True)))

    assert lines[0] == "The answer is \\boxed{42}."
    assert lines[2].startswith("Answer: 42   75% of the vote, trace 4   ended by its budget: tokens")
    assert "degraded" in lines[2] + lines[3]
    text = "\n".join(lines)
    assert "5 nodes = 3 roots + 2 branches = 3 finished + 1 pruned + 1 cancelled" in text
    assert "12,345 tokens generated" in text
    assert "gambit · 3.0 s, of them 0.5 s queued · 4,938 tok/s" in text


@pytest.mark.parametrize(
    ("fields", "standing", "heading"),
    [
        ({}, "75% of the vote, trace 4", "vote weight traces"),
        ({"policy": "best_of_n"}, "score 1.50, trace 4", "answer best score traces"),
        ({"policy": "sart"}, "score 1.50, trace 4", "answer best score traces"),
        ({"policy": "sart_no_prune"}, "score 1.50, trace 4", "answer best score traces"),
        ({"policy": "best_of_n", "degraded": True}, "75% of the vote, trace 4", "vote weight traces"),
        ({"policy": "sart", "degraded": True}, "75% of the vote, trace 4", "vote weight traces"),
        ({"policy": "vanilla", "counts": TreeCounts(nodes=1, finished=1)}, "trace 4", "vote weight traces"),
    ],
)
def test_only_a_vote_is_called_one(fields: dict[str, Any], standing: str, heading: str) -> None:
    lines = drawn(result_view(result(**fields)))

    assert lines[2].split("   ")[1] == standing
    assert heading in [" ".join(line.split()) for line in lines]


def test_finished_traces_without_an_answer_are_counted() -> None:
    counts = TreeCounts(nodes=7, finished=5)
    rows = [line.split() for line in drawn(result_view(result(counts=counts)))]

    assert ["no", "answer", "2"] in rows
    assert ["no", "answer"] not in [row[:2] for row in map(str.split, drawn(result_view(result())))]


@pytest.mark.parametrize(
    ("fields", "finish_reasons", "text"),
    [
        ({}, ["stop"] * 3, "none of the 3 finished traces gave one."),
        ({}, ["stop", "length", "length"], "none of the 3 finished traces gave one."),
        ({}, ["length"] * 3, "all 3 finished traces were cut at the length limit."),
        ({}, ["length"], "the only finished trace was cut at the length limit."),
        ({}, ["stop"], "the only finished trace gave none."),
        (
            {"ended_by": "deadline"},
            ["stop", "stop"],
            "none of the 2 finished traces gave one; the deadline of the search passed.",
        ),
        ({"ended_by": "deadline"}, [], "the deadline of the search passed before any trace had finished."),
        (
            {"ended_by": "tokens"},
            [],
            "the token budget of the search was spent before any trace had finished.",
        ),
        ({"state": TreeState.CANCELLED}, [], "the search was cancelled before any trace had finished."),
        ({}, [], "the search has ended, and no trace had finished."),
    ],
)
def test_why_there_is_no_answer(fields: dict[str, Any], finish_reasons: list[str], text: str) -> None:
    traces = [node(1, NodeState.CANCELLED)]
    traces += [node(n, NodeState.FINISHED, finish_reason=why) for n, why in enumerate(finish_reasons, 2)]
    counts = TreeCounts(nodes=len(traces), finished=len(finish_reasons))
    ended = result(answer=None, votes=(), counts=counts, **fields)

    assert drawn(result_view(ended, traces))[0] == f"No answer: {text}"
    assert drawn(draw_tree(tree(*traces, result=ended), None))[-1] == f"No answer: {text}"


def test_a_drawn_tree_tells_the_budget_that_ended_it() -> None:
    ended = tree(node(1, NodeState.FINISHED, winning=True), result=result(ended_by="deadline"))

    assert drawn(draw_tree(ended, None))[0] == (
        "gambit (tiny)  succeeded  answer 42  ended by its budget: deadline"
    )


@pytest.mark.parametrize(
    ("state", "text"),
    [
        (TreeState.CANCELLED, "the search was cancelled"),
        (TreeState.RUNNING, "the search is being cancelled"),
        (TreeState.SUCCEEDED, "the search had already succeeded"),
        (TreeState.FAILED, "the search had already failed"),
        (TreeState.EXPIRED, "the search had already expired"),
    ],
)
def test_what_became_of_a_cancelled_search(state: TreeState, text: str) -> None:
    assert how_cancelled(state) == text


def test_progress_follows_the_events() -> None:
    now = 100.0
    progress = SearchProgress("gambit", lambda: now)
    assert "gambit connecting 0.0 s" in drawn(progress)[0]

    progress.update(TreeTransition("1-1", None, TreeState.QUEUED, ""))
    assert "gambit queued 0.0 s" in drawn(progress)[0]

    counts = TreeCounts(nodes=30, roots=24, branches=6, live=20, ghost=3, finished=4, pruned=3, rounds=2)
    progress.update(Round("1-2", None, 2, 48, 23, 20, 3, 0.5, (), ()))
    now = 102.0
    progress.update(Progress("1-3", None, counts, TokenUsage(generated=3000)))
    lines = drawn(progress)

    assert "gambit running 2.0 s" in lines[0]
    assert lines[1].split() == ["live", "20", "ghost", "3", "finished", "4", "pruned", "3"]
    assert lines[2].strip() == (
        "30 nodes = 24 roots + 6 branches · 2 tournaments · 3,000 tokens · 1,500 tok/s · KV 50%"
    )


def test_the_rate_forgets_what_is_long_ago() -> None:
    now = 0.0
    progress = SearchProgress("gambit", lambda: now)
    for second, generated in [(1, 1000), (10, 1000), (14, 1400), (16, 2000)]:
        now = float(second)
        progress.update(Progress("e", None, TreeCounts(nodes=1), TokenUsage(generated=generated)))

    assert progress.tokens_per_second() == (2000 - 1000) / (16 - 10)


def test_text_from_elsewhere_cannot_steer_the_terminal() -> None:
    assert printable("a\x1b[2Jb\nc") == "a\\x1b[2Jb\nc"
    assert one_line("two\nlines  and\x07more", 100) == "two lines and\\x07more"
    assert one_line("x" * 50, 10) == "x" * 9 + "…"
