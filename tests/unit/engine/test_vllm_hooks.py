"""The capture picks the rows of boundaries, and only those, from a runner of either kind."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from decoder_worker.engine.boundaries import make_table
from decoder_worker.engine.vllm_hooks import (
    ASKS,
    CONFIDENCES,
    ROWS,
    BoundaryCapture,
    Rows,
    confidences_of,
)

A, NEWLINE, BLANK = range(3)
VOCABULARY = 50
TABLE = make_table(["a", "\n", "\n\n"])


class Model:
    """Its logits are those of its row's value: 0 to VOCABULARY - 1 times it."""

    def compute_logits(self, rows: torch.Tensor) -> torch.Tensor:
        return rows[:, :1] * torch.arange(VOCABULARY, dtype=rows.dtype)


class Runner:
    """A model runner as the capture sees it. early: logits are computed in execute_model (vLLM's first
    runner) or in sample_tokens (its second)."""

    def __init__(self, *, early: bool, dtype: torch.dtype = torch.float32) -> None:
        self.model = Model()
        self.early = early
        self.dtype = dtype
        self.step: dict[str, tuple[float, list[int]]] = {}

    def _logits(self) -> None:
        rows = torch.tensor([[value] * 3 for value, _ in self.step.values()], dtype=self.dtype)
        self.model.compute_logits(rows).fill_(0.0)  # sampling changes them in place

    def execute_model(self, scheduler_output: Any) -> None:
        self.step = scheduler_output.step
        if self.early and self.step:
            self._logits()

    def sample_tokens(self, grammar: Any) -> Any:
        if not self.early and self.step:
            self._logits()
        return SimpleNamespace(
            req_ids=list(self.step), sampled_token_ids=[tokens for _, tokens in self.step.values()]
        )


def step(
    runner: Runner,
    given: dict[str, tuple[float, list[int]]],
    new: dict[str, list[int]] | None = None,
    finished: tuple[str, ...] = (),
    asking: tuple[str, ...] = (),
) -> Any:
    """One step; returns its output. given: row value and sampled tokens by request."""
    arrivals = [
        SimpleNamespace(
            req_id=name,
            prompt_token_ids=prompt,
            sampling_params=SimpleNamespace(extra_args={ASKS: True} if name in asking else None),
        )
        for name, prompt in (new or {}).items()
    ]
    runner.execute_model(
        SimpleNamespace(step=given, scheduled_new_reqs=arrivals, finished_req_ids=set(finished))
    )
    return runner.sample_tokens(None)


def run(
    runner: Runner, given: dict[str, tuple[float, list[int]]], *args: Any, **kwargs: Any
) -> dict[str, float]:
    """As `step`; returns the first value of each row on the output."""
    rows: Rows | None = getattr(step(runner, given, *args, **kwargs), ROWS, None)
    if rows is None:
        return {}
    assert rows.dtype == "float32"
    return {name: float(np.frombuffer(data, np.float32)[0]) for name, data in rows.by_request.items()}


@pytest.mark.parametrize("early", [True, False])
def test_rows_of_first_steps_and_of_boundaries(early: bool) -> None:
    runner = Runner(early=early)
    BoundaryCapture(runner, TABLE)
    # the first row always; the prompt of q ends with a newline, so that one more is a boundary
    assert run(runner, {"p": (1, [A]), "q": (2, [NEWLINE])}, {"p": [A], "q": [A, NEWLINE]}) == {
        "p": 1,
        "q": 2,
    }
    assert run(runner, {"p": (3, [BLANK]), "q": (4, [A])}) == {"q": 4}
    # the row of a step is that of its input, and a run of newlines is one boundary
    assert run(runner, {"p": (5, [BLANK]), "q": (6, [A])}) == {"p": 5}
    assert run(runner, {"p": (7, [A])}) == {}


def test_a_piece_of_a_prompt_that_is_not_its_last_gives_no_row() -> None:
    runner = Runner(early=True)
    BoundaryCapture(runner, TABLE)
    assert run(runner, {"p": (1, [])}, {"p": [A, A]}) == {}
    assert run(runner, {"p": (2, [A])}) == {"p": 2}


def test_a_request_that_comes_back_from_preemption_is_known() -> None:
    runner = Runner(early=False)
    BoundaryCapture(runner, TABLE)
    run(runner, {"p": (1, [A])}, {"p": [A]})
    run(runner, {"p": (2, [BLANK])})
    run(runner, {})
    # recomputed in two pieces; the second runner is told of it as if it were new
    assert run(runner, {"p": (3, [])}, {"p": [A]}) == {}
    assert run(runner, {"p": (4, [A])}) == {"p": 4}
    assert run(runner, {"p": (5, [A])}) == {}


