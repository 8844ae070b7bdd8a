"""A program with settings of every kind, values for them, and the sources that they can come from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

from thoughtbeam.runtime.common_settings import ADDRESS, StoreSettings
from thoughtbeam.runtime.config import Loaded, load
from thoughtbeam.runtime.settings import Setting, setting, settings_of


@dataclass(frozen=True, slots=True)
class Every(StoreSettings):
    """A setting of every kind."""

    count: int = setting("how many", 3, at_least=0, at_most=1000, unit="things")
    pause: float = setting("how long", 1.5, above=0, at_most=60, unit="seconds")
    share: float = setting("of all", 0.5, at_least=0, at_most=1)
    eager: bool = setting("at once", False)
    name: str = setting("of it", "it")
    colour: str = setting("of it", "red", choices=("red", "green"))
    peer: str = setting("of it", "localhost:1", form=ADDRESS)
    place: Path = setting("of it", Path("there"))
    most: int | None = setting("of all", None, at_least=1)
    least: float | None = setting("of all", None, at_least=0)
    really: bool | None = setting("or not", None)
    title: str | None = setting("of it", None)
    folder: Path | None = setting("of it", None)


# printable, but nothing that a shell, TOML or argparse could not take for something else
TEXTS = st.text(st.characters(categories=("L", "M", "N", "P", "S", "Zs")), min_size=1, max_size=20).filter(
    str.isprintable
)


def values(one: Setting) -> st.SearchStrategy[Any]:
    """What a setting may be; no value has a secret part."""
    about = one.about
    of_kind: st.SearchStrategy[Any]
    if about.choices:
        of_kind = st.sampled_from(about.choices)
    elif one.name == "redis_url":
        of_kind = st.sampled_from(["redis://a:1", "rediss://b/3?client_name=x", "unix:///run/redis?db=1"])
    elif about.form is not None:
        of_kind = st.sampled_from(["127.0.0.1:1", "a-b.c_d:65535", "[::1]:80"])
    elif one.kind is bool:
        of_kind = st.booleans()
    elif one.kind is int:
        of_kind = st.integers(_int(about.at_least), _int(about.at_most))
    elif one.kind is float:
        low = about.above if about.at_least is None else about.at_least
        of_kind = st.floats(
            low, about.at_most, exclude_min=about.above is not None, allow_nan=False, allow_infinity=False
        )
    elif one.kind is Path:
        of_kind = TEXTS.map(Path)
    else:
        of_kind = TEXTS
    return st.none() | of_kind if one.optional else of_kind


def _int(bound: float | None) -> int | None:
    return None if bound is None else int(bound)


def as_text(value: object) -> str:
    """As a flag or a variable has it."""
    if value is None:
        return ""
    return str(value).lower() if isinstance(value, bool) else str(value)


def as_toml(program: str, kind: type, given: Mapping[str, Any]) -> str:
    """A configuration file with these values."""
    known = settings_of(kind)
    lines: dict[str, list[str]] = {"common": [], program: []}
    for name, value in given.items():
        lines[known[name].section(program)].append(f"{name} = {known[name].written(value)}\n")
    return "".join(f"[{section}]\n{''.join(own)}" for section, own in lines.items())


def loaded(
    program: str,
    kind: type[Any],
    folder: Path,
    flags: Mapping[str, Any],
    environment: Mapping[str, Any],
    file: Mapping[str, Any],
) -> Loaded[Any]:
    """The settings of a program with these values in its sources."""
    known = settings_of(kind)
    path = folder / "thoughtbeam.toml"
    path.write_text(as_toml(program, kind, file), encoding="utf-8")
    arguments = [f"{known[name].flag}={as_text(value)}" for name, value in flags.items()]
    variables = {known[name].variable(program): as_text(value) for name, value in environment.items()}
    return load(program, kind, arguments, {**variables, "THOUGHTBEAM_CONFIG": str(path)})
