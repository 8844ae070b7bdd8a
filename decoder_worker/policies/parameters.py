"""Declarative parameters: what can be set on a policy, from which source, in which range, by which default.

A policy's parameters are a frozen dataclass whose fields are made by `integer`, `real`, `flag` and `choice`.
`resolve` turns a profile and a request's overrides into a checked instance, or into one ParameterError that
lists everything that is wrong.
"""

from __future__ import annotations

import dataclasses
import difflib
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

Value = int | float | bool | str | None
Kind = Literal["int", "float", "bool", "choice"]
Cap = Literal["max_capacity", "max_context"]

PROFILES = ("paper", "tiny")
OURS = "this project; the paper leaves it open"
MOST_TRACES = 65_536  # that any policy may ask for; workers allow far fewer


class ParameterError(ValueError):
    """Bad parameters. violations: (parameter, what is wrong and what is allowed), all of them at once."""

    def __init__(self, violations: Sequence[tuple[str, str]]) -> None:
        super().__init__("; ".join(f"{name}: {description}" for name, description in violations))
        self.violations = tuple(violations)


@dataclass(frozen=True, slots=True)
class Limits:
    """What bounds every policy of a request.

    max_capacity: traces that the worker lets count at once. max_context: longest trace, in generated tokens.
    """

    max_capacity: int
    max_context: int


@dataclass(frozen=True, slots=True)
class Conflict:
    """Values that are allowed singly but not together. parameter: the one to blame; involves: all of them."""

    parameter: str
    involves: frozenset[str]
    description: str


@dataclass(frozen=True, slots=True)
class ParameterInfo:
    """One parameter as a client sees it. symbol: the paper's, or "". minimum, maximum: inclusive; None unless
    it is a number."""

    name: str
    symbol: str
    description: str
    source: str
    kind: Kind
    defaults: Mapping[str, Value]
    minimum: float | None
    maximum: float | None
    choices: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Spec:
    """What a field may hold. minimum, maximum: inclusive, of numbers. cap: a limit that it must also keep;
    `max_context` strictly, because what a trace never reaches could never act. optional: None is allowed.
    """

    kind: Kind
    description: str
    source: str
    defaults: Mapping[str, Value]
    symbol: str = ""
    minimum: float = 0
    maximum: float = 0
    cap: Cap | None = None
    choices: tuple[str, ...] = ()
    optional: bool = False

    def read(self, value: object, limits: Limits) -> Value:
        """The value as the field holds it. JSON has only floats: 16.0 is the int 16.

        Raises ValueError that says what is allowed.
        """
        if value is None and self.optional:
            return None
        match self.kind:
            case "bool" if isinstance(value, bool):
                return value
            case "choice" if isinstance(value, str) and value in self.choices:
                return value
            case "int" | "float" if isinstance(value, int | float) and not isinstance(value, bool):
                if self._in_range(value, limits):
                    if self.kind == "float":
                        return float(value)
                    if value == math.floor(value):
                        return int(value)
        raise ValueError(f"must be {self._allowed(limits)}, not {_shown(value)}")

    def _in_range(self, value: float, limits: Limits) -> bool:
        return self.minimum <= value <= self._maximum(limits)  # false for NaN

    def _maximum(self, limits: Limits) -> float:
        match self.cap:
            case "max_capacity":
                return min(self.maximum, limits.max_capacity)
            case "max_context":
                return min(self.maximum, limits.max_context - 1)
            case None:
                return self.maximum

    def _allowed(self, limits: Limits) -> str:
        match self.kind:
            case "bool":
                return "true or false"
            case "choice":
                return "one of " + ", ".join(self.choices)
        noun = "a whole number" if self.kind == "int" else "a number"
        why = {
            "max_capacity": f" (the worker takes up to {limits.max_capacity} traces)",
            "max_context": f" (below the longest trace, {limits.max_context} tokens)",
            None: "",
        }[self.cap]
        return (
            f"{noun} from {self.minimum} to {self._maximum(limits)}{why}{' or null' if self.optional else ''}"
        )


def integer(
    description: str,
    *,
    source: str,
    paper: int | None,
    tiny: int | None,
    minimum: int,
    maximum: int,
    symbol: str = "",
    cap: Cap | None = None,
) -> Any:
    """A field for a whole number in [minimum, maximum], capped further by a limit; where the default is None,
    None may be set, too."""
    optional = paper is None
    return _field(
        Spec("int", description, source, _by(paper, tiny), symbol, minimum, maximum, cap, optional=optional)
    )