def test_nothing_is_kept_of_finished_requests() -> None:
    runner = Runner(early=True)
    capture = BoundaryCapture(runner, TABLE)
    for number in range(50):
        finished = (f"r{number - 1}",)
        run(runner, {f"r{number}": (1, [A])}, {f"r{number}": [A]}, finished)
    assert len(capture._codes) == 1
    # an output that was on its way when its request ended
    assert run(runner, {"r49": (1, [BLANK])}, finished=("r49",)) == {}
    assert capture._codes == {}


def test_half_precision_rows_keep_their_bits() -> None:
    runner = Runner(early=True, dtype=torch.bfloat16)
    BoundaryCapture(runner, TABLE)
    arrivals = [SimpleNamespace(req_id="p", prompt_token_ids=[A], sampling_params=None)]
    runner.execute_model(
        SimpleNamespace(step={"p": (1.5, [A])}, scheduled_new_reqs=arrivals, finished_req_ids=())
    )
    rows = getattr(runner.sample_tokens(None), ROWS)
    assert rows.dtype == "bfloat16"
    assert torch.frombuffer(bytearray(rows.by_request["p"]), dtype=torch.bfloat16).tolist() == [1.5] * 3


def test_rows_that_cannot_be_told_apart_stop_the_engine() -> None:
    class Speculating(Runner):
        """Computes logits for more positions than it has requests."""

        def _logits(self) -> None:
            self.model.compute_logits(torch.zeros(len(self.step) + 1, 3))

    runner = Speculating(early=True)
    BoundaryCapture(runner, TABLE)
    with pytest.raises(RuntimeError, match="2 hidden rows for 1 requests"):
        run(runner, {"p": (1, [A])}, {"p": [A]})


def test_removed_it_leaves_stock_methods() -> None:
    runner = Runner(early=True)
    capture = BoundaryCapture(runner, TABLE)
    capture.remove()
    assert not {"execute_model", "sample_tokens"} & vars(runner).keys()
    assert vars(runner.model) == {}
    assert run(runner, {"p": (1, [A])}, {"p": [A]}) == {}


def expected_confidence(value: float) -> float:
    """By the definition, for logits of 0 to VOCABULARY - 1 times `value`."""
    logits = value * np.arange(VOCABULARY)
    log_probabilities = logits - np.log(np.exp(logits).sum())
    return float(-np.sort(log_probabilities)[-20:].mean())


@pytest.mark.parametrize("early", [True, False])
def test_confidences_are_of_the_logits_before_sampling_and_only_for_those_that_ask(early: bool) -> None:
    runner = Runner(early=early)
    BoundaryCapture(runner, TABLE)
    new = {"p": [A], "q": [A], "r": [A]}
    given = {"p": (0.1, [A]), "q": (0.2, [A]), "r": (0.3, [])}  # r: a piece of a prompt that is not its last
    output = step(runner, given, new, asking=("q", "r"))
    assert getattr(output, CONFIDENCES) == {"q": pytest.approx(expected_confidence(0.2))}
    output = step(runner, {"r": (0.4, [A]), "p": (0.1, [A]), "q": (-0.5, [A])})
    assert getattr(output, CONFIDENCES) == {
        "r": pytest.approx(expected_confidence(0.4)),
        "q": pytest.approx(expected_confidence(-0.5)),
    }
    # one that has been told of again after a preemption still asks
    output = step(runner, {"q": (0.6, [A])}, {"q": [A]}, ("r",), asking=("q",))
    assert getattr(output, CONFIDENCES) == {"q": pytest.approx(expected_confidence(0.6))}


def test_without_anybody_who_asks_nothing_is_computed(monkeypatch: pytest.MonkeyPatch) -> None:
    runner = Runner(early=True)
    capture = BoundaryCapture(runner, TABLE)
    assert hasattr(step(runner, {"p": (1, [A])}, {"p": [A]}, asking=("p",)), CONFIDENCES)
    monkeypatch.setattr("decoder_worker.engine.vllm_hooks.confidences_of", None)
    assert not hasattr(step(runner, {"q": (1, [A])}, {"q": [A]}, ("p",)), CONFIDENCES)
    assert capture._asking == set()


def test_a_confidence_that_is_no_number_is_0_and_a_small_vocabulary_is_taken_whole() -> None:
    nan, inf = float("nan"), float("inf")
    logits = torch.tensor([[0.0, 0.0], [nan, 1.0], [-inf, 1.0], [inf, 1.0]])
    assert confidences_of(logits).tolist() == [pytest.approx(np.log(2)), 0.0, 0.0, 0.0]
    half = torch.randn(3, 1000).bfloat16()
    exact = -half.double().log_softmax(-1).topk(20).values.mean(-1)
    assert torch.allclose(confidences_of(half).double(), exact, atol=1e-4)
