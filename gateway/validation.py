"""Checks a request at the edge: INVALID_ARGUMENT with every bad field and what is allowed there.

What needs a worker's description of its policies is checked only while one is connected; else the worker
refuses the tree before it runs, with the same kind of error.
"""

from __future__ import annotations

import math
import uuid
from collections.abc import Iterator

import grpc
from google.protobuf import duration_pb2

from gateway.catalogue import Catalogue
from gateway.config import GatewayConfig
from gateway.parameters import check_parameters
from thoughtbeam.runtime.patterns import pattern_violations
from thoughtbeam.runtime.scorers import ADVICE, scorer_violations
from thoughtbeam.runtime.status import StatusError, Violation, invalid
from thoughtbeam.v1 import reasoning_pb2 as pb
from tree_store.events import is_event_id

ROLES = ("system", "user", "assistant")
MAX_NAME_CHARS = 200
MAX_REGEX_CHARS = 500
MAX_MESSAGES = 1000
MAX_TEMPERATURE = 2.0
MAX_PAGE_SIZE = 1000


def check_request(
    request: pb.ReasonRequest | pb.SubmitRequest, catalogue: Catalogue, config: GatewayConfig
) -> None:
    """Raises INVALID_ARGUMENT with every violation of the request, then FAILED_PRECONDITION / NO_SCORER."""
    search = request.search
    violations = [
        *_request_id(request.request_id),
        *(_event_id(request.after_event_id) if isinstance(request, pb.ReasonRequest) else ()),
        *_prompt(search, config.max_prompt_chars),
        *_model(search.model, catalogue),
        *_policy(search, catalogue.serving(search.model)),
        *_answer_mode(search),
        *scorer_violations(search.scorer),
        *_sampling(search.sampling),
        *_budgets(search.budgets, config.max_deadline, catalogue.serving(search.model).max_context),
    ]
    if violations:
        raise invalid(*violations)
    _check_scorer(search, catalogue.serving(search.model))


def check_event_id(event_id: str) -> None:
    """Raises INVALID_ARGUMENT for `after_event_id` when it is neither empty nor the id of an event."""
    if violations := list(_event_id(event_id)):
        raise invalid(*violations)


def page_size(requested: int, default: int) -> int:
    """Entries on a page (AIP-158): 0 is the default, more than the limit is the limit."""
    if requested < 0:
        raise invalid(Violation("page_size", f"0 to {MAX_PAGE_SIZE}, 0 for {default}; is {requested}"))
    return min(requested, MAX_PAGE_SIZE) or default


def _request_id(request_id: str) -> Iterator[Violation]:
    if not request_id:
        return
    try:
        parsed = uuid.UUID(request_id)
    except ValueError:
        parsed = uuid.UUID(int=0)
    # uuid.UUID also takes braces, a URN and no dashes at all
    if parsed.int == 0 or str(parsed) != request_id.lower():
        yield Violation("request_id", "must be a UUID other than all zeros, as 8-4-4-4-12 hexadecimal digits")


def _event_id(event_id: str) -> Iterator[Violation]:
    if event_id and not is_event_id(event_id):
        allowed = "must be empty or the event_id of an event, {milliseconds}-{number}"
        yield Violation("after_event_id", f"{allowed}; {_is(event_id)}")


def _check_scorer(search: pb.Search, catalogue: Catalogue) -> None:
    """A tree that needs scores would otherwise wait for a worker that can only refuse it."""
    if not catalogue or catalogue.can_run(search.policy, search.scorer):
        return
    others = ", ".join(catalogue.unscored) or "none"
    raise StatusError(
        grpc.StatusCode.FAILED_PRECONDITION,
        "NO_SCORER",
        f"search.policy: {search.policy} needs scores, and no connected worker has a scorer. {ADVICE}."
        f" Policies that need no scores here: {others}",
        metadata={"policy": search.policy, "unscored_policies": others},
    )


def _prompt(search: pb.Search, max_chars: int) -> Iterator[Violation]:
    match search.WhichOneof("prompt"):
        case "question":
            field, chars = "search.question", len(search.question)
            if not search.question.strip():
                yield Violation(field, "must not be empty")
        case "conversation":
            field = "search.conversation.messages"
            messages = search.conversation.messages
            if len(messages) > MAX_MESSAGES:  # each costs time and memory, even an empty one
                yield Violation(field, f"at most {MAX_MESSAGES} messages, has {len(messages)}")
                return
            chars = sum(len(message.content) for message in messages)
            yield from _messages(field, list(messages))
        case _:
            yield Violation("search.question", "a question or a conversation is required")
            return
    if chars > max_chars:
        yield Violation(field, f"at most {max_chars} characters in all, has {chars}")


