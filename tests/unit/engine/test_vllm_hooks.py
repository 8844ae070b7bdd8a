"""The capture picks the rows of boundaries, and only those, from a runner of either kind."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from decoder_worker.engine.boundaries import make_table
from decoder_worker.engine.vllm_hooks import ROWS, BoundaryCapture, Rows

A, NEWLINE, BLANK = range(3)
TABLE = make_table(["a", "\n", "\n\n"])


class Model:
    def compute_logits(self, rows: torch.Tensor) -> torch.Tensor:
        return rows.sum(1)


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
        self.model.compute_logits(rows)

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


def run(
    runner: Runner,
    step: dict[str, tuple[float, list[int]]],
    new: dict[str, list[int]] | None = None,
    finished: tuple[str, ...] = (),
) -> dict[str, float]:
    """One step; returns the first value of each row on its output. step: row value and sampled tokens by
    request."""
    arrivals = [SimpleNamespace(req_id=name, prompt_token_ids=prompt) for name, prompt in (new or {}).items()]
    runner.execute_model(
        SimpleNamespace(step=step, scheduled_new_reqs=arrivals, finished_req_ids=set(finished))
    )
    rows: Rows | None = getattr(runner.sample_tokens(None), ROWS, None)
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
    arrivals = [SimpleNamespace(req_id="p", prompt_token_ids=[A])]
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
