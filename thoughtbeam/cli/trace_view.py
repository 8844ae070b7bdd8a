"""A trace on the terminal: its text, and over each thought what it was worth."""

from __future__ import annotations

from rich.text import Text

from thoughtbeam.cli.terminal import printable
from thoughtbeam.results import Thought, Trace


def trace_view(trace: Trace) -> Text:
    """Everything that was read of a trace."""
    view = Text()
    for number, thought in enumerate(trace.thoughts, 1):
        view.append(f"── {number} {_worth(thought, trace.node.number)}\n", style="dim")
        view.append(f"{printable(thought.text).strip()}\n")
    if trace.remainder.strip():
        view.append("── after the last boundary\n" if trace.thoughts else "", style="dim")
        view.append(printable(trace.remainder).strip())
    view.rstrip()
    return view


def _worth(thought: Thought, node: int) -> str:
    parts = ["unscored" if thought.score is None else f"score {thought.score:.3f}"]
    if thought.confidence is not None:
        parts.append(f"confidence {thought.confidence:.3f}")
    parts.append(f"to token {thought.position:,}")
    if thought.node != node:
        parts.append(f"inherited from {thought.node}")
    return " · ".join(parts)
