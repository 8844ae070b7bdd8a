"""What a worker refuses before it runs anything, and what it makes of the rest."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import grpc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from decoder_worker.admission import prepare
from decoder_worker.engine.base import EngineInfo, SamplingSpec
from decoder_worker.engine.scripted_traces import ScriptedTokenizer
from decoder_worker.policies import POLICIES, describe
from decoder_worker.policies.base import Policy
from decoder_worker.policies.parameters import specs
from decoder_worker.scoring.info import ScorerInfo
from decoder_worker.spec import SearchSpec
from thoughtbeam.runtime.status import StatusError, to_status
from thoughtbeam.v1 import reasoning_pb2 as pb

ENGINE = EngineInfo(
    model="scripted",
    fingerprint="scripted",
    version="scripted",
    boundary_rule="blank_line",
    hidden_size=4,
    max_context=1000,
    slots=8,
    block_size=16,
    kv_blocks=100,
    default_sampling=SamplingSpec(temperature=0.7, top_p=0.9, top_k=20),
)
QUESTION = "What is 6 x 7?"
PROMPT = ScriptedTokenizer().encode_chat([{"role": "user", "content": QUESTION}])
NAN, INFINITY = math.nan, math.inf


class StrictTemplate(ScriptedTokenizer):
    """A chat template that refuses system messages."""

    def encode_chat(self, messages: Sequence[Mapping[str, str]]) -> list[int]:
        if any(message["role"] == "system" for message in messages):
            raise KeyError("System role not supported")
        if any(message["content"] == "nothing" for message in messages):
            return []
        return super().encode_chat(messages)


def ask(parameters: Mapping[str, Any] | None = None, **fields: Any) -> pb.Search:
    if "conversation" not in fields:
        fields.setdefault("question", QUESTION)
    search = pb.Search(**{"policy": "gambit", **fields})
    search.parameters.update(parameters or {})
    return search


def admit(search: pb.Search, **changed: Any) -> tuple[SearchSpec, Policy[Any]]:
    given = {
        "deadline": 5.0,
        "engine": ENGINE,
        "tokenizer": StrictTemplate(),
        "profile": "tiny",
        "max_capacity": 32,
        "scorer": ScorerInfo("mlp"),
        "has_embedder": True,
    }
    return prepare("t", search, **{**given, **changed})


def refusal(search: pb.Search, **changed: Any) -> StatusError:
    with pytest.raises(StatusError) as refused:
        admit(search, **changed)
    return refused.value


def violations(error: StatusError) -> dict[str, str]:
    assert error.code is grpc.StatusCode.INVALID_ARGUMENT
    found = {violation.field: violation.description for violation in error.violations}
    assert len(found) == len(error.violations)
    return found


# ---- parameters


@pytest.mark.parametrize(
    "value", [0, -1, 33, 1.5, 1e300, "many", True, [4], {"of": 4}, NAN, INFINITY, -INFINITY]
)
def test_a_bad_whole_number_is_named_with_its_range(value: object) -> None:
    error = refusal(ask({"C": value}))
    assert error.reason == "INVALID_FIELD"
    [(field, description)] = violations(error).items()
    assert field == "search.parameters.C"
    assert "a whole number from 1 to 32 (the worker takes up to 32 traces)" in description


@pytest.mark.parametrize("value", [0.0, 1.01, "high", NAN, INFINITY])
def test_a_bad_real_number_is_named_with_its_range(value: object) -> None:
    [(field, description)] = violations(refusal(ask({"high_water": value}))).items()
    assert field == "search.parameters.high_water"
    assert "a number from 0.05 to 1" in description


@pytest.mark.parametrize(
    ("name", "value", "allowed"),
    [
        ("refill", "yes", "true or false"),
        ("interval_scope", "forest", "one of tree, trace"),
        ("child_temperature", 2.5, "a number from 0.0 to 2.0 or null"),
        # below the longest trace: one token of the context less than what the prompt leaves
        ("warmup", 1000, f"a whole number from 0 to {1000 - len(PROMPT) - 1}"),
        ("K", 13, "a whole number from 0 to 12"),
        ("c", 8, "did you mean C?"),
        ("beam_width", 8, "no such parameter; known are C, K"),
    ],
)
def test_other_kinds_of_parameters(name: str, value: object, allowed: str) -> None:
    [(field, description)] = violations(refusal(ask({name: value}))).items()
    assert field == f"search.parameters.{name}"
    assert allowed in description


def test_every_bad_parameter_is_named_at_once() -> None:
    error = refusal(ask({"C": 0, "K": -1, "interval": NAN, "wamrup": 3}))
    assert set(violations(error)) == {
        f"search.parameters.{name}" for name in ("C", "K", "interval", "wamrup")
    }


def test_a_default_that_does_not_fit_the_worker_is_named_with_its_profile() -> None:
    found = violations(refusal(ask(profile="paper")))
    assert "(the default of profile paper)" in found["search.parameters.C"]
    assert "from 1 to 32" in found["search.parameters.C"]


def test_unknown_policies_and_profiles() -> None:
    assert (
        "did you mean gambit? known are vanilla" in violations(refusal(ask(policy="gambi")))["search.policy"]
    )
    found = violations(refusal(ask(profile="large")))
    assert "one of paper, tiny" in found["search.profile"]


# ---- the prompt and the room for traces


def test_a_chat_template_that_refuses_names_the_prompt() -> None:
    conversation = pb.Conversation(messages=[pb.ChatMessage(role="system", content="Be brief.")])
    error = refusal(ask(conversation=conversation))
    assert error.reason == "INVALID_FIELD"
    assert "System role not supported" in violations(error)["search.conversation.messages"]


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"question": "x" * 1000}, "search.question"),
        (
            {"conversation": pb.Conversation(messages=[pb.ChatMessage(role="user", content="x" * 1000)])},
            "search.conversation.messages",
        ),
        # also where a length is asked for: there is none that would do
        ({"question": "x" * 1000, "budgets": pb.Budgets(trace_tokens=5)}, "search.question"),
    ],
)
def test_a_prompt_that_leaves_no_room(fields: Mapping[str, Any], field: str) -> None:
    error = refusal(ask(**fields))
    assert error.reason == "INVALID_FIELD"
    assert "the context 1000: 0 are left for a trace" in violations(error)[field]


def test_longer_traces_than_the_context_has_room_for() -> None:
    room = 1000 - len(PROMPT)
    error = refusal(ask(budgets=pb.Budgets(trace_tokens=room + 1)))
    assert error.reason == "INVALID_FIELD"
    assert f"{room} are left for a trace, not {room + 1}" in violations(error)["search.budgets.trace_tokens"]


def test_a_policy_with_vectors_on_a_worker_without_an_embedder() -> None:
    error = refusal(ask(policy="slim_sc"), has_embedder=False)
    assert (error.code, error.reason) == (grpc.StatusCode.FAILED_PRECONDITION, "NO_EMBEDDER")
    assert "thoughtbeam[slim_sc]" in error.message
    assert "embedding_model" in error.message
    admit(ask(policy="self_consistency"), has_embedder=False)


def test_a_policy_with_scores_on_a_worker_without_a_scorer() -> None:
    error = refusal(ask(), scorer=None)
    assert (error.code, error.reason) == (grpc.StatusCode.FAILED_PRECONDITION, "NO_SCORER")
    # how to get one, and what needs none
    assert "python -m prm_worker --scorer FILE" in error.message
    assert "--scorer HOST:PORT" in error.message
    others = error.message.partition("Without one there are: ")[2].split(", ")
    assert others == [policy.name for policy in describe() if not policy.needs_scores]
    admit(ask(policy="vanilla"), scorer=None)


# ---- what the KV cache can never hold


@pytest.mark.parametrize(("policy", "name"), [("gambit", "C"), ("self_consistency", "N"), ("best_of_n", "N")])
def test_a_capacity_that_kv_can_never_hold_is_named_with_the_largest_that_fits(
    policy: str, name: str
) -> None:
    shared = len(PROMPT) // 16
    small = replace(ENGINE, max_context=96, kv_blocks=shared + 5)
    asked = {name: 6} | ({"K": 2, "warmup": 10} if policy == "gambit" else {})
    [(field, description)] = violations(refusal(ask(asked, policy=policy), engine=small)).items()
    assert field == f"search.parameters.{name}"
    assert description == (
        f"must be a whole number from 1 to 5, not 6: the KV cache has {shared + 5} blocks of 16 tokens, the "
        f"prompt takes {shared}, and each of 6 traces that run at once takes at least one more"
    )
    admit(ask({**asked, name: 5}, policy=policy), engine=small)
    # more than run at once never need a block at once
    admit(ask(asked, policy=policy), engine=replace(small, slots=5))


# ---- anything else


@pytest.mark.parametrize(
    ("fields", "field", "allowed"),
    [
        ({"sampling": pb.Sampling(temperature=NAN)}, "search.sampling.temperature", "from 0 to 2"),
        ({"sampling": pb.Sampling(temperature=-1)}, "search.sampling.temperature", "from 0 to 2"),
        ({"sampling": pb.Sampling(top_p=INFINITY)}, "search.sampling.top_p", "at most 1"),
        ({"sampling": pb.Sampling(top_k=0)}, "search.sampling.top_k", "at least 1"),
        ({"answer_mode": 77}, "search.answer_mode", "ANSWER_MODE_NONE"),
        ({"answer_mode": pb.ANSWER_MODE_REGEX, "answer_regex": "("}, "search.answer_regex", "Python's re"),
        (
            {"answer_mode": pb.ANSWER_MODE_REGEX, "answer_regex": "(?a)(?u)x"},
            "search.answer_regex",
            "Python's re",
        ),
        ({"question": "nothing"}, "search.question", "makes no token of it"),
    ],
)
def test_what_a_gateway_should_have_refused(fields: Mapping[str, Any], field: str, allowed: str) -> None:
    found = violations(refusal(ask(**fields)))
    assert list(found) == [field]
    assert allowed in found[field]


def test_a_parameter_without_a_value_is_none() -> None:
    search = ask()
    search.parameters.fields["C"].Clear()
    assert list(violations(refusal(search))) == ["search.parameters.C"]


NAMES = sorted({name for kind in POLICIES.values() for name in specs(kind.parameters_type)})
NUMBERS = st.floats() | st.integers(-(2**63), 2**63) | st.sampled_from([0.5, 1, 2, 8, 24, 100, 1e300, -0.0])
VALUES = st.recursive(
    NUMBERS | st.booleans() | st.none() | st.text(max_size=5) | st.sampled_from(["tree", "own", "mean"]),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner, max_size=2),
    max_leaves=4,
)
SEARCHES = st.fixed_dictionaries(
    {
        "question": st.sampled_from([QUESTION, "", "x" * 990, "x" * 2000]) | st.text(max_size=20),
        "policy": st.sampled_from([*POLICIES, "", "gambitt"]) | st.text(max_size=5),
        "profile": st.sampled_from(["", "tiny", "paper", "large"]),
        "answer_mode": st.integers(0, 7),
        "answer_regex": st.sampled_from(["", "(", "(a)", "a{2,1}", "x" * 600, "(" * 400 + ")" * 400]),
        "seed": st.integers(0, 2**64 - 1),
        "sampling": st.builds(
            pb.Sampling,
            temperature=st.none() | st.floats(),
            top_p=st.none() | st.floats(),
            top_k=st.none() | st.integers(0, 2**32 - 1),
        ),
        "budgets": st.builds(
            pb.Budgets, tokens=st.integers(0, 2**64 - 1), trace_tokens=st.integers(0, 2**32 - 1)
        ),
    }
)


def assert_tells_why(refused: StatusError) -> None:
    assert to_status(refused).message
    if refused.reason == "NO_SCORER":
        assert refused.code is grpc.StatusCode.FAILED_PRECONDITION
    else:
        assert (refused.code, refused.reason) == (grpc.StatusCode.INVALID_ARGUMENT, "INVALID_FIELD")
        assert refused.violations
        assert all(violation.field.startswith("search.") for violation in refused.violations)


@given(
    fields=SEARCHES,
    parameters=st.dictionaries(st.sampled_from(NAMES) | st.text(max_size=8), VALUES, max_size=4),
    unset=st.sampled_from(["", "C", "N", "zzz"]),
    engine=st.builds(
        lambda blocks, slots: replace(ENGINE, kv_blocks=63 + blocks, slots=slots),
        st.integers(0, 60),
        st.integers(1, 40),
    ),
    has_scorer=st.booleans(),
)
@settings(max_examples=300)
def test_garbage_is_admitted_or_refused_by_field(
    fields: dict[str, Any], parameters: dict[str, Any], unset: str, engine: EngineInfo, has_scorer: bool
) -> None:
    search = ask(parameters, **fields)
    if unset:
        search.parameters.fields[unset].Clear()
    try:
        spec, policy = admit(search, engine=engine, scorer=ScorerInfo("mlp") if has_scorer else None)
    except StatusError as refused:
        assert_tells_why(refused)
        return
    assert len(spec.prompt) + spec.trace_limit <= engine.max_context
    assert 1 <= policy.capacity <= 32
    assert 0 <= spec.sampling.temperature <= 2
    assert 0 < spec.sampling.top_p <= 1
    assert has_scorer or not policy.needs_scores


# ---- what is admitted


def test_what_is_not_asked_for_is_the_models_and_the_workers() -> None:
    spec, policy = admit(ask())
    assert spec.prompt == tuple(PROMPT)
    assert spec.trace_limit == 1000 - len(PROMPT)
    assert spec.sampling == ENGINE.default_sampling
    assert (spec.answer_mode, spec.token_budget, spec.deadline) == ("boxed", 0, 5.0)
    assert policy.parameters.C == 24
    assert admit(ask({"C": 32, "warmup": 10}, profile="tiny"), profile="paper")[1].parameters.interval == 48


def test_what_is_asked_for_counts_also_where_it_is_zero() -> None:
    asked = ask(
        {"K": 0, "C": 8.0, "child_temperature": 0},
        sampling=pb.Sampling(temperature=0.0, top_p=0.5, top_k=1),
        budgets=pb.Budgets(trace_tokens=200, tokens=5000),
        answer_mode=pb.ANSWER_MODE_INTEGER,
        seed=9,
    )
    spec, policy = admit(asked)
    assert spec.sampling == replace(ENGINE.default_sampling, temperature=0.0, top_p=0.5, top_k=1)
    assert (spec.trace_limit, spec.token_budget, spec.answer_mode, spec.seed) == (200, 5000, "integer", 9)
    assert (policy.parameters.K, policy.parameters.C, policy.child_temperature) == (0, 8, 0.0)
