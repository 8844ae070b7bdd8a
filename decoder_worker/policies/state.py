"""Policy states as JSON: frozen dataclasses of numbers, strings and tuples of these."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass
from typing import Any, TypeVar

S = TypeVar("S")


@dataclass(frozen=True, slots=True)
class NoState:
    """The state of a policy that reads everything it needs from the Tree View."""


def dump(state: Any) -> str:
    """A state as JSON."""
    return json.dumps(dataclasses.asdict(state), separators=(",", ":"))


def load(kind: type[S], text: str) -> S:
    """The state that `dump` wrote. Raises ValueError or TypeError for anything else."""
    return kind(**{name: _tuples(value) for name, value in json.loads(text).items()})


def _tuples(value: Any) -> Any:
    return tuple(_tuples(item) for item in value) if isinstance(value, list) else value
