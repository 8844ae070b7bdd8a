"""compose.yaml as Docker Compose reads it: merged, its variables put in."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[2]
COMPOSE_FILE = ROOT / "compose.yaml"
ENV_EXAMPLE = ROOT / ".env.example"

_VARIABLE = re.compile(
    r"\$(?:(?P<escaped>\$)|\{(?P<name>[A-Za-z_]\w*)(?:(?P<how>:?[-?+])(?P<text>[^{}]*))?\}|(?P<bare>[A-Za-z_]\w*)"
    r"|(?P<bad>))"
)
_DURATION = re.compile(r"(?:(\d+)h)?(?:(\d+)m)?(?:(\d+)s)?")


class MissingVariableError(ValueError):
    """A variable without which the file cannot be used."""


@dataclass(frozen=True, slots=True)
class Use:
    """One `${NAME:-text}` in the file. how: None for a bare `${NAME}`."""

    name: str
    how: str | None
    text: str


def interpolated(text: str, variables: Mapping[str, str]) -> str:
    """Raises MissingVariableError for `${X:?…}`, ValueError for what is no variable."""

    def value(match: re.Match[str]) -> str:
        if match["bad"] is not None:
            raise ValueError(f"a lone $ in {text!r}; write $$")
        if match["escaped"]:
            return "$"
        name, how, other = match["name"] or match["bare"], match["how"] or "", match["text"] or ""
        found = variables.get(name)
        present = bool(found) if how.startswith(":") else found is not None
        if how.endswith("?") and not present:
            raise MissingVariableError(f"{name}: {other}")
        if how.endswith("+"):
            return other if present else ""
        return (found or "") if present else other

    return _VARIABLE.sub(value, text)


def uses(document: object) -> Iterator[Use]:
    """Every variable of a document, as often as it occurs."""
    for text in _texts(document):
        for match in _VARIABLE.finditer(text):
            if name := match["name"] or match["bare"]:
                yield Use(name, match["how"], match["text"] or "")


def raw() -> dict[str, Any]:
    """The file, merged, with its variables still in it and without its x- parts."""
    document = yaml.safe_load(COMPOSE_FILE.read_text())
    return {key: value for key, value in document.items() if not key.startswith("x-")}


def load(variables: Mapping[str, str] | None = None) -> dict[str, Any]:
    """The file as Compose sees it when these variables are set."""
    result: dict[str, Any] = _filled(raw(), variables or {})
    return result


def services(project: Mapping[str, Any], *profiles: str) -> dict[str, dict[str, Any]]:
    """The services that start with these profiles."""
    return {
        name: service
        for name, service in project["services"].items()
        if not service.get("profiles") or set(service["profiles"]) & set(profiles)
    }


def in_order(chosen: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Names of services, each after those that it depends on."""
    ordered: list[str] = []

    def visit(name: str) -> None:
        if name not in ordered:
            for needed in chosen[name].get("depends_on", {}):
                visit(needed)
            ordered.append(name)

    for name in chosen:
        visit(name)
    return ordered


def seconds(duration: str) -> float:
    """A duration such as 1h30m or 45s."""
    match = _DURATION.fullmatch(duration)
    assert duration
    assert match is not None, f"{duration!r} is no duration"
    hours, minutes, rest = (int(part or 0) for part in match.groups())
    return hours * 3600 + minutes * 60 + rest


def example_values() -> dict[str, str]:
    """The variables of .env.example, with the values that stand there."""
    return dict(re.findall(r"^#([A-Z][A-Z_]*)=(.*)$", ENV_EXAMPLE.read_text(), re.MULTILINE))


def _filled(value: Any, variables: Mapping[str, str]) -> Any:
    match value:
        case dict():
            return {key: _filled(part, variables) for key, part in value.items()}
        case list():
            return [_filled(part, variables) for part in value]
        case str():
            return interpolated(value, variables)
    return value


def _texts(value: object) -> Iterator[str]:
    match value:
        case dict():
            for part in value.values():
                yield from _texts(part)
        case list():
            for part in value:
                yield from _texts(part)
        case str():
            yield value
