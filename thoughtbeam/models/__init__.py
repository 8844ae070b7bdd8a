"""The model and the scorer that come with the package."""

from __future__ import annotations

from pathlib import Path

TINY_REASONER = "tiny_reasoner"


def bundled_model() -> Path:
    """Directory of the bundled model, the tiny reasoner, in Hugging Face layout."""
    return Path(__file__).parent / TINY_REASONER


def bundled_scorer() -> Path:
    """Scorer file of the bundled model."""
    return bundled_model() / "scorer.pt"