def _messages(field: str, messages: list[pb.ChatMessage]) -> Iterator[Violation]:
    if not messages:
        yield Violation(field, "at least one message is required")
        return
    for i, message in enumerate(messages):
        if message.role not in ROLES:
            yield Violation(f"{field}[{i}].role", f"must be one of {', '.join(ROLES)}; {_is(message.role)}")
        if not message.content.strip():
            yield Violation(f"{field}[{i}].content", "must not be empty")
    if messages[-1].role in ("system", "assistant"):
        yield Violation(f"{field}[{len(messages) - 1}].role", "the last message must be the user's")


def _model(model: str, catalogue: Catalogue) -> Iterator[Violation]:
    if len(model) > MAX_NAME_CHARS:
        yield Violation("search.model", f"at most {MAX_NAME_CHARS} characters, has {len(model)}")
    elif catalogue and not catalogue.serving(model):
        served = ", ".join(catalogue.models)
        yield Violation("search.model", f"must be one of {served}, or empty for any of them; {_is(model)}")


def _policy(search: pb.Search, catalogue: Catalogue) -> Iterator[Violation]:
    known = ", ".join(sorted(catalogue.policies))
    policy = catalogue.policies.get(search.policy)
    if not search.policy:
        yield Violation("search.policy", f"is required{': one of ' + known if known else ''}")
    elif len(search.policy) > MAX_NAME_CHARS:
        yield Violation("search.policy", f"at most {MAX_NAME_CHARS} characters, has {len(search.policy)}")
    elif catalogue and policy is None:
        yield Violation("search.policy", f"must be one of {known}; {_is(search.policy)}")

    profiles = catalogue.profiles
    if len(search.profile) > MAX_NAME_CHARS:
        yield Violation("search.profile", f"at most {MAX_NAME_CHARS} characters, has {len(search.profile)}")
    elif search.profile and profiles and search.profile not in profiles:
        allowed = f"must be one of {', '.join(profiles)}, or empty for the worker's own"
        yield Violation("search.profile", f"{allowed}; {_is(search.profile)}")

    yield from check_parameters(search.parameters, policy, catalogue.max_capacity)


def _answer_mode(search: pb.Search) -> Iterator[Violation]:
    if search.answer_mode not in pb.AnswerMode.values():
        names = ", ".join(pb.AnswerMode.keys()[1:])
        yield Violation("search.answer_mode", f"must be one of {names}; is {search.answer_mode}")
    field = "search.answer_regex"
    if search.answer_mode != pb.ANSWER_MODE_REGEX:
        if search.answer_regex:
            yield Violation(field, "only with answer_mode ANSWER_MODE_REGEX")
    elif not search.answer_regex:
        yield Violation(field, "is required with ANSWER_MODE_REGEX")
    elif len(search.answer_regex) > MAX_REGEX_CHARS:
        yield Violation(field, f"at most {MAX_REGEX_CHARS} characters, has {len(search.answer_regex)}")
    else:
        yield from pattern_violations(field, search.answer_regex)


def _sampling(sampling: pb.Sampling) -> Iterator[Violation]:
    # written so that NaN fails too
    if sampling.HasField("temperature") and not 0 <= sampling.temperature <= MAX_TEMPERATURE:
        allowed = f"from 0 to {MAX_TEMPERATURE:g}"
        yield Violation("search.sampling.temperature", f"{allowed}; is {sampling.temperature}")
    if sampling.HasField("top_p") and not 0 < sampling.top_p <= 1:
        yield Violation("search.sampling.top_p", f"above 0 and at most 1; is {sampling.top_p}")
    if sampling.HasField("top_k") and sampling.top_k < 1:
        yield Violation("search.sampling.top_k", f"at least 1; is {sampling.top_k}")


def _budgets(budgets: pb.Budgets, longest: float, max_context: int) -> Iterator[Violation]:
    seconds = _seconds(budgets.deadline)
    if budgets.HasField("deadline") and not 0 < seconds <= longest:
        yield Violation("search.budgets.deadline", f"above 0 s and at most {longest:g} s; is {seconds:g} s")
    # how much of the context the prompt takes is the worker's to count
    if 0 < max_context <= budgets.trace_tokens:
        allowed = (
            f"0 for no limit of its own, or below {max_context}, the longest context of a connected worker"
        )
        yield Violation("search.budgets.trace_tokens", f"{allowed}; is {budgets.trace_tokens}")


def _seconds(duration: duration_pb2.Duration) -> float:
    """The length of a duration; NaN when its parts do not agree."""
    seconds, nanos = duration.seconds, duration.nanos
    if abs(nanos) >= 1_000_000_000 or seconds * nanos < 0:
        return math.nan
    return seconds + nanos / 1e9


def _is(value: str) -> str:
    """How a value is shown in an error: what was sent, or a part of it."""
    return f"is {value if len(value) <= MAX_NAME_CHARS else value[:MAX_NAME_CHARS] + '…'!r}"
