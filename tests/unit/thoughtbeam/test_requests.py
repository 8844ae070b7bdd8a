from __future__ import annotations

import uuid
from typing import Any

import pytest

from thoughtbeam._requests import reason_request, request_of, tree_name
from thoughtbeam.errors import InvalidArgumentError
from thoughtbeam.v1 import reasoning_pb2 as pb


def test_every_argument_reaches_its_field() -> None:
    request = reason_request(
        "6 * 7?",
        policy="gambit",
        profile="tiny",
        scorer="confidence",
        parameters={"C": 24, "r": 0.9, "refill": False, "vote": "weighted", "child_temperature": None},
        model="tiny_reasoner",
        answer_mode="regex",
        answer_regex="= (.*)",
        temperature=0.0,
        top_p=0.9,
        top_k=50,
        deadline=2.5,
        max_tokens=1000,
        max_trace_tokens=200,
        seed=7,
        request_id="7b1f0bd4-4a0e-4bd3-8c7d-6f7a52c5d2f1",
        cancel_on_disconnect=True,
    )

    search = request.search
    assert (search.question, search.model, search.policy, search.profile) == (
        "6 * 7?",
        "tiny_reasoner",
        "gambit",
        "tiny",
    )
    assert search.scorer == "confidence"
    assert dict(search.parameters) == {
        "C": 24,
        "r": 0.9,
        "refill": False,
        "vote": "weighted",
        "child_temperature": None,
    }
    assert (search.answer_mode, search.answer_regex) == (pb.ANSWER_MODE_REGEX, "= (.*)")
    assert search.sampling == pb.Sampling(temperature=0.0, top_p=0.9, top_k=50)
    assert search.budgets.deadline.ToMilliseconds() == 2500
    assert (search.budgets.tokens, search.budgets.trace_tokens, search.seed) == (1000, 200, 7)
    assert request.request_id == "7b1f0bd4-4a0e-4bd3-8c7d-6f7a52c5d2f1"
    assert request.cancel_on_disconnect


def test_what_is_not_given_is_not_set() -> None:
    request = reason_request("6 * 7?", policy="vanilla")

    sampling = request.search.sampling
    assert not any(sampling.HasField(name) for name in ("temperature", "top_p", "top_k"))
    assert not request.search.budgets.HasField("deadline")
    assert request.search.answer_mode == pb.ANSWER_MODE_BOXED


def test_each_call_has_an_id_of_its_own() -> None:
    first, second = (reason_request("6 * 7?", policy="vanilla").request_id for _ in range(2))

    assert uuid.UUID(first) != uuid.UUID(second)


def test_messages_become_a_conversation() -> None:
    request = reason_request(
        [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "6 * 7?"}], policy="vanilla"
    )

    assert request.search.WhichOneof("prompt") == "conversation"
    assert [(m.role, m.content) for m in request.search.conversation.messages] == [
        ("system", "Be brief."),
        ("user", "6 * 7?"),
    ]


def test_no_messages_are_still_a_conversation() -> None:
    assert reason_request([], policy="vanilla").search.WhichOneof("prompt") == "conversation"


@pytest.mark.parametrize(
    ("arguments", "field"),
    [
        ({"answer_mode": "prose"}, "search.answer_mode"),
        ({"parameters": {"C": [1]}}, "search.parameters.C"),
        ({"top_k": -1}, "search.sampling.top_k"),
        ({"seed": 2**64}, "search.seed"),
        ({"max_tokens": -5}, "search.budgets.tokens"),
        ({"max_trace_tokens": 2**32}, "search.budgets.trace_tokens"),
        ({"parameters": {"C": 10**400}}, "search.parameters.C"),
        ({"parameters": {"C": -(10**400)}}, "search.parameters.C"),
        ({"parameters": {"score": "\udcff"}}, "search.parameters.score"),
        ({"parameters": {"\udcff": 1}}, "search.parameters"),
        ({"prompt": "6 * \udcff?"}, "search.question"),
        ({"prompt": [{"role": "user", "content": "\ud800"}]}, "search.conversation.messages[0].content"),
        ({"prompt": [{"role": "\ud800", "content": "x"}]}, "search.conversation.messages[0].role"),
        ({"model": "\udcff"}, "search.model"),
        ({"profile": "\udcff"}, "search.profile"),
        ({"policy": "\udcff"}, "search.policy"),
        ({"answer_mode": "regex", "answer_regex": "\udcff"}, "search.answer_regex"),
        ({"request_id": "\udcff"}, "request_id"),
        ({"deadline": 0.0}, "search.budgets.deadline"),
        ({"deadline": float("nan")}, "search.budgets.deadline"),
        ({"deadline": float("inf")}, "search.budgets.deadline"),
        ({"prompt": [{"role": "user"}]}, "search.conversation.messages[0]"),
        ({"prompt": [{"role": "user", "content": 6}]}, "search.conversation.messages[0]"),
    ],
)
def test_what_the_wire_cannot_carry_is_named(arguments: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        reason_request(arguments.pop("prompt", "6 * 7?"), **{"policy": "vanilla", **arguments})

    assert [v.field for v in caught.value.violations] == [field]


@pytest.mark.parametrize("prompt", [None, 42, b"6 * 7?", {"role": "user", "content": "6 * 7?"}])
def test_what_is_no_prompt(prompt: Any) -> None:
    with pytest.raises(InvalidArgumentError, match="a prompt is a text, or a list of messages") as caught:
        reason_request(prompt, policy="vanilla")

    assert type(prompt).__name__ in str(caught.value)


@pytest.mark.parametrize("method", ["solve", "stream"])
def test_an_argument_that_does_not_exist(method: str) -> None:
    options: Any = {"seed": 1, "temprature": 1.0}
    with pytest.raises(TypeError, match=rf"^{method}\(\) got an unexpected keyword argument 'temprature'"):
        request_of(method, "6 * 7?", "vanilla", options)


def test_a_tree_is_named_by_its_id_or_its_name() -> None:
    assert tree_name("t1") == tree_name("trees/t1") == "trees/t1"
