"""From a client's Search message to what the worker runs: the checks that need the model, the tokenizer, the
policies and the scorer. They end in a StatusError that names every bad field, before the tree runs."""

from __future__ import annotations

from collections.abc import Iterator

import grpc
from google.protobuf import struct_pb2

from decoder_worker.engine.base import EngineInfo, SamplingSpec, Tokenizer
from decoder_worker.policies import POLICIES, Limits, make_policy
from decoder_worker.policies.base import Policy
from decoder_worker.policies.parameters import ParameterError, specs
from decoder_worker.scoring.confidence import ConfidenceScoring
from decoder_worker.scoring.info import ScorerInfo
from decoder_worker.spec import SearchSpec
from thoughtbeam.runtime.patterns import pattern_violations
from thoughtbeam.runtime.scorers import ADVICE, CONFIDENCE, scorer_violations
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
    scorer: ScorerInfo | None,
    has_embedder: bool,
    epoch: int = 1,
) -> tuple[SearchSpec, Policy[object]]:
    """Checks a search and makes its policy. profile: taken when the search names none. scorer: the worker's
    own, if it has one."""
    prompt = _prompt(search, tokenizer)
    limit = _trace_limit(search, len(prompt), engine.max_context)
    bad = [
        *_answer_violations(search),
        *_sampling_violations(search.sampling),
        *scorer_violations(search.scorer),
    ]
    policy = None
    try:
        policy = make_policy(
            search.policy, search.profile or profile, _overrides(search), Limits(max_capacity, limit)
        )
    except ParameterError as error:
        bad += [Violation(_field(name), text) for name, text in error.violations]
    else:
        bad += _kv_violations(policy, len(prompt), engine)
    if policy is None or bad:
        raise invalid(*bad)
    if search.scorer == CONFIDENCE:
        scorer = ConfidenceScoring.scorer
    if policy.needs_scores and scorer is None:
        raise _no_scorer(policy.name, engine.model)
    if policy.needs_embeddings and not has_embedder:
        raise no_embedder(policy.name, "has none")
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
        messages=tuple((message["role"], message["content"]) for message in _messages(search)),
        scorer=scorer if policy.needs_scores else None,
        epoch=epoch,
    )
    return spec, policy


def _prompt(search: pb.Search, tokenizer: Tokenizer) -> list[int]:
    """Its tokens, at least one."""
    try:
        prompt = tokenizer.encode_chat(_messages(search))
    except Exception as error:  # a chat template is a program of the model's makers; it raises what it likes
        raise invalid(
            Violation(_prompt_field(search), f"the model's chat template refuses it: {error}")
        ) from error
    if not prompt:
        raise invalid(Violation(_prompt_field(search), "the model's chat template makes no token of it"))
    return prompt


def _trace_limit(search: pb.Search, prompt: int, context: int) -> int:
    """Most generated tokens of a trace."""
    room, asked = context - prompt, search.budgets.trace_tokens
    found = f"the prompt has {prompt} tokens and the context {context}: {max(0, room)} are left for a trace"
    if room < 1:
        raise invalid(Violation(_prompt_field(search), f"{found}, at least {asked or 1} needed"))
    if asked > room:
        raise invalid(Violation("search.budgets.trace_tokens", f"{found}, not {asked}"))
    return asked or room


def _kv_violations(policy: Policy[object], prompt: int, engine: EngineInfo) -> list[Violation]:
    """A capacity of which the KV cache cannot hold what has a slot, not even right after the prompt: its full
    blocks are shared, and each trace has at least one of its own. (One trace of any length always fits: the
    engine would not have started.)"""
    shared = prompt // engine.block_size
    fit = engine.kv_blocks - shared
    at_once = min(policy.capacity, engine.slots)
    name = next((n for n, spec in specs(policy.parameters_type).items() if spec.cap == "max_capacity"), None)
    if at_once <= fit or name is None:
        return []
    return [
        Violation(
            f"search.parameters.{name}",
            f"must be a whole number from 1 to {fit}, not {policy.capacity}: the KV cache has "
            f"{engine.kv_blocks} blocks of {engine.block_size} tokens, the prompt takes {shared}, and each "
            f"of {at_once} traces that run at once takes at least one more",
        )
    ]


