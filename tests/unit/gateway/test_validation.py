"""Every field of a request: what is allowed passes, what is not is named with what is allowed."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import grpc
import pytest
from google.protobuf import struct_pb2

from decoder_worker.policies import POLICIES
from decoder_worker.policies.parameters import specs
from gateway.catalogue import Catalogue
from gateway.config import GatewayConfig
from gateway.parameters import CAPACITY, capacity_of
from gateway.validation import check_event_id, check_request, page_size
from tests.unit.gateway.requests import REQUEST_ID, hello, reason_request
from thoughtbeam.runtime.status import StatusError
from thoughtbeam.v1 import reasoning_pb2 as pb
from thoughtbeam.v1 import work_pb2

CONFIG = GatewayConfig(max_prompt_chars=100)
ONE_WORKER = Catalogue.of([hello()])
NO_WORKER = Catalogue.of([])

Change = Callable[[pb.ReasonRequest], object]


def violations(change: Change, catalogue: Catalogue = ONE_WORKER) -> Mapping[str, str]:
    """What is wrong with the good request after one change, by field."""
    request = reason_request()
    change(request)
    try:
        check_request(request, catalogue, CONFIG)
    except StatusError as error:
        if (error.code, error.reason) != (grpc.StatusCode.INVALID_ARGUMENT, "INVALID_FIELD"):
            raise
        return {v.field: v.description for v in error.violations}
    return {}


def search_set(**fields: Any) -> Change:
    """Replaces fields of the search."""

    def change(request: pb.ReasonRequest) -> None:
        for name in fields:
            request.search.ClearField(name)
        request.search.MergeFrom(pb.Search(**fields))

    return change


def talk(*messages: tuple[str, str]) -> Change:
    talked = pb.Conversation(messages=[pb.ChatMessage(role=r, content=c) for r, c in messages])
    return search_set(conversation=talked)


def param(name: str, value: Any) -> Change:
    return lambda request: request.search.parameters.update({name: value})


def deadline(seconds: int, nanos: int = 0) -> Change:
    def change(request: pb.ReasonRequest) -> None:
        request.search.budgets.deadline.seconds = seconds
        request.search.budgets.deadline.nanos = nanos

    return change


def request_id(value: str) -> Change:
    return lambda request: setattr(request, "request_id", value)


def after(event_id: str) -> Change:
    return lambda request: setattr(request, "after_event_id", event_id)


def regex(pattern: str) -> Change:
    return search_set(answer_mode=pb.ANSWER_MODE_REGEX, answer_regex=pattern)


GOOD: dict[str, Change] = {
    "as it is": lambda request: None,
    "no request id": request_id(""),
    "request id in capitals": request_id(REQUEST_ID.upper()),
    "after an event": after("1796001001096-6"),
    "longest prompt": search_set(question="x" * 100),
    "conversation": talk(("system", "Be brief."), ("user", "1+1?"), ("assistant", "2"), ("user", "And 2+2?")),
    "any model": search_set(model=""),
    "the worker's own profile": search_set(profile=""),
    "null where that is the default": param("child_temperature", None),
    "a policy without parameters": lambda request: (
        search_set(policy="vanilla")(request),
        request.search.ClearField("parameters"),
    ),
    "capacity at the limit": param("C", 64),
    "an integer at its minimum": param("K", 0),
    "a number at its bounds": param("kv_high_water", 1),
    "a negative number where nothing forbids it": param("child_temperature", -1.5),
    "false": param("refill", False),
    "another choice": param("interval_scope", "trace"),
    "no sampling": lambda request: request.search.ClearField("sampling"),
    "greedy": search_set(sampling=pb.Sampling(temperature=0, top_p=1, top_k=1)),
    "hottest": search_set(sampling=pb.Sampling(temperature=2)),
    "no budgets": lambda request: request.search.ClearField("budgets"),
    "longest trace": search_set(budgets=pb.Budgets(trace_tokens=1023)),
    "shortest deadline": deadline(0, 1),
    "longest deadline": deadline(24 * 3600),
    "boxed": lambda request: (
        search_set(answer_mode=pb.ANSWER_MODE_BOXED)(request),
        request.search.ClearField("answer_regex"),
    ),
    "longest regex": regex("x" * 500),
}

BAD: list[tuple[str, Change, str, str]] = [
    # what is wrong, how, the field, a part of the description
    ("no dashes", request_id(REQUEST_ID.replace("-", "")), "request_id", "8-4-4-4-12"),
    ("braces", request_id("{" + REQUEST_ID + "}"), "request_id", "must be a UUID"),
    ("all zeros", request_id("00000000-0000-0000-0000-000000000000"), "request_id", "other than all zeros"),
    ("hash tag", request_id("tb:{1}"), "request_id", "must be a UUID"),
    ("no event id", after("last"), "after_event_id", "{milliseconds}-{number}; is 'last'"),
    ("event id of a stream", after("1796001001096"), "after_event_id", "must be empty or the event_id"),
    ("event number 0", after("1796001001096-0"), "after_event_id", "must be empty or the event_id"),
    ("huge event id", after("9" * 30 + "-1"), "after_event_id", "must be empty or the event_id"),
    ("event id in other digits", after("1\u0663-1"), "after_event_id", "must be empty or the event_id"),
    ("no search", lambda r: r.ClearField("search"), "search.question", "is required"),
    ("empty question", search_set(question=""), "search.question", "must not be empty"),
    ("blank question", search_set(question=" \n\t"), "search.question", "must not be empty"),
    (
        "long question",
        search_set(question="x" * 101),
        "search.question",
        "at most 100 characters in all, has 101",
    ),
    (
        "many messages",
        talk(*[("", "")] * 1001),
        "search.conversation.messages",
        "at most 1000 messages, has 1001",
    ),
    ("no messages", talk(), "search.conversation.messages", "at least one"),
    (
        "long conversation",
        talk(("system", "x" * 60), ("user", "y" * 41)),
        "search.conversation.messages",
        "at most 100 characters in all, has 101",
    ),
    (
        "role",
        talk(("tool", "x"), ("user", "y")),
        "search.conversation.messages[0].role",
        "user, assistant; is 'tool'",
    ),
    ("no role", talk(("", "x")), "search.conversation.messages[0].role", "one of system, user, assistant"),
    (
        "no content",
        talk(("user", "x"), ("user", "")),
        "search.conversation.messages[1].content",
        "not be empty",
    ),
    ("last", talk(("user", "x"), ("assistant", "y")), "search.conversation.messages[1].role", "the user's"),
    (
        "model",
        search_set(model="other"),
        "search.model",
        "must be one of tiny, or empty for any of them; is 'other'",
    ),
    ("long model", search_set(model="m" * 201), "search.model", "at most 200 characters, has 201"),
    ("no policy", search_set(policy=""), "search.policy", "is required: one of gambit, vanilla"),
    ("policy", search_set(policy="beam"), "search.policy", "must be one of gambit, vanilla; is 'beam'"),
    ("long policy", search_set(policy="p" * 201), "search.policy", "at most 200 characters"),
    ("profile", search_set(profile="huge"), "search.profile", "one of paper, tiny, or empty"),
    ("long profile", search_set(profile="p" * 201), "search.profile", "at most 200 characters"),
    (
        "unknown parameter",
        param("kv_high_watr", 1),
        "search.parameters.kv_high_watr",
        "did you mean kv_high_water?",
    ),
    ("case of a parameter", param("k", 1), "search.parameters.k", "did you mean K?"),
    ("far from any", param("zzz", 1), "search.parameters.zzz", "; it has C, K, kv_high_water"),
    ("of a policy without", search_set(policy="vanilla"), "search.parameters.C", "vanilla has no parameters"),
    ("not an integer", param("K", 1.5), "search.parameters.K", "must be an integer, at least 0, is 1.5"),
    ("inexact integer", param("K", 2.0**60), "search.parameters.K", "an integer, at least 0"),
    ("negative integer", param("K", -1), "search.parameters.K", "at least 0, is -1"),
    ("text for an integer", param("K", "2"), "search.parameters.K", "an integer, at least 0, is '2'"),
    ("flag for an integer", param("K", True), "search.parameters.K", "an integer, at least 0, is true"),
    (
        "above",
        param("kv_high_water", 1.01),
        "search.parameters.kv_high_water",
        "a number from 0 to 1, is 1.01",
    ),
    (
        "below",
        param("kv_high_water", -0.1),
        "search.parameters.kv_high_water",
        "a number from 0 to 1, is -0.1",
    ),
    (
        "one-sided",
        param("child_temperature", 3),
        "search.parameters.child_temperature",
        "must be a number, at most 2 or null, is 3",
    ),
    ("null", param("K", None), "search.parameters.K", "must be an integer, at least 0, is null"),
    ("null for a flag", param("refill", None), "search.parameters.refill", "true or false, is null"),
    ("number for a flag", param("refill", 1), "search.parameters.refill", "must be true or false, is 1"),
    (
        "choice",
        param("interval_scope", "node"),
        "search.parameters.interval_scope",
        "one of tree, trace; is 'node'",
    ),
    (
        "number for a choice",
        param("interval_scope", 0),
        "search.parameters.interval_scope",
        "one of tree, trace",
    ),
    (
        "capacity",
        param("C", 65),
        "search.parameters.C",
        "at most 64, the largest capacity of a connected worker",
    ),
    (
        "temperature",
        search_set(sampling=pb.Sampling(temperature=2.1)),
        "search.sampling.temperature",
        "from 0 to 2",
    ),
    ("cold", search_set(sampling=pb.Sampling(temperature=-0.1)), "search.sampling.temperature", "is -0.1"),
    ("NaN", search_set(sampling=pb.Sampling(temperature=math.nan)), "search.sampling.temperature", "is nan"),
    ("top_p 0", search_set(sampling=pb.Sampling(top_p=0)), "search.sampling.top_p", "above 0 and at most 1"),
    ("top_p above", search_set(sampling=pb.Sampling(top_p=1.1)), "search.sampling.top_p", "is 1.1"),
    ("top_p inf", search_set(sampling=pb.Sampling(top_p=math.inf)), "search.sampling.top_p", "is inf"),
    ("top_k", search_set(sampling=pb.Sampling(top_k=0)), "search.sampling.top_k", "at least 1"),
    ("no time", deadline(0), "search.budgets.deadline", "above 0 s and at most 86400 s; is 0 s"),
    ("negative time", deadline(-1), "search.budgets.deadline", "is -1 s"),
    ("too long", deadline(24 * 3600, 1000), "search.budgets.deadline", "at most 86400 s"),
    ("signs differ", deadline(1, -1), "search.budgets.deadline", "is nan s"),
    ("nanos", deadline(1, 2_000_000_000), "search.budgets.deadline", "is nan s"),
    (
        "trace above every context",
        search_set(budgets=pb.Budgets(trace_tokens=1024)),
        "search.budgets.trace_tokens",
        "below 1024, the longest context of a connected worker; is 1024",
    ),
    ("mode", search_set(answer_mode=99), "search.answer_mode", "ANSWER_MODE_BOXED, ANSWER_MODE_CHOICE"),
    (
        "regex for another mode",
        search_set(answer_mode=pb.ANSWER_MODE_CHOICE),
        "search.answer_regex",
        "only with",
    ),
    ("no regex", search_set(answer_regex=""), "search.answer_regex", "is required with ANSWER_MODE_REGEX"),
    ("broken regex", regex("(a"), "search.answer_regex", "missing ), unterminated subpattern"),
    ("regex of flags that exclude each other", regex("(?a)(?u)x"), "search.answer_regex", "incompatible"),
    ("regex overflow", regex("a{99999999999}"), "search.answer_regex", "regular expression"),
    ("long regex", regex("x" * 501), "search.answer_regex", "at most 500 characters, has 501"),
]


@pytest.mark.parametrize("case", GOOD)
@pytest.mark.parametrize("catalogue", [ONE_WORKER, NO_WORKER], ids=["one worker", "no worker"])
def test_what_is_allowed_passes(case: str, catalogue: Catalogue) -> None:
    assert violations(GOOD[case], catalogue) == {}


@pytest.mark.parametrize(("case", "change", "field", "part"), BAD, ids=[b[0] for b in BAD])
def test_what_is_not_is_named_with_what_is_allowed(case: str, change: Change, field: str, part: str) -> None:
    found = violations(change)

    assert part in found.get(field, f"no violation of {field}, only {found}")


BAD_FOR_ANY_POLICY: list[tuple[str, struct_pb2.Value, str]] = [
    ("NaN", struct_pb2.Value(number_value=math.nan), "finite number, is nan"),
    ("infinite", struct_pb2.Value(number_value=-math.inf), "finite number, is -inf"),
    ("nothing", struct_pb2.Value(), "a number, a string, a boolean or null"),
    ("list", struct_pb2.Value(list_value=struct_pb2.ListValue()), "a number, a string, a boolean or null"),
    ("struct", struct_pb2.Value(struct_value=struct_pb2.Struct()), "a number, a string, a boolean or null"),
    ("long text", struct_pb2.Value(string_value="x" * 201), "at most 200 characters"),
]


@pytest.mark.parametrize(
    ("case", "value", "part"), BAD_FOR_ANY_POLICY, ids=[b[0] for b in BAD_FOR_ANY_POLICY]
)
@pytest.mark.parametrize("catalogue", [ONE_WORKER, NO_WORKER], ids=["one worker", "no worker"])
def test_a_value_that_no_policy_takes(
    case: str, value: struct_pb2.Value, part: str, catalogue: Catalogue
) -> None:
    found = violations(lambda request: request.search.parameters.fields["K"].CopyFrom(value), catalogue)

    assert part in found["search.parameters.K"]


def test_names_and_number_of_parameters_are_bounded_without_a_worker() -> None:
    long_name = violations(param("p" * 65, 1), NO_WORKER)
    many = violations(lambda r: r.search.parameters.update({f"p{i}": i for i in range(101)}), NO_WORKER)

    assert "1 to 64 characters" in long_name["search.parameters." + "p" * 64]
    assert "at most 100 entries, has" in many["search.parameters"]


@pytest.mark.parametrize(
    "change",
    [
        search_set(policy="beam"),
        search_set(model="other"),
        search_set(profile="huge"),
        param("unheard_of", 1),
        param("K", 1.5),
        param("C", 10**6),
        search_set(budgets=pb.Budgets(trace_tokens=10**6)),
    ],
)
def test_what_needs_a_catalogue_is_left_to_the_worker_when_none_is_connected(change: Change) -> None:
    assert violations(change, NO_WORKER) == {}
    assert violations(change, ONE_WORKER) != {}


def test_every_bad_field_is_named_at_once() -> None:
    found = violations(
        lambda request: (
            request_id("x")(request),
            search_set(question="", policy="beam", sampling=pb.Sampling(top_k=0))(request),
            deadline(-1)(request),
        )
    )

    assert set(found) == {
        "request_id",
        "search.question",
        "search.policy",
        "search.sampling.top_k",
        "search.budgets.deadline",
    }


def policy_with(parameter: str) -> pb.Policy:
    return pb.Policy(name="p", parameters=[pb.PolicyParameter(name=parameter, type="int")])


def test_what_names_a_capacity_is_checked_against_the_workers_and_decides_which_of_them_can() -> None:
    named = {
        name
        for policy in POLICIES.values()
        for name, spec in specs(policy.parameters_type).items()
        if spec.cap == "max_capacity"
    }
    assert named == set(CAPACITY)
    for name in CAPACITY:
        any_policy = Catalogue.of([hello(policies=[policy_with(name)])])
        found = violations(lambda r, n=name: (search_set(policy="p")(r), param(n, 65)(r)), any_policy)
        assert "at most 64" in found[f"search.parameters.{name}"]
        asked = struct_pb2.Struct()
        asked.update({name: 65})
        assert capacity_of(asked) == 65


def test_only_workers_of_the_model_count() -> None:
    small, large = (
        hello("w1", "small"),
        hello("w2", "large", max_capacity=512, policies=[pb.Policy(name="sart")]),
    )
    both = Catalogue.of([small, large])

    def asks(model: str) -> Mapping[str, str]:
        return violations(
            lambda r: (search_set(model=model)(r), param("C", 100)(r)),
            both,
        )

    assert "at most 64" in asks("small")["search.parameters.C"]
    assert asks("large") == {}
    assert asks("") == {}
    assert "one of large, small" in asks("tiny")["search.model"]
    assert (
        "must be one of gambit, vanilla;"
        in violations(search_set(model="small", policy="sart"), both)["search.policy"]
    )


SCORED = pb.Policy(name="best_of_n", needs_scores=True)


@pytest.mark.parametrize(
    ("workers", "model", "refused"),
    [
        ([hello(policies=[SCORED])], "tiny", True),
        ([hello(policies=[SCORED], scorer="mlp")], "tiny", False),
        ([hello(policies=[SCORED]), hello("w2", scorer="mlp", policies=[SCORED])], "", False),
        # the scorer has to be that of a worker with the policy …
        ([hello(policies=[SCORED]), hello("w2", scorer="mlp")], "", True),
        # … which serves the model
        ([hello(policies=[SCORED]), hello("w2", "large", scorer="mlp", policies=[SCORED])], "tiny", True),
        ([], "", False),
    ],
)
@pytest.mark.parametrize("kind", [pb.ReasonRequest, pb.SubmitRequest])
def test_a_policy_that_needs_scores_needs_a_worker_with_a_scorer(
    workers: list[work_pb2.Hello],
    model: str,
    refused: bool,
    kind: type[pb.ReasonRequest] | type[pb.SubmitRequest],
) -> None:
    request = kind(search=pb.Search(question="1 + 1?", policy="best_of_n", model=model))
    if not refused:
        check_request(request, Catalogue.of(workers), CONFIG)
        return
    with pytest.raises(StatusError) as caught:
        check_request(request, Catalogue.of(workers), CONFIG)

    assert (caught.value.code, caught.value.reason) == (grpc.StatusCode.FAILED_PRECONDITION, "NO_SCORER")
    assert "python -m prm_worker --scorer FILE" in caught.value.message
    assert caught.value.message.endswith("need no scores here: gambit, vanilla")
    assert caught.value.metadata["unscored_policies"] == "gambit, vanilla"


def test_what_scores_is_the_workers_own_or_the_models_confidence() -> None:
    for allowed in ("", "confidence"):
        assert not violations(search_set(scorer=allowed))
    for refused in ("mlp", "Confidence", " ", "x" * 300):
        found = violations(search_set(scorer=refused))
        assert found["search.scorer"].startswith(
            "must be empty for the worker's own scorer, or confidence; is "
        )
        assert len(found["search.scorer"]) < 200


def test_confidence_needs_no_worker_with_a_scorer() -> None:
    asked = pb.Search(question="1 + 1?", policy="best_of_n", scorer="confidence")
    workers = Catalogue.of([hello(policies=[SCORED])])
    check_request(pb.SubmitRequest(search=asked), workers, CONFIG)
    asked.scorer = ""
    with pytest.raises(StatusError, match=r"scorer=confidence \(--scorer confidence\)") as caught:
        check_request(pb.SubmitRequest(search=asked), workers, CONFIG)
    assert "thoughtbeam scorer collect" in caught.value.message
    assert "thoughtbeam scorer train" in caught.value.message


def test_a_bad_field_is_named_before_a_scorer_is_asked_for() -> None:
    found = violations(
        search_set(policy="best_of_n", sampling=pb.Sampling(top_k=0)),
        Catalogue.of([hello(policies=[SCORED])]),
    )

    assert "search.sampling.top_k" in found


def test_a_place_to_watch_from_is_an_event() -> None:
    check_event_id("")
    check_event_id("1796001001096-6")
    with pytest.raises(StatusError) as caught:
        check_event_id("0-0")

    assert [v.field for v in caught.value.violations] == ["after_event_id"]


def test_a_refused_prompt_is_not_repeated_in_the_error() -> None:
    found = violations(search_set(question="secret " * 50))

    assert "secret" not in str(found)


@pytest.mark.parametrize(("asked", "given"), [(0, 50), (1, 1), (1000, 1000), (1001, 1000), (2**31 - 1, 1000)])
def test_page_size(asked: int, given: int) -> None:
    assert page_size(asked, 50) == given


def test_a_negative_page_size_is_refused() -> None:
    with pytest.raises(StatusError) as caught:
        page_size(-1, 50)

    assert [(v.field, v.description) for v in caught.value.violations] == [
        ("page_size", "0 to 1000, 0 for 50; is -1")
    ]
