"""The report: what it finds, what it says in words, and that the page needs nothing but itself."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from prm_worker.training import calibrate, evaluate, train
from prm_worker.training.comparing import compare
from prm_worker.training.judging import (
    DEPTHS,
    Judged,
    Ranking,
    TokenDepth,
    by_depth,
    by_tokens,
    pruned,
    recommended_warmup,
    siblings,
)
from prm_worker.training.plots import Axis, Line, chart
from tests.unit.prm_worker.training.drawn import draw
from tests.unit.prm_worker.weights import step_weights
from thoughtbeam.runtime.scorer_dataset_reader import Traces, read_traces


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Any], str]:
    """Of an MLP, a sequence scorer and confidence, on questions of their own."""
    folder = tmp_path_factory.mktemp("life")
    data = draw(folder / "train", questions=100, traces=8)
    judged = draw(folder / "judge", questions=40, seed=9, name="other")
    for arch, rate in (("mlp", "1e-3"), ("sequence", "3e-4")):
        arguments = ["--arch", arch, "--data", str(data), "--out", str(folder / f"{arch}.pt")]
        arguments += ["--epochs", "4", "--learning-rate", rate, "--threads", "1"]
        assert train.main([*arguments, "--test-share", "0"]) == 0
    scorers = [str(folder / "sequence.pt"), str(folder / "mlp.pt"), "confidence"]
    out = folder / "report"
    # the training data is given as well: its questions have to be left out
    assert evaluate.main(["--data", str(judged), str(data), "--scorer", *scorers, "--out", str(out)]) == 0
    return json.loads((out / "report.json").read_text()), (out / "report.html").read_text()


def test_questions_that_a_scorer_was_trained_on_are_left_out(report: tuple[dict[str, Any], str]) -> None:
    data = report[0]["data"]
    assert (data["questions"], data["questions_left_out"]) == (40, 100)
    assert data["roots"] == 240
    assert data["training_questions_unknown"] == []


def test_every_scorer_is_judged_at_every_depth(report: tuple[dict[str, Any], str]) -> None:
    for scorer in report[0]["scorers"]:
        assert [one["percent"] for one in scorer["by_depth"]] == list(DEPTHS)
        for one in scorer["by_depth"]:
            assert one["low"] <= one["pairwise"] <= one["high"]
            assert 0 <= one["calibration_error"] <= 1
            assert sum(part["traces"] for part in one["reliability"]) == 240
        assert scorer["pruned"]


def test_a_scorer_that_knows_ranks_and_one_that_cannot_know_does_not(
    report: tuple[dict[str, Any], str],
) -> None:
    sequence, mlp, confidence = report[0]["scorers"]
    for knowing in (sequence, mlp):
        assert knowing["by_depth"][-1]["low"] > 0.65
        assert knowing["recommended_warmup"] is not None
        late = max(knowing["pruned"], key=lambda one: (one["tokens"] <= 60, one["tokens"]))
        assert late["right"] < late["by_chance"] < late["wrong"]
    assert confidence["by_depth"][-1]["low"] < 0.5 < confidence["by_depth"][-1]["high"]
    assert confidence["recommended_warmup"] is None
    # the rows say how hard a question is, which no search gains from
    assert mlp["by_depth"][0]["auroc"] > mlp["by_depth"][0]["pairwise"]


def test_what_is_shown_and_what_is_not_is_said_in_words(report: tuple[dict[str, Any], str]) -> None:
    words = [one["words"] for one in report[0]["comparisons"]]
    (against_mlp,) = [one for one in words if "sequence.pt (sequence) against mlp.pt (mlp)" in one]
    assert "Within questions" in against_mlp
    # in this data a thought says all that its trace says, so that history has no use at its end
    assert "is not shown to be better than mlp.pt (mlp)" in against_mlp
    assert all(one in report[1] for one in words)


class _Outside(HTMLParser):
    """Notes what a page would load, and whether its tags match."""

    def __init__(self) -> None:
        super().__init__()
        self.loads: list[str] = []
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in ("meta", "br", "line", "polyline", "polygon", "html", "body"):
            self.open.append(tag)
        self.loads += [f"{tag} {name}" for name, _ in attrs if name in ("src", "href", "data", "action")]
        if tag in ("script", "link", "iframe", "object", "img"):
            self.loads.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        pass

    def handle_endtag(self, tag: str) -> None:
        if tag not in ("html", "body"):
            assert self.open.pop() == tag


def test_the_page_is_whole_and_needs_nothing_but_itself(report: tuple[dict[str, Any], str]) -> None:
    parser = _Outside()
    parser.feed(report[1])
    assert parser.loads == []
    assert parser.open == []
    assert not re.search(r"https?:|url\(|@import|nan|None", report[1])
    assert report[1].count("<svg") == 6
    assert all(scorer["name"] in report[1] for scorer in report[0]["scorers"])


def test_a_name_with_markup_in_it_stays_text() -> None:
    page = chart("a <b>", Axis("x", 0, 1), Axis("y", 0, 1), [Line("<script>", [0, 1], [0, 1])])
    assert "<script>" not in page
    assert "&lt;script&gt;" in page


def test_a_line_goes_from_corner_to_corner_and_stays_within_the_axes() -> None:
    page = chart(
        "t", Axis("x", 0, 1), Axis("y", 0, 1), [Line("l", [0, 0.5, 1], [0, 2, 1], [0, 0, 0], [1, 1, 1])]
    )
    # the axes span 46 to 448 across and 240 up to 10
    assert '<polyline class="line c0" points="46.0,240.0 247.0,10.0 448.0,10.0"/>' in page
    assert 'points="46.0,10.0 247.0,10.0 448.0,10.0 448.0,240.0 247.0,240.0 46.0,240.0"' in page


def test_a_line_has_a_gap_where_a_value_is_missing() -> None:
    line = Line("l", [0, 1, 2, 3, 4], [0.1, 0.2, float("nan"), 0.3, 0.4])
    page = chart("t", Axis("x", 0, 4), Axis("y", 0, 1), [line])
    assert page.count("<polyline") == 2
    assert "nan" not in page


@pytest.mark.parametrize(("end", "ticks"), [(100, 6), (1, 6), (1273, 7), (7, 8)])
def test_an_axis_has_a_few_round_ticks(end: float, ticks: int) -> None:
    found = Axis("x", 0, end).ticks()
    assert len(found) == ticks
    assert found[0] == 0
    assert found[-1] <= end * (1 + 1e-9)


# ---- judging by hand


def judged(
    means: list[list[float]], right: list[bool], question: list[int], depths: list[list[int]] | None = None
) -> Judged:
    depths = depths or [[10 * (place + 1) for place in range(len(one))] for one in means]
    return Judged(
        means=[np.array(one) for one in means],
        thoughts=[np.array(one) for one in means],
        depths=[np.array(one) for one in depths],
        tokens=np.array([one[-1] + 1 for one in depths]),
        right=np.array(right),
        question=np.array(question),
    )


def test_a_traces_score_is_the_mean_so_far(tmp_path: Path) -> None:
    traces = read_traces([draw(tmp_path, questions=1, traces=1)])
    thoughts = len(traces.paths[0])
    scores = np.arange(1.0, thoughts + 1)
    one = Judged.of(traces, np.array([0]), [scores])
    assert one.means[0].tolist() == [np.mean(scores[: n + 1]) for n in range(thoughts)]
    assert one.depths[0].tolist() == [10 * (n + 1) for n in range(thoughts)]


def test_a_relative_depth_is_the_thought_that_reaches_it() -> None:
    one = judged([[0.1, 0.2, 0.3]], [True], [0])
    # a tenth of three thoughts is the first, a third of them too, a half the second
    assert [one.at_share(percent)[0][0] for percent in (10, 30, 40, 50, 70, 100)] == [
        *(0.1, 0.1, 0.2, 0.2, 0.3, 0.3)
    ]


def test_only_traces_of_the_same_question_are_compared() -> None:
    # within each question the right one is above; over all they are mixed
    one = judged([[0.2], [0.1], [0.9], [0.8]], [True, False, True, False], [7, 7, 9, 9])
    depth = by_depth(one)[-1]
    assert (depth.pairwise, depth.within.mean) == (1.0, 1.0)
    assert depth.auroc == 0.75


def test_a_depth_in_tokens_looks_at_the_traces_that_have_come_so_far() -> None:
    one = judged([[0.5, 0.9], [0.4], [0.1, 0.2, 0.3]], [True, False, False], [0, 0, 0])
    there, scores = one.at_tokens(15)
    # the second has ended at 11 tokens
    assert there.tolist() == [True, False, True]
    assert scores.tolist() == [0.5, 0.1]
    assert one.at_tokens(5)[0].tolist() == [False, False, False]


def token_depth(tokens: int, low: float, questions: int = 50) -> TokenDepth:
    ranking = Ranking(low + 0.05, low, low + 0.1, low + 0.05, np.zeros(1), np.zeros(1))
    return TokenDepth(tokens, 100, questions, ranking)


@pytest.mark.parametrize(
    ("lows", "found"),
    [
        ([0.4, 0.51, 0.52, 0.6], 20),
        ([0.51, 0.49, 0.51, 0.51], 30),  # one lucky look is not enough
        ([0.4, 0.4, 0.4, 0.51], None),
        ([0.4, 0.5, 0.5, 0.5], None),
        ([], None),
    ],
)
def test_the_recommended_warmup_is_the_first_depth_reliably_above_chance(
    lows: list[float], found: int | None
) -> None:
    depths = [token_depth(10 * (place + 1), low) for place, low in enumerate(lows)]
    assert recommended_warmup(depths) == found


def test_a_depth_with_few_questions_is_not_recommended() -> None:
    assert recommended_warmup([token_depth(10, 0.9, questions=3), token_depth(20, 0.9, questions=3)]) is None


def test_a_bottom_k_prunes_the_lowest_and_ties_by_lot() -> None:
    one = judged(
        [[0.1], [0.5], [0.9], [0.3], [0.3]],
        [True, False, True, True, False],
        [0, 0, 0, 1, 1],
    )
    (found,) = pruned(one, [1], [10])
    # question 0: its right 0.1; question 1: one of two equal ones
    assert found.right == pytest.approx((1 + 0 + 0.5) / 3)
    assert found.wrong == pytest.approx((0 + 0.5) / 2)
    assert found.by_chance == pytest.approx((1 / 3 + 1 / 3 + 1 / 2) / 3)
    assert found.traces_per_question == 2.5
    assert list(pruned(one, [3], [10])) == []


def family() -> Traces:
    """A root, a branch from its first thought, a branch of that from its third, and another root."""
    rows = np.zeros((9, 2), dtype="<f4")
    return Traces(
        origin=None,  # type: ignore[arg-type]
        dtype="float32",
        questions=["q"],
        rows=rows,
        positions=np.array([19, 29, 39, 29, 39, 49, 59, 19, 29]),
        confidences=np.zeros(9),
        paths=[np.array([0, 1, 2]), np.array([0, 3, 4]), np.array([0, 3, 4, 5, 6]), np.array([7, 8])],
        question=np.zeros(4, int),
        parent=np.array([-1, 0, 1, -1]),
        fork_thought=np.array([0, 1, 3, 0]),
        inherited=np.array([0, 10, 30, 0]),
        prompt_tokens=np.full(4, 10),
        tokens=np.array([40, 40, 60, 20]),
        right=np.array([True, True, False, False]),
    )


def test_siblings_share_what_they_have_from_the_same_ancestor() -> None:
    from prm_worker.training.judging import _shared_tokens

    traces = family()
    # the branch goes on after the boundary at position 19, ten tokens behind the prompt
    assert _shared_tokens(traces, 0, 1) == 10
    assert _shared_tokens(traces, 1, 2) == 30
    assert _shared_tokens(traces, 0, 2) == 10
    assert _shared_tokens(traces, 2, 3) == 0
    scores = [np.full(len(path), 0.5 + 0.1 * index) for index, path in enumerate(traces.paths)]
    found = siblings(traces, np.arange(4), scores)
    # single pairs have no correlation; those with the other root share nothing
    assert [(one.low, one.high, one.pairs) for one in found] == [(0.0, 0.0, 3)]
    assert found[0].agree == pytest.approx(1 / 3)


def compared(questions: int, seeing: set[int]) -> str:
    """Words on a sequence scorer that sees after these thoughts, from 1, of ten, against a blind MLP."""
    right = np.random.default_rng(0).random(10 * questions) < 0.5
    question = np.repeat(np.arange(questions), 10).tolist()
    blind = judged([[0.5] * 10 for _ in right], right.tolist(), question)
    means = [np.array([0.5 + 0.1 * (label and n in seeing) for n in range(1, 11)]) for label in right]
    (found,) = compare(
        [("s", "sequence", by_depth(replace(blind, means=means))), ("m", "mlp", by_depth(blind))]
    )
    assert (found.first, found.second) == ("m", "s")
    assert found.words.startswith("Within questions, s (sequence) against m (mlp): ")
    return found.words.removeprefix("Within questions, s (sequence) against m (mlp): ")


def test_words_say_at_which_depths_one_is_better() -> None:
    assert compared(40, {6, 7, 8, 9, 10}) == (
        "ranks better at 60–100 % of the thoughts; is not shown to rank better or worse at 10–50 % of the "
        "thoughts. So s (sequence) is not shown to be better than m (mlp) at 10–50 %."
    )
    assert compared(40, set()) == (
        "is not shown to rank better or worse at 10–100 % of the thoughts. So s (sequence) is not shown to "
        "be better than m (mlp) on these questions."
    )


@pytest.mark.parametrize("lone", [1, 3, 10])
def test_a_depth_of_which_none_beside_it_says_the_same_is_not_called_better(lone: int) -> None:
    assert "ranks better" not in compared(40, {lone})
    assert "ranks better at 50–60 % of" in compared(40, {lone, 5, 6})


def test_few_questions_show_nothing() -> None:
    every = set(range(1, 11))
    assert compared(7, every) == (
        "8 questions with right and wrong traces are needed, here: 7. So neither is shown to be better."
    )
    assert compared(8, every) == "ranks better at 10–100 % of the thoughts."


def test_by_tokens_counts_questions_with_both_kinds() -> None:
    one = judged([[0.2], [0.1], [0.9], [0.8]], [True, False, True, True], [0, 0, 1, 1])
    depths = by_tokens(one)
    assert {depth.questions for depth in depths if depth.traces == 4} == {1}


# ---- what cannot be judged


def test_bad_input_is_told_in_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = draw(tmp_path / "data", questions=6)
    torch.save(step_weights(5), tmp_path / "narrow.pt")
    one_class = draw(tmp_path / "right", questions=3, right=True)
    for scorer, given, named in (
        ("nothing.pt", data, "nothing.pt: no such file"),
        (str(tmp_path / "narrow.pt"), data, "hidden_size: is 5; must be 8, as in the data"),
        ("confidence", one_class, "right: is so for 18 of the 18 traces of the evaluation questions"),
        ("confidence", tmp_path / "none", "is no data set"),
    ):
        arguments = ["--scorer", scorer, "--data", str(given), "--out", str(tmp_path / "out")]
        assert evaluate.main(arguments) == 2
        said = capsys.readouterr().err
        assert said.count("\n") == 1
        assert named in said


def test_a_scorer_of_unknown_training_is_named_as_such(tmp_path: Path) -> None:
    data, other = draw(tmp_path / "data", questions=8), draw(tmp_path / "other", questions=8, name="o")
    public, calibrated, out = (tmp_path / name for name in ("public.pt", "calibrated.pt", "out"))
    torch.save(step_weights(8), public)
    # what it was calibrated on is known, and says nothing about that
    arguments = ["--scorer", str(public), "--data", str(other), "--out", str(calibrated)]
    assert calibrate.main(arguments) == 0
    arguments = ["--scorer", str(public), str(calibrated), "--data", str(data), "--out", str(out)]
    assert evaluate.main(arguments) == 0
    assert json.loads((out / "report.json").read_text())["data"]["training_questions_unknown"] == [
        "public.pt",
        "calibrated.pt",
    ]
    assert "not known what it was trained on" in (out / "report.html").read_text()


@pytest.mark.parametrize(
    ("given", "called"),
    [
        (["a/x.pt", "b/y.pt", "confidence"], ["x.pt", "y.pt", "confidence"]),
        (["a/x.pt", "b/x.pt", "b/y.pt"], ["a/x.pt", "b/x.pt", "y.pt"]),
        (["1/out/x.pt", "2/out/x.pt", "2/in/x.pt"], ["1/out/x.pt", "2/out/x.pt", "in/x.pt"]),
        (["/x.pt", "/a/x.pt"], ["/x.pt", "a/x.pt"]),
        (["a/x.pt", "a/x.pt", "./a/x.pt", "b/../a/x.pt"], ["x.pt"]),
        (["/a/confidence", "confidence"], ["a/confidence", "confidence"]),
    ],
)
def test_every_scorer_has_a_name_of_its_own_in_the_report(given: list[str], called: list[str]) -> None:
    assert list(evaluate.names(given).values()) == called
    assert list(evaluate.names(given[::-1]).values()) == called[::-1]


def test_confidence_is_scored_as_the_worker_does() -> None:
    scores = evaluate.confidence_scores(np.array([np.log(20), 10.0, np.nan, 1.0], dtype=np.float32))
    assert scores.tolist() == pytest.approx([0.0, 1 - np.log(20) / 10, 0.0, 0.0], abs=1e-6)
