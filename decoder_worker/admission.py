"""From a client's Search message to what the worker runs: the checks that need the model, the tokenizer, the
policies and the scorer. They end in a StatusError that names every bad field, before the tree runs."""

from __future__ import annotations

import grpc

from decoder_worker.engine.base import EngineInfo, SamplingSpec, Tokenizer
from decoder_worker.policies import Limits, make_policy
from decoder_worker.policies.base import Policy
from decoder_worker.policies.parameters import ParameterError
from decoder_worker.search import SearchSpec
from thoughtbeam.runtime.status import StatusError, Violation, invalid
from thoughtbeam.v1 import reasoning_pb2 as pb

ANSWER_MODES = {
    pb.ANSWER_MODE_UNSPECIFIED: "boxed",
    pb.ANSWER_MODE_BOXED: "boxed",
    pb.ANSWER_MODE_CHOICE: "choice",
    pb.ANSWER_MODE_INTEGER: "integer",
    pb.ANSWER_MODE_REGEX: "regex",
    pb.ANSWER_MODE_NONE: "none",
}


def prepare(
    tree_id: str,
    search: pb.Search,
    *,
    deadline: float,
    engine: EngineInfo,
    tokenizer: Tokenizer,
    profile: str,
    max_capacity: int,
    has_scorer: bool,
) -> tuple[SearchSpec, Policy[object]]:
    """Checks a search and makes its policy. profile: taken when the search names none."""
    prompt_field = "search.question" if search.question else "search.conversation.messages"
    try:
        prompt = tokenizer.encode_chat(_messages(search))
    except Exception as error:  # a chat template is a program of the model's makers; it raises what it likes
        raise invalid(
            Violation(prompt_field, f"the model's chat template refuses it: {error}"), reason="CHAT_REFUSED"
        ) from error
    room = engine.max_context - len(prompt)
    limit = search.budgets.trace_tokens or room
    if limit > room or room < 1:
        raise invalid(
            Violation(
                "search.budgets.trace_tokens" if search.budgets.trace_tokens and room > 0 else prompt_field,
                f"the prompt has {len(prompt)} tokens and the context {engine.max_context}: "
                f"{max(0, room)} are left for a trace"
                + (
                    f", not {search.budgets.trace_tokens}"
                    if search.budgets.trace_tokens
                    else ", at least 1 is needed"
                ),
            ),
            reason="CONTEXT_TOO_SMALL",
        )
    # not by way of JSON, which has no words for NaN and the infinities: they are refused as any other value
    overrides = {name: _plain(value) for name, value in search.parameters.items()}
    try:
        policy = make_policy(search.policy, search.profile or profile, overrides, Limits(max_capacity, limit))
    except ParameterError as error:
        raise invalid(
            *(Violation(_field(name), text) for name, text in error.violations), reason="INVALID_PARAMETER"
        ) from error
    if policy.needs_scores and not has_scorer:
        raise StatusError(
            grpc.StatusCode.FAILED_PRECONDITION,
            "NO_SCORER",
            f"policy {policy.name} needs a scorer and the worker has none: start a prm worker with one "
            f"trained for {engine.model} and give its address as --scorer",
        )
    spec = SearchSpec(
        tree_id=tree_id,
        prompt=tuple(prompt),
        sampling=_sampling(search.sampling, engine.default_sampling),
        trace_limit=limit,
        token_budget=search.budgets.tokens,
        deadline=deadline,
        answer_mode=ANSWER_MODES[search.answer_mode],
        answer_regex=search.answer_regex,
        seed=search.seed,
    )
    return spec, policy


def _messages(search: pb.Search) -> list[dict[str, str]]:
    if search.WhichOneof("prompt") == "question":
        return [{"role": "user", "content": search.question}]
    return [{"role": m.role, "content": m.content} for m in search.conversation.messages]


def _plain(value: object) -> object:
    """A parameter's value as its maker meant it: a Struct has no whole numbers."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _field(name: str) -> str:
    return {"policy": "search.policy", "profile": "search.profile"}.get(name, f"search.parameters.{name}")


def _sampling(asked: pb.Sampling, default: SamplingSpec) -> SamplingSpec:
    return SamplingSpec(
        temperature=asked.temperature if asked.HasField("temperature") else default.temperature,
        top_p=asked.top_p if asked.HasField("top_p") else default.top_p,
        top_k=asked.top_k if asked.HasField("top_k") else default.top_k,
    )