def _answer_violations(search: pb.Search) -> Iterator[Violation]:
    if search.answer_mode not in ANSWER_MODES:
        names = ", ".join(pb.AnswerMode.keys()[1:])
        yield Violation("search.answer_mode", f"must be one of {names}, not {search.answer_mode}")
    if search.answer_mode == pb.ANSWER_MODE_REGEX:
        yield from pattern_violations("search.answer_regex", search.answer_regex)


def _sampling_violations(asked: pb.Sampling) -> Iterator[Violation]:
    # written so that NaN fails too
    if asked.HasField("temperature") and not 0 <= asked.temperature <= 2:
        yield Violation("search.sampling.temperature", f"must be from 0 to 2, not {asked.temperature}")
    if asked.HasField("top_p") and not 0 < asked.top_p <= 1:
        yield Violation("search.sampling.top_p", f"must be above 0 and at most 1, not {asked.top_p}")
    if asked.HasField("top_k") and not asked.top_k:
        yield Violation("search.sampling.top_k", "must be at least 1, not 0")


def _no_scorer(policy: str, model: str) -> StatusError:
    free = [kind.name for kind in POLICIES.values() if not kind.needs_scores]
    return StatusError(
        grpc.StatusCode.FAILED_PRECONDITION,
        "NO_SCORER",
        f"policy {policy} needs a scorer and the worker of {model} has none. {ADVICE}. "
        f"Without one there are: {', '.join(free)}",
    )


def no_embedder(policy: str, why: str) -> StatusError:
    """why: what is the matter with the worker's own."""
    return StatusError(
        grpc.StatusCode.FAILED_PRECONDITION,
        "NO_EMBEDDER",
        f"policy {policy} needs a model that embeds thoughts, and the worker {why}. Install the extra "
        "slim_sc beside the decoder worker (pip install 'thoughtbeam[slim_sc]'), or name a model in the "
        "format of sentence-transformers to it (embedding_model in its settings, --embedding-model NAME). "
        "All other policies run without one.",
    )


def _prompt_field(search: pb.Search) -> str:
    return "search.question" if search.question else "search.conversation.messages"


def _messages(search: pb.Search) -> list[dict[str, str]]:
    if search.WhichOneof("prompt") == "question":
        return [{"role": "user", "content": search.question}]
    return [{"role": m.role, "content": m.content} for m in search.conversation.messages]


def _overrides(search: pb.Search) -> dict[str, object]:
    """The parameters as their maker meant them. Not by way of JSON, which has no words for NaN and the
    infinities: they are refused as any other value."""
    return {name: _plain(value) for name, value in search.parameters.fields.items()}


def _plain(value: struct_pb2.Value) -> object:
    """A Struct has no whole numbers. What no parameter takes stays what it is, and is refused as that."""
    match value.WhichOneof("kind"):
        case "number_value":
            number = value.number_value
            return int(number) if number.is_integer() else number
        case "string_value":
            return value.string_value
        case "bool_value":
            return value.bool_value
        case "null_value":
            return None
        case _:
            return value


def _field(name: str) -> str:
    return {"policy": "search.policy", "profile": "search.profile"}.get(name, f"search.parameters.{name}")


def _sampling(asked: pb.Sampling, default: SamplingSpec) -> SamplingSpec:
    return SamplingSpec(
        temperature=asked.temperature if asked.HasField("temperature") else default.temperature,
        top_p=asked.top_p if asked.HasField("top_p") else default.top_p,
        top_k=asked.top_k if asked.HasField("top_k") else default.top_k,
    )
