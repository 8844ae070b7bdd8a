"""Where settings come from, which of them wins, and what is said of one that cannot be used."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from decoder_worker.config import DecoderWorkerConfig
from gateway.config import GatewayConfig
from prm_worker.config import PrmWorkerConfig
from tests.unit.runtime.sources import Every, as_text, loaded, values
from thoughtbeam.runtime.config import PROGRAMS, ConfigError, configure, load
from thoughtbeam.runtime.settings import SettingError, settings_of

PROGRAM = "gateway"  # whose name `Every` borrows
KINDS: Mapping[str, type[Any]] = {
    "gateway": GatewayConfig,
    "decoder_worker": DecoderWorkerConfig,
    "prm_worker": PrmWorkerConfig,
}
EVERY = settings_of(Every)
LISTED = [(program, name) for program, kind in KINDS.items() for name in settings_of(kind)]
REQUIRED: Mapping[str, dict[str, Any]] = {
    "decoder_worker": {"model": "m"},
    "prm_worker": {"scorer": Path("s")},
}

given_values = st.fixed_dictionaries({}, optional={name: values(one) for name, one in EVERY.items()})

# one folder serves all examples
a_folder = settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
few = settings(a_folder, max_examples=10)


def test_every_program_is_here() -> None:
    assert set(KINDS) == set(PROGRAMS)


# ---- precedence


@a_folder
@given(flags=given_values, environment=given_values, file=given_values)
def test_the_source_with_the_highest_precedence_wins(
    tmp_path: Path, flags: dict[str, Any], environment: dict[str, Any], file: dict[str, Any]
) -> None:
    found = loaded(PROGRAM, Every, tmp_path, flags, environment, file)

    for name, one in EVERY.items():
        # an empty variable counts as not set, so that None does not come from the environment
        sources = (flags, {n: v for n, v in environment.items() if v is not None}, file, {name: one.default})
        index, highest = next((i, source) for i, source in enumerate(sources) if name in source)
        assert getattr(found.settings, name) == highest[name]
        assert found.sources[name].split()[0] == ("flag", "environment", "file", "default")[index]


@a_folder
@given(flags=given_values, environment=given_values, file=given_values)
def test_what_is_printed_gives_the_same_settings_as_a_file(
    tmp_path: Path, flags: dict[str, Any], environment: dict[str, Any], file: dict[str, Any]
) -> None:
    found = loaded(PROGRAM, Every, tmp_path, flags, environment, file)
    printed = tmp_path / "printed.toml"
    printed.write_text(found.as_toml(), encoding="utf-8")

    assert load(PROGRAM, Every, ["--config", str(printed)]).settings == found.settings


@pytest.mark.parametrize(("program", "name"), LISTED)
@few
@given(data=st.data())
def test_every_setting_of_every_program_can_come_from_every_source(
    tmp_path: Path, program: str, name: str, data: st.DataObject
) -> None:
    kind = KINDS[program]
    one = settings_of(kind)[name]
    value = data.draw(values(one).filter(lambda value: value is not None and value != one.default))
    if name == "device":
        value = "cuda:1"
    base = {**REQUIRED.get(program, {})}
    base.pop("scorer" if name == "process_reward" else name, None)
    if name == "max_deadline":
        base["default_deadline"] = value
    for source in range(3):
        sources: list[dict[str, Any]] = [dict(base), {}, {}]
        sources[source][name] = value
        assert getattr(loaded(program, kind, tmp_path, *sources).settings, name) == value


def test_a_flag_names_another_file_than_the_environment(tmp_path: Path) -> None:
    (tmp_path / "a.toml").write_text("[gateway]\ncount = 1")
    (tmp_path / "b.toml").write_text("[gateway]\ncount = 2")
    environment = {"THOUGHTBEAM_CONFIG": str(tmp_path / "a.toml")}

    assert load(PROGRAM, Every, [], environment).settings.count == 1
    assert load(PROGRAM, Every, ["--config", str(tmp_path / "b.toml")], environment).settings.count == 2


def test_a_file_is_shared_by_all_programs(tmp_path: Path) -> None:
    path = tmp_path / "all.toml"
    path.write_text(
        '[common]\nredis_url = "redis://store"\nlog_level = "debug"\n[gateway]\nmax_queued = 5\n'
        '[decoder_worker]\nmodel = "m"\n[prm_worker]\nscorer = "s"\n'
    )
    for program, kind in KINDS.items():
        assert load(program, kind, ["--config", str(path)]).settings.log_level == "debug"


@pytest.mark.parametrize(
    ("flag", "value"), [("--eager", True), ("--eager=false", False), ("--eager=1", True)]
)
def test_a_boolean_flag_needs_no_value(flag: str, value: bool) -> None:
    assert load(PROGRAM, Every, [flag]).settings.eager is value


@pytest.mark.parametrize("text", ["GREEN", "Green"])
def test_a_choice_may_be_written_in_capitals(text: str) -> None:
    assert load(PROGRAM, Every, ["--colour", text]).settings.colour == "green"


def test_a_file_of_any_name_is_printed_as_a_comment_of_one_line(tmp_path: Path) -> None:
    path = tmp_path / "two\nlines"
    path.write_text("[gateway]\ncount = 1")
    printed = tmp_path / "printed.toml"
    printed.write_text(load(PROGRAM, Every, ["--config", str(path)]).as_toml())

    assert load(PROGRAM, Every, ["--config", str(printed)]).settings.count == 1


# ---- what is refused


def refused(arguments: list[str], environment: dict[str, str] | None = None) -> str:
    with pytest.raises(ConfigError) as caught:
        load(PROGRAM, Every, arguments, environment)
    text = str(caught.value)
    assert len(text.splitlines()) == 1
    return text


NOT_NUMBERS = ["nan", "inf", "-inf", "x", " 1", "1_0", "1e999", "٣", "0x1", "1" * 5000]
BAD = {
    "count": [*NOT_NUMBERS, "-1", "1001", "1.5", "1e2", "true"],
    "pause": [*NOT_NUMBERS, "0", "-1", "60.1", "true"],
    "share": [*NOT_NUMBERS, "-0.1", "1.1"],
    "eager": ["yes", "2", "x"],
    "name": ["a\nb", "\x1b[31m", "\x00"],
    "colour": ["blue"],
    "peer": [
        "host",
        "host:",
        ":80",
        "host:0",
        "host:65536",
        "host:x",
        "a b:1",
        "http://a:1",
        "::1:80",
        "-a:1",
    ],
    "place": ["a\nb"],
    "most": ["0", "x", "1.5", "nan"],
    "least": ["-1", "nan", "inf"],
    "really": ["perhaps"],
    "title": ["a\tb"],
    "redis_url": [
        *(
            "localhost:6379",
            "http://a",
            "redis://",
            "redis://a/x",
            "redis://a:0",
            "redis://a:x",
            "redis://a b",
        ),
        *("redis://a?ssl_certfile=x", "redis://a?tiemout=1", "redis://a?db=x", "redis://a#x", "unix://"),
        "rediss://a?ssl_cert_reqs=always",
        *("redis://[::1", "redis://:***@a", "redis://a?password=***"),
    ],
    "log_level": ["loud"],
    "log_format": ["xml"],
}


@pytest.mark.parametrize(("name", "text"), [(name, text) for name, texts in BAD.items() for text in texts])
def test_a_bad_value_is_named_with_its_source_and_what_is_allowed(name: str, text: str) -> None:
    one = EVERY[name]
    variable = one.variable(PROGRAM)

    for said, source in (
        (refused([f"{one.flag}={text}"]), f"(flag {one.flag})"),
        (refused([], {variable: text}), f"(environment {variable})"),
    ):
        assert said.startswith(f"{name}: must be {one.allowed}")
        assert said.endswith(source)
        assert ("; is " in said) == (one.about.secret is None)
        assert len(said) < 400


@pytest.mark.parametrize(
    ("name", "toml"),
    [
        *(("count", bad) for bad in ("true", "1.0", '"1"', "-1", "[1]", "{}", "1979-05-27")),
        *(("pause", bad) for bad in ("nan", "inf", "-inf", "0", "true", '"1"', "1" + "0" * 400)),
        *(("eager", bad) for bad in ("1", '"true"')),
        *(("name", bad) for bad in ("1", "true", '""', r'"a\nb"')),
        *(("place", bad) for bad in ("1", '""')),
        *(("most", bad) for bad in ("0", "true")),
    ],
)
def test_a_bad_value_in_the_file_is_named(tmp_path: Path, name: str, toml: str) -> None:
    path = tmp_path / "bad.toml"
    path.write_text(f"[gateway]\n{name} = {toml}\n")

    said = refused(["--config", str(path)])

    assert said.startswith(f"{name}: must be {EVERY[name].allowed}; is ")
    assert said.endswith(f"(file {path})")


def test_a_bad_value_is_an_error_also_where_another_one_wins() -> None:
    assert refused(["--count", "1"], {"THOUGHTBEAM_GATEWAY_COUNT": "x"}) == (
        "count: must be a whole number from 0 to 1000 (things); is 'x' "
        "(environment THOUGHTBEAM_GATEWAY_COUNT)"
    )


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("[gateway]\ncuont = 1", "[gateway] has no setting cuont; the nearest is count"),
        ("[common]\nlog_levle = 1", "[common] has no setting log_levle; the nearest is log_level"),
        ('[gateway]\nlog_level = "info"', "[gateway] has no setting log_level; it belongs into [common]"),
        ("[common]\ncount = 1", "[common] has no setting count; it belongs into [gateway]"),
        ("[gatewya]\ncount = 1", "there is no section [gatewya]; the nearest is [gateway]"),
        ("count = 1", "count stands outside of a section, such as [gateway]"),
        ("gateway = 1", "gateway must be a section, [gateway]"),
        ("[gateway.count]\na = 1", "count: must be a whole number from 0 to 1000 (things); is {'a': 1}"),
    ],
)
def test_what_the_file_should_not_have_is_named(tmp_path: Path, content: str, said: str) -> None:
    path = tmp_path / "bad.toml"
    path.write_text(content)

    assert refused(["--config", str(path)]) == f"{said} (file {path})"


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"[gateway", "is not TOML: .*end of document"),
        (b"\xff", "is not UTF-8"),
        (b"a = 1\na b", "is not TOML: .*line 2"),
        (None, "cannot be read: No such file or directory"),
    ],
)
def test_a_file_that_is_none_is_named(tmp_path: Path, content: bytes | None, said: str) -> None:
    path = tmp_path / "bad.toml"
    if content is not None:
        path.write_bytes(content)

    for text, source in (
        (refused(["--config", str(path)]), "flag --config"),
        (refused([], {"THOUGHTBEAM_CONFIG": str(path)}), "environment THOUGHTBEAM_CONFIG"),
    ):
        assert re.fullmatch(rf"config: {re.escape(str(path))} {said}.* \({source}\)", text)


def test_an_unknown_variable_of_the_program_is_named() -> None:
    assert refused([], {"THOUGHTBEAM_GATEWAY_CUONT": "1"}) == (
        "there is no variable THOUGHTBEAM_GATEWAY_CUONT; the nearest is THOUGHTBEAM_GATEWAY_COUNT "
        "(environment)"
    )
    assert "nearest is THOUGHTBEAM_REDIS_URL" in refused([], {"THOUGHTBEAM_GATEWAY_REDIS_URL": "redis://a"})
    # of another program, or of none
    load(PROGRAM, Every, [], {"THOUGHTBEAM_PRM_WORKER_CUONT": "1", "THOUGHTBEAM_HOME": "x"})


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--cuont", "1"], "there is no flag --cuont; the nearest is --count"),
        (["--coun=1"], "there is no flag --coun; the nearest is --count"),
        (["1"], "there is an argument that belongs to no flag; see --help"),
        (["--count"], "--count: expected one argument"),
    ],
)
def test_an_unknown_flag_is_named(arguments: list[str], said: str) -> None:
    assert refused(arguments) == said


def test_a_setting_that_must_be_given_says_where(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        load("decoder_worker", DecoderWorkerConfig)

    assert str(caught.value) == (
        "model: must be given: flag --model, environment THOUGHTBEAM_DECODER_WORKER_MODEL, or in the section "
        "[decoder_worker] of the configuration file"
    )


def test_settings_that_contradict_each_other_are_named_with_their_source() -> None:
    with pytest.raises(ConfigError) as caught:
        load("gateway", GatewayConfig, ["--max-deadline", "5"], {"THOUGHTBEAM_GATEWAY_DEFAULT_DEADLINE": "6"})

    assert str(caught.value) == (
        "default_deadline: must be at most max_deadline, 5 (seconds); is 6 "
        "(environment THOUGHTBEAM_GATEWAY_DEFAULT_DEADLINE)"
    )


# ---- a settings class made by hand


@given(changed=given_values)
def test_a_settings_class_can_be_made_directly(changed: dict[str, Any]) -> None:
    made = Every(**changed)
    for field in dataclasses.fields(made):
        assert getattr(made, field.name) == changed.get(field.name, field.default)


@pytest.mark.parametrize(
    ("name", "value"),
    [("count", True), ("count", 1.0), ("count", None), ("pause", float("nan")), ("name", 1), ("place", "x")],
)
def test_a_settings_class_refuses_what_a_file_could_not_hold(name: str, value: object) -> None:
    with pytest.raises(SettingError, match=f"^{name}: must be "):
        Every(**{name: value})  # type: ignore[arg-type]


# ---- secrets

SECRETS = [
    "redis://:hunter2@host",
    "redis://user:hunter2@host:1/2",
    "rediss://host?password=hunter2&db=1",
    "unix:///run/redis?db=1&password=hunter2",
]


@pytest.mark.parametrize("url", SECRETS)
def test_a_password_in_the_url_is_taken_and_not_shown(url: str, tmp_path: Path) -> None:
    found = load(PROGRAM, Every, [], {"THOUGHTBEAM_REDIS_URL": url})

    assert found.settings.redis_url == url
    printed = found.as_toml()
    assert "hunter2" not in printed
    assert "***" in printed
    assert "environment THOUGHTBEAM_REDIS_URL, masked here" in printed
    # a masked password is none, and is not tried as one
    path = tmp_path / "printed.toml"
    path.write_text(printed)
    assert refused(["--config", str(path)]).startswith("redis_url: must be ")


@pytest.mark.parametrize("url", SECRETS)
def test_a_password_is_refused_as_a_flag_because_everybody_sees_it(url: str) -> None:
    said = refused([f"--redis-url={url}"])
    assert "process list" in said
    assert "redis_password_file" in said
    assert "hunter2" not in said


@pytest.mark.parametrize(
    "arguments",
    [
        ["--redis-url=http://:hunter2@host"],
        ["--redis-ulr=redis://:hunter2@host"],
        ["--redis-ulr", "redis://:hunter2@host"],
        ["redis://:hunter2@host"],
    ],
)
def test_no_error_repeats_what_may_be_a_secret(arguments: list[str]) -> None:
    assert "hunter2" not in refused(arguments)
    assert "hunter2" not in refused([], {"THOUGHTBEAM_REDIS_URL": "http://:hunter2@host"})


@pytest.mark.parametrize(
    ("content", "password"),
    [
        ("hunter2", "hunter2"),
        ("hunter2\n", "hunter2"),
        ("hunter2\r\n", "hunter2"),
        (" a\n\n", " a\n"),
        ("ü", "ü"),
    ],
)
def test_a_password_comes_from_its_file_but_for_the_newline(
    tmp_path: Path, content: str, password: str
) -> None:
    path = tmp_path / "password"
    path.write_bytes(content.encode())

    assert Every(redis_password_file=path).redis_password() == password
    assert Every().redis_password() is None


def test_a_password_file_that_gives_none_is_named(tmp_path: Path) -> None:
    (tmp_path / "empty").write_text("\n")
    (tmp_path / "binary").write_bytes(b"\xff")
    (tmp_path / "good").write_text("hunter2")
    for name, said in (
        ("missing", "cannot be read: No such file or directory"),
        (".", "cannot be read: Is a directory"),
        ("empty", "is empty"),
        ("binary", "cannot be read: not UTF-8"),
    ):
        with pytest.raises(SettingError, match=f"^redis_password_file: .*{said}$"):
            Every(redis_password_file=tmp_path / name).redis_password()
    with pytest.raises(SettingError, match=r"^redis_password_file: must not .* redis_url has a"):
        Every(redis_url=SECRETS[0], redis_password_file=tmp_path / "good").redis_password()


# ---- as the programs use it


def test_print_config_prints_and_ends(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("THOUGHTBEAM_GATEWAY_COUNT", "7")
    monkeypatch.delenv("THOUGHTBEAM_LOG_LEVEL", raising=False)
    with pytest.raises(SystemExit) as caught:
        configure(PROGRAM, Every, "Does things.", ["--print-config", "--eager"])

    assert caught.value.code == 0
    output = capsys.readouterr().out
    assert output.startswith('[common]\nlog_level = "info"  # default\n')
    assert "\n\n[gateway]\ncount = 7  # environment THOUGHTBEAM_GATEWAY_COUNT\n" in output
    assert "\neager = true  # flag --eager\n" in output
    assert '\ntitle = ""  # default\n' in output


def test_a_bad_configuration_is_one_line_and_status_2(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        configure(PROGRAM, Every, "Does things.", ["--count", "x"])

    assert caught.value.code == 2
    assert capsys.readouterr().err == (
        "gateway: count: must be a whole number from 0 to 1000 (things); is 'x' (flag --count)\n"
    )


@pytest.mark.parametrize("program", KINDS)
def test_help_shows_everything_about_every_setting(
    program: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "1000")
    with pytest.raises(SystemExit) as caught:
        configure(program, KINDS[program], "Does things.", ["--help"])

    assert caught.value.code == 0
    text = " ".join(capsys.readouterr().out.partition("\nsettings:")[2].split())
    for one in settings_of(KINDS[program]).values():
        _, found, after = text.partition(f"{one.flag} ")
        assert found
        own, found, _ = after.partition(f"environment {one.variable(program)}")
        assert found
        assert "environment" not in own, "it is that of this setting"
        assert one.about.help in own
        assert one.allowed in own
        default = "must be given" if one.default is dataclasses.MISSING else as_text(one.default) or "none"
        assert default in own
