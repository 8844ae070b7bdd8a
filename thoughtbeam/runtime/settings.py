"""Settings of a program: the fields of a frozen dataclass, each with what it is and what it may be."""

from __future__ import annotations

import dataclasses
import json
import math
import types
import typing
from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass
from pathlib import Path
from typing import Any

COMMON = "common"  # the section of what several programs share

_ABOUT = "thoughtbeam.setting"
_SHOWN_CHARACTERS = 100  # of a value that is refused
_BOOLEANS = {"true": True, "1": True, "false": False, "0": False}


class SettingError(ValueError):
    """A setting that cannot be used. problem: what it must be, and what it is."""

    def __init__(self, name: str, problem: str) -> None:
        super().__init__(f"{name}: {problem}")
        self.name = name
        self.problem = problem


@dataclass(frozen=True, slots=True)
class Form:
    """What a text must look like. metavar: in short. allowed: in words, to follow "must be"."""

    metavar: str
    allowed: str
    accepts: Callable[[str], bool]


@dataclass(frozen=True, slots=True)
class About:
    """What a field says of its setting; see `setting`."""

    help: str
    unit: str = ""
    at_least: float | None = None
    above: float | None = None
    at_most: float | None = None
    choices: tuple[str, ...] = ()
    form: Form | None = None
    secret: Callable[[str], str] | None = None
    common: bool = False


def setting(help: str, default: Any = MISSING, **about: Any) -> Any:
    """A field of a settings dataclass: a bool, int, float, str or Path, or one of these or None.

    default: left out, the setting must be given. about: fields of About. at_least, above, at_most: bounds of
    a number, which is always finite. choices: whatever the case of what is given. secret: gives the value
    without its secret part; a value that has one is never shown, and refused as a flag, which everybody on
    the machine can read. common: not of one program, but of all.
    """
    metadata = {_ABOUT: About(help, **about)}
    return dataclasses.field(default=default, metadata=metadata, kw_only=True)


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting of a program. default: MISSING when it must be given."""

    name: str
    kind: type
    optional: bool
    default: Any
    about: About

    @property
    def flag(self) -> str:
        return "--" + self.name.replace("_", "-")

    def variable(self, program: str) -> str:
        """Its environment variable."""
        owner = "" if self.about.common else f"{program.upper()}_"
        return f"THOUGHTBEAM_{owner}{self.name.upper()}"

    def section(self, program: str) -> str:
        """Its section of the configuration file."""
        return COMMON if self.about.common else program

    @property
    def allowed(self) -> str:
        """What it may be, in words that follow "must be"."""
        about = self.about
        if about.choices:
            return f"one of {', '.join(about.choices)}"
        if about.form is not None:
            return about.form.allowed
        if self.kind in (int, float):
            noun = "a whole number" if self.kind is int else "a number"
            unit = f" ({about.unit})" if about.unit else ""
            return f"{noun} {self._range()}".rstrip() + unit
        return {bool: "true or false", Path: "a path", str: "printable text"}[self.kind]

    def _range(self) -> str:
        least, above, most = self.about.at_least, self.about.above, self.about.at_most
        if least is not None and most is not None:
            return f"from {_number(least)} to {_number(most)}"
        bounds = (("at least", least), ("above", above), ("at most", most))
        return ", ".join(f"{word} {_number(bound)}" for word, bound in bounds if bound is not None)

    def read(self, text: str) -> Any:
        """The value of a flag or an environment variable. Raises SettingError."""
        if self.optional and not text:
            return None
        try:
            value = self._convert(text)
        except (ValueError, KeyError):
            raise self._refused(text) from None
        return self._checked(value, text)

    def take(self, value: object) -> Any:
        """The value of a TOML file. Raises SettingError, also when it is of another type."""
        if self.optional and value == "":
            return None
        if self.kind is Path and isinstance(value, str):
            return self._checked(Path(value), value)
        return self._checked(value, value)

    def check(self, value: object) -> None:
        """Raises SettingError when this is no value of this setting."""
        if value is None and self.optional:
            return
        self._checked(value, value)

    def shown(self, value: Any) -> Any:
        """The value without what is secret in it."""
        secret = self.about.secret
        return value if secret is None or value is None else secret(value)

    def written(self, value: Any) -> str:
        """The value as TOML, without what is secret in it."""
        value = self.shown(value)
        if value is None:
            return '""'
        if isinstance(value, bool):
            return str(value).lower()
        if isinstance(value, (int, float)):
            return repr(value)
        return json.dumps(str(value), ensure_ascii=False)

    def _convert(self, text: str) -> Any:
        if self.kind is bool:
            return _BOOLEANS[text.lower()]
        if self.kind in (int, float):
            # Python would also read " 1", "1_000" and the digits of other scripts
            if not text.isascii() or text.strip() != text or "_" in text:
                raise ValueError
            return self.kind(text)
        return self.kind(text)

    def _checked(self, value: Any, given: object) -> Any:
        if self.kind is float and isinstance(value, int) and not isinstance(value, bool):
            # above that a float cannot tell whole numbers apart, and far above that there are none
            value = float(value) if abs(value) < 2**53 else math.inf
        if self.about.choices and isinstance(value, str):
            value = value.lower()
        is_it = isinstance(value, self.kind) and (self.kind is bool or not isinstance(value, bool))
        if given == "" or not is_it or not self._fits(value):
            raise self._refused(given)
        return value

    def _fits(self, value: Any) -> bool:
        about = self.about
        if self.kind in (int, float):
            return (
                math.isfinite(value)
                and (about.at_least is None or value >= about.at_least)
                and (about.above is None or value > about.above)
                and (about.at_most is None or value <= about.at_most)
            )
        if self.kind in (str, Path):
            return (
                str(value).isprintable()
                and (not about.choices or value in about.choices)
                and (about.form is None or about.form.accepts(str(value)))
            )
        return True

    def _refused(self, given: object) -> SettingError:
        is_what = "" if self.about.secret else f"; is {_cut(given)}"
        return SettingError(self.name, f"must be {self.allowed}{is_what}")


def settings_of(kind: type) -> Mapping[str, Setting]:
    """The settings of a dataclass, by name, in their order."""
    hints = typing.get_type_hints(kind)
    found = {}
    for field in dataclasses.fields(kind):
        alternatives = typing.get_args(hints[field.name]) or (hints[field.name],)
        (base,) = (a for a in alternatives if a is not types.NoneType)
        found[field.name] = Setting(
            field.name, base, types.NoneType in alternatives, field.default, field.metadata[_ABOUT]
        )
    return types.MappingProxyType(found)


def check_settings(settings: Any) -> None:
    """For `__post_init__`: raises SettingError when a field has no value that its setting may have."""
    for name, known in settings_of(type(settings)).items():
        known.check(getattr(settings, name))


def _number(bound: float) -> str:
    return str(int(bound)) if bound == int(bound) else str(bound)


def _cut(given: object) -> str:
    shown = repr(given)
    return shown if len(shown) <= _SHOWN_CHARACTERS else shown[:_SHOWN_CHARACTERS] + "…"
