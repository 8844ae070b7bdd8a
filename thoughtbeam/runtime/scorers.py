"""Scorers by name, what a search may name as its own, and what is advised where there is none."""

from __future__ import annotations

from collections.abc import Iterator

from thoughtbeam.runtime.status import Violation

# Needs no training and no prm worker: the model's own confidence in the tokens of a thought.
CONFIDENCE = "confidence"
CONFIDENCE_TOKENS = 20  # k: the most probable tokens in a place that its confidence is the mean over
# Reads text. Hidden-state scorers are named by their architecture.
PROCESS_REWARD = "process_reward"
ADVICE = (
    "Ask with scorer=confidence (--scorer confidence), which every model has; or make a scorer for this "
    "model (thoughtbeam scorer collect, then thoughtbeam scorer train), start a prm worker with it "
    "(python -m prm_worker --scorer FILE) and name its address to the decoder worker (--scorer HOST:PORT)"
)
_SHOWN_CHARACTERS = 100


def scorer_violations(scorer: str) -> Iterator[Violation]:
    """What is wrong with `search.scorer`."""
    if scorer not in ("", CONFIDENCE):
        shown = scorer if len(scorer) <= _SHOWN_CHARACTERS else scorer[:_SHOWN_CHARACTERS] + "…"
        allowed = f"must be empty for the worker's own scorer, or {CONFIDENCE}"
        yield Violation("search.scorer", f"{allowed}; is {shown!r}")
