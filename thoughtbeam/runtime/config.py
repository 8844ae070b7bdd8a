"""The configuration of a program, from its sources: a flag wins over the environment, that over the file, and
that over the default.

    --max-queued 5                    THOUGHTBEAM_GATEWAY_MAX_QUEUED=5                [gateway]
                                                                                      max_queued = 5

What several programs share has variables without a program (THOUGHTBEAM_LOG_LEVEL) and the section [common].
The file is named by --config or THOUGHTBEAM_CONFIG. A variable that is empty counts as not set.
"""

from __future__ import annotations

import argparse
import difflib
import os
import sys
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import MISSING, dataclass
from pathlib import Path
from typing import Any, Generic, NoReturn, TypeVar

from thoughtbeam.runtime.common_settings import StoreSettings
from thoughtbeam.runtime.settings import COMMON, Setting, SettingError, settings_of

PROGRAMS = ("gateway", "decoder_worker", "prm_worker")
_PRECEDENCE = (
    "A setting comes from its flag, else from the environment, else from the TOML file, "
    "else it has its default."
)
CONFIG_VARIABLE = "THOUGHTBEAM_CONFIG"
BAD_CONFIGURATION = 2  # exit status

_SECRET_FLAG = (
    "must not have a password here, where everybody on this machine reads it in the process list; "
    "put it into redis_password_file, or the URL into the environment"
)

C = TypeVar("C")

# of all programs; one of them may have fewer
_COMMON_NAMES = [name for name, known in settings_of(StoreSettings).items() if known.about.common]


class ConfigError(ValueError):
    """A configuration that cannot be used; one line that says where and what is allowed."""


@dataclass(frozen=True, slots=True)
class Loaded(Generic[C]):
    """settings: what is in effect. sources: by setting, where its value came from."""

    program: str
    settings: C
    sources: Mapping[str, str]

    def as_toml(self) -> str:
        """A configuration file that gives the same settings, but for what is secret, which is masked."""
        known = settings_of(type(self.settings))
        sections: dict[str, list[str]] = {COMMON: [], self.program: []}
        for name, one in known.items():
            value = getattr(self.settings, name)
            masked = ", masked here" if one.shown(value) != value else ""
            line = f"{name} = {one.written(value)}  # {self.sources[name]}{masked}"
            sections[one.section(self.program)].append(line)
        return "\n\n".join("\n".join((f"[{name}]", *lines)) for name, lines in sections.items()) + "\n"


def configure(program: str, kind: type[C], description: str, arguments: Sequence[str] | None = None) -> C:
    """The settings of a program as it is started.

    Exits: after --help and --print-config with status 0, on a bad configuration with one line and status 2.
    """
    given = sys.argv[1:] if arguments is None else arguments
    try:
        parser = _parser(program, kind, description)
        flags = _parse(parser, given)
        loaded = _load(program, kind, flags, os.environ)
    except ConfigError as error:
        refuse(program, error)
    if flags.get("print_config"):
        sys.stdout.write(loaded.as_toml())
        raise SystemExit(0)
    return loaded.settings


def refuse(program: str, error: ValueError) -> NoReturn:
    """Ends a program whose configuration cannot be used."""
    sys.stderr.write(f"{program}: {error}\n")
    raise SystemExit(BAD_CONFIGURATION) from None


def load(
    program: str, kind: type[C], arguments: Sequence[str] = (), environment: Mapping[str, str] | None = None
) -> Loaded[C]:
    """The settings of a program. environment: None for no variable at all. Raises ConfigError."""
    return _load(program, kind, _parse(_parser(program, kind, ""), arguments), environment or {})


def _load(program: str, kind: type[C], flags: Mapping[str, str], environment: Mapping[str, str]) -> Loaded[C]:
    known = settings_of(kind)
    values: dict[str, Any] = {}
    sources: dict[str, str] = {}
    # the highest precedence last
    found = [
        *_from_file(program, known, flags.get("config", ""), environment),
        *_from_environment(program, known, environment),
        *_from_flags(known, flags),
    ]
    for one, value, source in found:
        sources[one.name] = source
        try:
            values[one.name] = one.read(value.text) if isinstance(value, _Text) else one.take(value)
        except SettingError as error:
            raise ConfigError(f"{error} ({source})") from None
        if source.startswith("flag") and one.shown(values[one.name]) != values[one.name]:
            raise ConfigError(f"{one.name}: {_SECRET_FLAG} ({source})")
    for one in known.values():
        if one.name not in values:
            if one.default is MISSING:
                raise ConfigError(
                    f"{one.name}: must be given: flag {one.flag}, environment {one.variable(program)}, or "
                    f"in the section [{one.section(program)}] of the configuration file"
                )
            sources[one.name] = "default"
    try:
        return Loaded(program, kind(**values), sources)
    except SettingError as error:
        raise ConfigError(f"{error} ({sources[error.name]})") from None


# ---- sources: each gives settings with their values and where these are from


@dataclass(frozen=True, slots=True)
class _Text:
    """A value that is still to be read."""

    text: str


_Found = tuple[Setting, object, str]


def _from_flags(known: Mapping[str, Setting], flags: Mapping[str, str]) -> Iterable[_Found]:
    for name, one in known.items():
        if name in flags:
            yield one, _Text(flags[name]), f"flag {one.flag}"


