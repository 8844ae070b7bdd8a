"""Parameters: profiles, overrides as JSON gives them, and errors that name everything at once."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from decoder_worker.policies import POLICIES, Limits, ParameterError, describe, make_policy
from decoder_worker.policies.parameters import PROFILES, specs

WIDE = Limits(max_capacity=512, max_context=32_768)


def violations(
    name: str, profile: str = "tiny", limits: Limits = WIDE, **overrides: object
) -> dict[str, str]:
    with pytest.raises(ParameterError) as caught:
        make_policy(name, profile, overrides, limits)
    assert all(f"{n}: {d}" in str(caught.value) for n, d in caught.value.violations)
    return dict(caught.value.violations)


def test_profiles() -> None:
    paper = make_policy("gambit", "paper", {}, WIDE).parameters
    assert (paper.C, paper.K, paper.interval, paper.warmup, paper.high_water, paper.N_max) == (
        256,
        16,
        200,
        12_000,
        0.9,
        256,
    )
    tiny = make_policy("gambit", "tiny", {}, Limits(max_capacity=24, max_context=1500)).parameters
    assert (tiny.C, tiny.K, tiny.N_max) == (24, 4, 24)
    assert make_policy("vanilla", "paper", {}, Limits(1, 1)).capacity == 1


@pytest.mark.parametrize("kind", POLICIES.values())
def test_made_without_arguments_parameters_are_those_of_the_paper(kind: type) -> None:
    paper = make_policy(kind.name, "paper", {}, WIDE).parameters
    assert kind.parameters_type() == paper


def test_json_numbers_are_floats() -> None:
    policy = make_policy("gambit", "tiny", {"K": 3.0, "high_water": 1.0, "refill": False, "N_max": 8}, WIDE)
    assert policy.parameters.K == 3
    assert type(policy.parameters.K) is int
    assert type(policy.parameters.high_water) is float
    assert policy.parameters.refill is False


@pytest.mark.parametrize(
    ("name", "value", "allowed"),
    [
        ("K", 1.5, "a whole number from 0 to 32768"),
        ("K", -1.0, "a whole number from 0 to 32768"),
        ("K", math.nan, "a whole number"),
        ("K", math.inf, "a whole number"),
        ("K", -math.inf, "a whole number"),
        ("K", True, "a whole number"),
        ("K", "4", "a whole number"),
        ("K", None, "a whole number"),
        ("K", [4.0], "a whole number from 0 to 32768, not a list"),
        ("C", 513.0, "a whole number from 1 to 512 (the worker takes up to 512 traces)"),
        ("C", 0.0, "a whole number from 1 to 512"),
        ("warmup", 32_768.0, "a whole number from 0 to 32767 (below the longest trace, 32768 tokens)"),
        ("interval", 0.0, "a whole number from 1 to 1000000"),
        ("high_water", 1.01, "a number from 0.05 to 1.0"),
        ("high_water", 0.0, "a number from 0.05 to 1.0"),
        ("high_water", math.nan, "a number from 0.05 to 1.0"),
        ("high_water", False, "a number from 0.05 to 1.0"),
        ("child_temperature", 2.5, "a number from 0.0 to 2.0 or null"),
        ("refill", 1.0, "true or false"),
        ("refill", "yes", "true or false"),
        ("interval_scope", "node", "one of tree, trace"),
        ("interval_scope", 1.0, "one of tree, trace"),
        ("interval_scope", {"a": 1}, "one of tree, trace, not a dict"),
    ],
)
def test_a_bad_value_is_named_with_what_is_allowed(name: str, value: object, allowed: str) -> None:
    found = violations("gambit", **{name: value})
    assert list(found) == [name]
    assert found[name].startswith(f"must be {allowed}")


def test_all_violations_come_at_once() -> None:
    found = violations("gambit", C=600.0, K=1.5, refill="no", child_temperature=-1.0, capacitee=3.0)
    assert set(found) == {"C", "K", "refill", "child_temperature", "capacitee"}


def test_rules_across_parameters_are_checked_beside_single_ones() -> None:
    found = violations("gambit", C=8.0, K=5.0, refill=False, N_max=9.0, high_water=7.0)
    assert found["K"] == "must be a whole number from 0 to 4 (half of C = 8), not 5"
    assert found["N_max"].startswith("must be a whole number from 1 to 8 when refill is off, not 9")
    assert "high_water" in found


def test_but_not_on_values_that_are_refused_themselves() -> None:
    # K = 4 cannot be judged against a C that is none
    assert set(violations("gambit", C=-1.0, K=4.0)) == {"C"}


@pytest.mark.parametrize(
    ("overrides", "blamed"),
    [
        ({"C": 256.0, "K": 129.0}, "K"),
        ({"refill": False, "N_max": 25.0}, "N_max"),
        ({"interval_scope": "trace", "interval": 40_000.0}, "interval"),
        ({"refill": False, "K": 0.0, "child_temperature": 0.5}, "child_temperature"),
        ({"warmup": 40_000.0}, "warmup"),
    ],
)
def test_what_can_never_act_is_refused(overrides: dict[str, object], blamed: str) -> None:
    assert list(violations("gambit", **overrides)) == [blamed]


@pytest.mark.parametrize(
    ("name", "overrides", "blamed"),
    [
        ("slim_sc", {"start_after": 32_768.0}, "start_after"),
        ("slim_sc", {"start_after": 99.0, "shortest": 328.0}, "start_after"),
        ("deepconf", {"N": 24.0, "consensus_traces": 25.0}, "consensus_traces"),
        ("deepconf", {"N": 24.0, "warmup_traces": 25.0}, "warmup_traces"),
    ],
)
def test_what_can_never_act_is_refused_in_every_policy(
    name: str, overrides: dict[str, object], blamed: str
) -> None:
    assert list(violations(name, **overrides)) == [blamed]


def test_what_acts_only_online_may_be_anything_offline() -> None:
    make_policy("deepconf", "tiny", {"N": 2.0, "mode": "offline", "consensus_traces": 25.0}, WIDE)


def test_a_default_that_does_not_fit_the_worker_says_where_it_comes_from() -> None:
    found = violations("gambit", "paper", Limits(max_capacity=64, max_context=2048))
    assert found["C"].endswith("not 256 (the default of profile paper)")
    assert found["warmup"].endswith("not 12000 (the default of profile paper)")
    assert set(found) == {"C", "warmup"}


@pytest.mark.parametrize(
    ("typo", "meant"),
    [
        ("k", "K"),
        ("n_max", "N_max"),
        ("nmax", "N_max"),
        ("warm_up", "warmup"),
        ("Δ", "interval"),
        ("r", "high_water"),
        ("w", "warmup"),
        ("refil", "refill"),
        ("child_temprature", "child_temperature"),
    ],
)
def test_an_unknown_parameter_names_the_nearest(typo: str, meant: str) -> None:
    assert violations("gambit", **{typo: 1.0})[typo].startswith(f"no such parameter; did you mean {meant}?")


def test_an_unknown_parameter_without_a_neighbour_names_all() -> None:
    text = violations("self_consistency", zzz=1.0)["zzz"]
    assert text == "no such parameter; known are N"
    assert violations("vanilla", N=1.0)["N"] == "no such parameter: this policy has none"


def test_unknown_policy_and_profile() -> None:
    assert violations("gambitt")["policy"].startswith("no such policy; did you mean gambit?")
    assert violations("")["policy"] == ("no such policy; known are " + ", ".join(POLICIES))
    assert violations("gambit", "small")["profile"] == "must be one of paper, tiny, not 'small'"


@pytest.mark.parametrize("huge", ["x" * 100_000, {"a": "y" * 100_000}])
def test_errors_stay_short(huge: object) -> None:
    found = violations("gambit", K=huge, **{"q" * 100_000: 1.0})
    assert all(len(name) + len(text) < 300 for name, text in found.items())


json_values = st.recursive(
    st.none() | st.booleans() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


@settings(max_examples=60, deadline=None)
@given(
    name=st.sampled_from(sorted(POLICIES)),
    profile=st.sampled_from(PROFILES),
    overrides=st.dictionaries(
        st.sampled_from(sorted({n for kind in POLICIES.values() for n in specs(kind.parameters_type)}))
        | st.text(),
        json_values,
        max_size=4,
    ),
    limits=st.builds(Limits, st.integers(1, 600), st.integers(1, 40_000)),
)
def test_anything_gives_a_policy_within_the_limits_or_a_parameter_error(
    name: str, profile: str, overrides: dict[str, object], limits: Limits
) -> None:
    try:
        policy = make_policy(name, profile, overrides, limits)
    except ParameterError:
        return
    assert 1 <= policy.capacity <= limits.max_capacity
    assert 0 < policy.high_water <= 1
    for parameter, spec in specs(policy.parameters_type).items():
        value = getattr(policy.parameters, parameter)
        if spec.kind in ("int", "float") and value is not None:
            assert spec.minimum <= value <= spec.maximum


def test_description_is_complete() -> None:
    infos = describe()
    assert [info.name for info in infos] == list(POLICIES)
    for info in infos:
        assert info.summary
        assert info.source
        for parameter in info.parameters:
            assert parameter.description.endswith(".")
            assert "\n" not in parameter.description
            assert parameter.source
            assert set(parameter.defaults) == set(PROFILES)
            assert (parameter.kind == "choice") == bool(parameter.choices)
            assert (parameter.kind in ("int", "float")) == (parameter.maximum is not None)
    gambit = {p.name: p for p in next(i for i in infos if i.name == "gambit").parameters}
    assert gambit["interval"].symbol == "Δ"
    assert gambit["interval"].defaults == {"paper": 200, "tiny": 48}
    assert gambit["interval_scope"].choices == ("tree", "trace")
    assert (gambit["high_water"].minimum, gambit["high_water"].maximum) == (0.05, 1.0)
