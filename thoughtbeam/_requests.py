"""From arguments to the messages of the wire; the same for both clients."""

from __future__ import annotations

import sys
import uuid
from collections.abc import Mapping, Sequence
from typing import Literal, TypedDict, get_args

from thoughtbeam.errors import invalid_field
from thoughtbeam.v1 import reasoning_pb2 as pb

AnswerMode = Literal["boxed", "choice", "integer", "regex", "none"]
Prompt = str | Sequence[Mapping[str, str]]

_UINT32, _UINT64 = 2**32 - 1, 2**64 - 1
_LARGEST = int(sys.float_info.max)


class SubmitOptions(TypedDict, total=False):
    """Optional arguments of `submit`, `solve` and `stream`.

    profile: named set of parameter defaults, `paper` or `tiny`; None: the worker's own.
    parameters: overrides of single parameters, by name (see `policies`).
    model: name of the model; None: whatever the worker serves.
    scorer: what scores thoughts: None for the scorer that the worker was given, `confidence` for the model's
        own confidence, which needs no training and no prm worker.
    answer_mode: how a trace's answer is read: `boxed` (default; the last complete \\boxed{...}), `choice` (a
        letter), `integer` (097 equals 97), `regex` (`answer_regex`: its first group or the whole match; the
        last match counts) or `none` (the text after the thinking, as it is).
    temperature in [0, 2], top_p in (0, 1], top_k at least 1: sampling; None: the model's own defaults.
    deadline: seconds from acceptance, at most a day; max_tokens: sampled over the whole tree;
        max_trace_tokens: the longest trace. A search that meets one ends with the best answer so far.
    seed: of the policy's own generator; sampled tokens are not reproducible from it.
    request_id: a UUID. The same id with the same arguments is the same search, whoever calls; None: a new
        one.
    """

    profile: str | None
    parameters: Mapping[str, bool | int | float | str | None] | None
    model: str | None
    scorer: str | None
    answer_mode: AnswerMode
    answer_regex: str | None
    temperature: float | None
    top_p: float | None
    top_k: int | None
    deadline: float | None
    max_tokens: int | None
    max_trace_tokens: int | None
    seed: int
    request_id: str | None


class SearchOptions(SubmitOptions, total=False):
    """Optional arguments of `solve` and `stream`: those of SubmitOptions, and one more.

    cancel_on_disconnect: cancel the search when this call ends early. Otherwise it goes on.
    """

    cancel_on_disconnect: bool


def request_of(method: str, prompt: Prompt, policy: str, options: SearchOptions) -> pb.ReasonRequest:
    """What a call of `method` asks for; see reason_request. Raises TypeError for an option that it lacks."""
    _check_names(method, options, SearchOptions.__optional_keys__)
    return reason_request(prompt, policy=policy, **options)


def submit_request(prompt: Prompt, policy: str, options: SubmitOptions) -> pb.SubmitRequest:
    """What `submit` asks for; as request_of."""
    _check_names("submit", options, SubmitOptions.__optional_keys__)
    made = reason_request(prompt, policy=policy, **options)
    return pb.SubmitRequest(search=made.search, request_id=made.request_id)


def _check_names(method: str, options: Mapping[str, object], known: frozenset[str]) -> None:
    unknown = sorted(set(options) - known)
    if unknown:
        raise TypeError(f"{method}() got an unexpected keyword argument {unknown[0]!r}")