def real(
    description: str,
    *,
    source: str,
    paper: float | None,
    tiny: float | None,
    minimum: float,
    maximum: float,
    symbol: str = "",
) -> Any:
    """A field for a number in [minimum, maximum]; where the default is None, None may be set, too."""
    optional = paper is None
    return _field(
        Spec("float", description, source, _by(paper, tiny), symbol, minimum, maximum, optional=optional)
    )


def flag(description: str, *, source: str, paper: bool, tiny: bool) -> Any:
    """A field that is on or off."""
    return _field(Spec("bool", description, source, _by(paper, tiny)))


def choice(description: str, *, source: str, paper: str, tiny: str, choices: tuple[str, ...]) -> Any:
    """A field for one of `choices`."""
    return _field(Spec("choice", description, source, _by(paper, tiny), choices=choices))


@dataclass(frozen=True, slots=True)
class Parameters:
    """Base of every policy's parameters, and those of a policy that has none.

    Made without arguments, an instance is the `paper` profile.
    """

    def conflicts(self, limits: Limits) -> Iterable[Conflict]:
        """What the single ranges cannot say: rules across parameters."""
        return ()


P = TypeVar("P", bound=Parameters)


def specs(kind: type[Parameters]) -> dict[str, Spec]:
    """The declarations of a policy's parameters, by name."""
    return {field.name: field.metadata["spec"] for field in dataclasses.fields(kind)}


def describe(kind: type[Parameters]) -> tuple[ParameterInfo, ...]:
    """A policy's parameters for clients."""
    return tuple(
        ParameterInfo(
            name=name,
            symbol=spec.symbol,
            description=spec.description,
            source=spec.source,
            kind=spec.kind,
            defaults=spec.defaults,
            minimum=spec.minimum if spec.kind in ("int", "float") else None,
            maximum=spec.maximum if spec.kind in ("int", "float") else None,
            choices=spec.choices,
        )
        for name, spec in specs(kind).items()
    )


def resolve(kind: type[P], profile: str, overrides: Mapping[str, object], limits: Limits) -> P:
    """A policy's parameters: the profile's defaults, then the overrides, all checked.

    overrides: by name, as they come from JSON. Raises ParameterError.
    """
    if profile not in PROFILES:
        raise ParameterError([("profile", f"must be one of {', '.join(PROFILES)}, not {_shown(profile)}")])
    declared = specs(kind)
    violations = [(name[:60], _unknown(name, declared)) for name in overrides if name not in declared]
    values: dict[str, Any] = {}
    refused: set[str] = set()
    for name, spec in declared.items():
        default = spec.defaults[profile]
        try:
            values[name] = spec.read(overrides.get(name, default), limits)
        except ValueError as error:
            origin = "" if name in overrides else f" (the default of profile {profile})"
            violations.append((name, f"{error}{origin}"))
            refused.add(name)
            values[name] = default
    made = kind(**values)
    violations += [
        (c.parameter, c.description) for c in made.conflicts(limits) if refused.isdisjoint(c.involves)
    ]
    if violations:
        raise ParameterError(violations)
    return made


def _unknown(name: str, declared: Mapping[str, Spec]) -> str:
    """Names the parameter that was probably meant, by its name or its symbol."""
    if not declared:
        return "no such parameter: this policy has none"
    spellings = {
        spelling.lower(): known for known, spec in declared.items() for spelling in (known, spec.symbol)
    }
    spellings.pop("", None)
    near = difflib.get_close_matches(name[:60].lower(), spellings, n=1)
    hint = f"did you mean {spellings[near[0]]}? " if near else ""
    return f"no such parameter; {hint}known are {', '.join(declared)}"


def _shown(value: object) -> str:
    text = repr(value) if isinstance(value, str | int | float | bool | None) else f"a {type(value).__name__}"
    return text if len(text) <= 40 else text[:37] + "..."


def _by(paper: Value, tiny: Value) -> Mapping[str, Value]:
    return {"paper": paper, "tiny": tiny}


def _field(spec: Spec) -> Any:
    return dataclasses.field(default=spec.defaults["paper"], metadata={"spec": spec})
