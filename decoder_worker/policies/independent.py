"""N independent traces, run to their ends: what vanilla, self-consistency and best-of-N have in common."""

from __future__ import annotations

from decoder_worker.policies.base import (
    BoundariesScored,
    EngineIdle,
    Finish,
    Observation,
    Pressure,
    SpawnRoot,
    Started,
    Step,
    StepsPassed,
    ThoughtsEmbedded,
    TracesFinished,
)
from decoder_worker.policies.state import NoState
from decoder_worker.tree_view import TreeView


def independent_step(n: int, view: TreeView, observation: Observation) -> Step[NoState]:
    """Spawns n roots and ends when none of them counts any more. Memory pressure is left to the engine."""
    match observation:
        case Started():
            return Step(NoState(), (SpawnRoot(),) * n)
        case TracesFinished() if not view.capacity_count:
            return Step(NoState(), (Finish(),))
        case EngineIdle():
            return Step(NoState(), (Finish(),))
        case TracesFinished() | BoundariesScored() | Pressure() | StepsPassed() | ThoughtsEmbedded():
            return Step(NoState())