def reason_request(
    prompt: Prompt,
    *,
    policy: str,
    profile: str | None = None,
    parameters: Mapping[str, bool | int | float | str | None] | None = None,
    model: str | None = None,
    scorer: str | None = None,
    answer_mode: AnswerMode = "boxed",
    answer_regex: str | None = None,
    temperature: float | None = None,
    top_p: float | None = None,
    top_k: int | None = None,
    deadline: float | None = None,
    max_tokens: int | None = None,
    max_trace_tokens: int | None = None,
    seed: int = 0,
    request_id: str | None = None,
    cancel_on_disconnect: bool = False,
) -> pb.ReasonRequest:
    """One search; see SearchOptions. prompt: a question, or chat messages with `role` and `content`.

    Raises InvalidArgumentError for what the wire cannot carry; ranges are checked by the service.
    """
    if answer_mode not in get_args(AnswerMode):
        raise invalid_field(
            "search.answer_mode", f"{answer_mode!r} is none of {', '.join(get_args(AnswerMode))}"
        )
    search = pb.Search(
        model=_text("search.model", model or ""),
        policy=_text("search.policy", policy),
        profile=_text("search.profile", profile or ""),
        scorer=_text("search.scorer", scorer or ""),
        answer_mode=f"ANSWER_MODE_{answer_mode.upper()}",
        answer_regex=_text("search.answer_regex", answer_regex or ""),
        sampling=pb.Sampling(
            temperature=temperature, top_p=top_p, top_k=_unsigned("search.sampling.top_k", top_k, _UINT32)
        ),
        seed=_unsigned("search.seed", seed, _UINT64) or 0,
    )
    _set_prompt(search, prompt)
    _set_parameters(search, parameters or {})
    if deadline is not None:
        if not 0 < deadline <= 86_400:
            raise invalid_field("search.budgets.deadline", f"{deadline} s is not in (0, 86400]")
        search.budgets.deadline.FromNanoseconds(int(deadline * 1e9))
    search.budgets.tokens = _unsigned("search.budgets.tokens", max_tokens, _UINT64) or 0
    search.budgets.trace_tokens = _unsigned("search.budgets.trace_tokens", max_trace_tokens, _UINT32) or 0
    return pb.ReasonRequest(
        search=search,
        request_id=_text("request_id", request_id or str(uuid.uuid4())),
        cancel_on_disconnect=cancel_on_disconnect,
    )


def tree_name(tree_id: str) -> str:
    """The resource name of a tree, from its id or from the name itself."""
    return tree_id if tree_id.startswith("trees/") else f"trees/{tree_id}"


def node_name(tree_id: str, node: int) -> str:
    """The resource name of a node. Raises InvalidArgumentError for a number that none can have."""
    return f"{tree_name(tree_id)}/nodes/{_unsigned('node', node, _UINT32)}"


def _set_prompt(search: pb.Search, prompt: Prompt) -> None:
    if isinstance(prompt, str):
        search.question = _text("search.question", prompt)
        return
    if not _is_list(prompt):
        wanted = "a prompt is a text, or a list of messages with `role` and `content`"
        raise invalid_field("search.question", f"{wanted}, not {type(prompt).__name__}")
    # an empty conversation is still sent as one: the service names the field
    search.conversation.SetInParent()
    for index, message in enumerate(prompt):
        field = f"search.conversation.messages[{index}]"
        try:
            role, content = (_text(f"{field}.{name}", message[name]) for name in ("role", "content"))
        except (KeyError, TypeError, AttributeError) as error:
            raise invalid_field(field, "needs the strings `role` and `content`") from error
        search.conversation.messages.add(role=role, content=content)


def _is_list(value: object) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, bytes | bytearray)


def _set_parameters(search: pb.Search, parameters: Mapping[str, bool | int | float | str | None]) -> None:
    for name, value in parameters.items():
        if not isinstance(value, bool | int | float | str | None):
            raise invalid_field(
                f"search.parameters.{name}",
                f"{type(value).__name__} is neither a number, a truth value, a string nor None",
            )
        if isinstance(value, str):
            _text(f"search.parameters.{name}", value)
        elif isinstance(value, int) and abs(value) > _LARGEST:
            raise invalid_field(f"search.parameters.{name}", "is larger than any number of the wire")
        search.parameters[_text("search.parameters", name)] = value


def _text(field: str, value: str) -> str:
    """The text, if it can be sent: a lone surrogate, as in what Python reads from a file that is not UTF-8,
    cannot."""
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise invalid_field(field, f"is no Unicode text: {error.reason} at {error.start}") from None
    return value


def _unsigned(field: str, value: int | None, maximum: int) -> int | None:
    if value is not None and not 0 <= value <= maximum:
        raise invalid_field(field, f"{value} is not in [0, {maximum}]")
    return value