def _from_environment(
    program: str, known: Mapping[str, Setting], environment: Mapping[str, str]
) -> Iterable[_Found]:
    variables = {one.variable(program): one for one in known.values()}
    for variable in environment:
        if variable.startswith(f"THOUGHTBEAM_{program.upper()}_") and variable not in variables:
            raise ConfigError(f"there is no variable {variable}{_nearest(variable, variables)} (environment)")
    for variable, one in variables.items():
        if environment.get(variable):
            yield one, _Text(environment[variable]), f"environment {variable}"


def _from_file(
    program: str, known: Mapping[str, Setting], named: str, environment: Mapping[str, str]
) -> Iterable[_Found]:
    source = "flag --config" if named else f"environment {CONFIG_VARIABLE}"
    named = named or environment.get(CONFIG_VARIABLE, "")
    if not named:
        return
    sections = _read_file(Path(named), source)
    # it stands in messages of one line, and in comments of a TOML file
    named = named if named.isprintable() else repr(named)
    mine = {one.name: one for one in known.values() if not one.about.common}
    common = {one.name: one for one in known.values() if one.about.common}
    _check_sections(sections, program, named)
    for section, names in ((COMMON, common), (program, mine)):
        allowed = [*names, *_COMMON_NAMES] if section == COMMON else [*names]
        for name, value in sections.get(section, {}).items():
            if name not in allowed:
                raise ConfigError(
                    f"[{section}] has no setting {name}{_placed(name, section, program, mine)} (file {named})"
                )
            if name in names:
                yield names[name], value, f"file {named}"


def _read_file(path: Path, source: str) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"config: {path} cannot be read: {error.strerror} ({source})") from None
    except UnicodeDecodeError:
        raise ConfigError(f"config: {path} is not UTF-8 ({source})") from None
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise ConfigError(f"config: {path} is not TOML: {error} ({source})") from None


def _check_sections(sections: Mapping[str, Any], program: str, named: str) -> None:
    allowed = (COMMON, *PROGRAMS)
    for section, content in sections.items():
        if section in allowed:
            if not isinstance(content, dict):
                raise ConfigError(f"{section} must be a section, [{section}] (file {named})")
        elif isinstance(content, dict):
            near = _nearest(f"[{section}]", [f"[{name}]" for name in allowed])
            raise ConfigError(f"there is no section [{section}]{near} (file {named})")
        else:
            raise ConfigError(f"{section} stands outside of a section, such as [{program}] (file {named})")


def _placed(name: str, section: str, program: str, mine: Mapping[str, Setting]) -> str:
    """Where a name belongs that its section does not have."""
    if section != COMMON and name in _COMMON_NAMES:
        return f"; it belongs into [{COMMON}]"
    if section == COMMON and name in mine:
        return f"; it belongs into [{program}]"
    return _nearest(name, _COMMON_NAMES if section == COMMON else mine)


def _nearest(name: str, known: Iterable[str]) -> str:
    known = list(known)
    near = difflib.get_close_matches(name[:100], known, n=1, cutoff=0)
    return f"; the nearest is {near[0]}" if near else ""


# ---- the command line


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise ConfigError(message.removeprefix("argument "))


def _parser(program: str, kind: type, description: str) -> argparse.ArgumentParser:
    parser = _Parser(
        prog=f"python -m {program}",
        description=f"{description} {_PRECEDENCE}",
        allow_abbrev=False,
        argument_default=argparse.SUPPRESS,
    )
    parser.add_argument(
        "--config", metavar="FILE", help=f"TOML file with settings; environment {CONFIG_VARIABLE}"
    )
    parser.add_argument(
        "--print-config", action="store_true", help="print the settings and where each is from, and exit"
    )
    group = parser.add_argument_group("settings")
    for one in settings_of(kind).values():
        group.add_argument(
            one.flag,
            dest=one.name,
            metavar=_metavar(one),
            # %: argparse would take it for a format
            help=_help(one, program).replace("%", "%%"),
            nargs="?" if one.kind is bool else None,
            const="true" if one.kind is bool else None,
        )
    return parser


def _parse(parser: argparse.ArgumentParser, arguments: Sequence[str]) -> dict[str, str]:
    found, unknown = parser.parse_known_args(arguments)
    if unknown:
        # what is no flag may be a misplaced secret
        flags = [text.partition("=")[0] for text in unknown if text.startswith("--")]
        if not flags:
            raise ConfigError("there is an argument that belongs to no flag; see --help")
        every = [option for action in parser._actions for option in action.option_strings]
        raise ConfigError(f"there is no flag {flags[0]}{_nearest(flags[0], every)}")
    return vars(found)


def _metavar(one: Setting) -> str:
    if one.about.form is not None:
        return one.about.form.metavar
    if one.about.choices:
        return "|".join(one.about.choices)
    kinds = {bool: "true|false", int: "N", float: "X", str: "TEXT", Path: "FILE"}
    return one.about.unit.upper() or kinds[one.kind]


def _help(one: Setting, program: str) -> str:
    parts = (one.about.help, one.allowed, default_of(one), f"environment {one.variable(program)}")
    return "; ".join(parts)


def default_of(one: Setting) -> str:
    """What it is when it is not given, in words."""
    if one.default is MISSING:
        return "must be given"
    if one.default is None:
        return "default: none"
    return f"default: {one.written(one.default)}"
