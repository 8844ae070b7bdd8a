"""What hidden rows should be: the same model in transformers, and a rule written down a second time."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from tests.integration.engine.recorder import Floats, Recorded

TOLERANCE = 1e-4


class Reference:
    """The bundled model in transformers, float32."""

    def __init__(self, model: Path) -> None:
        from transformers import AutoModelForCausalLM, AutoTokenizer

        self._model: Any = AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32).eval()
        tokenizer: Any = AutoTokenizer.from_pretrained(model)
        (self.blank,) = tokenizer.encode("\n\n", add_special_tokens=False)
        (self.newline,) = tokenizer.encode("\n", add_special_tokens=False)

    def hidden(self, tokens: Sequence[int]) -> Floats:
        """Rows after the final norm [tokens, hidden size]."""
        with torch.no_grad():
            output = self._model.model(torch.tensor([list(tokens)]))
        rows: Floats = output.last_hidden_state[0].numpy()
        return rows

    def check_confidences(self, trace: Recorded) -> float:
        """Asserts that each new token of the trace has its confidence; returns their mean."""
        with torch.no_grad():
            logits = self._model(torch.tensor([trace.tokens])).logits[0, trace.start - 1 : -1]
        expected = -logits.double().log_softmax(-1).sort(-1).values[:, -20:].mean(-1).numpy()
        assert len(trace.confidences) == len(trace.new)
        worst = np.abs(np.array(trace.confidences) - expected).max()
        assert worst < 1e-3, f"a confidence of {trace.trace_id} is off by {worst}"
        return float(expected.mean())

    def boundaries(self, tokens: Sequence[int]) -> set[int]:
        """In this vocabulary a blank line is one token, or two that are one newline each."""
        newlines = {self.blank: 2, self.newline: 1}
        found, run = set(), 0
        for position, token in enumerate(tokens):
            before, run = run, run + newlines[token] if token in newlines else 0
            if before < 2 <= run:
                found.add(position)
        return found

    def check(self, trace: Recorded) -> int:
        """Asserts that the trace's rows are right, none missing and none extra; returns their number.

        A row comes with the token after it, so that of a last token never does. That of the last token
        given comes.
        """
        expected = {
            position
            for position in self.boundaries(trace.tokens)
            if trace.start - 1 <= position < len(trace.tokens) - 1
        }
        positions = [row.position for row in trace.rows]
        assert sorted(expected) == positions
        hidden = self.hidden(trace.tokens)
        for position in positions:
            worst = np.abs(trace.row_at(position) - hidden[position]).max()
            assert worst < TOLERANCE, f"row {position} of {trace.trace_id} is off by {worst}"
        return len(positions)
