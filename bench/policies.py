"""How long policies take to decide, on made-up trees of any size."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from bench.report import quantile
from decoder_worker.answers.votes import Candidate
from decoder_worker.policies import Limits, make_policy
from decoder_worker.policies.base import BoundariesScored, Observation, Policy, Pressure, TracesFinished
from decoder_worker.tree_view import TreeView
from tree_store.model import NodeState, Thought

POLICIES = ("vanilla", "self_consistency", "best_of_n", "gambit")
K, INTERVAL = 16, 200  # as gambit's paper profile has them
_THOUGHTS, _THOUGHT_TOKENS = 20, 40
_PER_STEP = 5  # scores that come together


@dataclass(frozen=True, slots=True)
class Decision:
    """Microseconds of one decision of a policy at one C. actions: how many it decided on."""

    policy: str
    traces: int
    what: str
    actions: int
    p50: float
    p99: float


def grown_view(size: int, *, finished: int = 0) -> TreeView:
    """C traces of 20 thoughts with random scores, all live but the first few."""
    draw = random.Random(size)
    view = TreeView()
    for _ in range(size):
        trace = view.add_root()
        view.move(trace, NodeState.LIVE)
        for index in range(_THOUGHTS):
            view.append_tokens(trace, range(_THOUGHT_TOKENS))
            trace.thoughts.append(Thought(trace.total_tokens))
            view.set_score(trace, index, draw.random())
    for trace in view.in_state(NodeState.LIVE)[:finished]:
        view.move(trace, NodeState.FINISHED)
    return view


def decisions(name: str, size: int, times: int) -> list[Decision]:
    """Every kind of decision of one policy."""
    policy = _make(name, size)
    view, nearly = grown_view(size), grown_view(size, finished=1)
    few = BoundariesScored(tuple((n, 0.5) for n in range(1, _PER_STEP + 1)))
    held = tuple((n, 4) for n in range(1, size + 1))
    asked: list[tuple[str, TreeView, Observation]] = [
        ("scores arrive", view, few),
        ("a trace finishes", nearly, TracesFinished((1,))),
        ("memory pressure: a tenth of the blocks", view, Pressure(max(1, 4 * size // 10), held)),
    ]
    if name == "gambit":
        many = BoundariesScored(tuple((1 + n % size, 0.5) for n in range(INTERVAL)))
        asked.insert(1, ("scores make a tournament due: K exchanged", view, many))
        asked.insert(2, ("scores make a tournament due: one place refilled", nearly, many))
    found = []
    for what, seen, observation in asked:
        state = policy.initial(0)
        step = policy.step(state, seen, observation)
        seconds = _time(lambda: policy.step(state, seen, observation), times)  # noqa: B023 - used at once
        found.append(_decision(name, size, what, len(step.actions), seconds))
    candidates = _candidates(size)
    seconds = _time(lambda: policy.vote(policy.initial(0), view, candidates), times)
    return [*found, _decision(name, size, "the vote over C finished traces", 0, seconds)]


def _make(name: str, size: int) -> Policy[Any]:
    parameters: dict[str, object] = {"N": size}
    if name == "vanilla":
        parameters = {}
    elif name == "gambit":
        parameters = {"C": size, "K": min(K, size // 2), "interval": INTERVAL, "warmup": 0, "N_max": size}
    return make_policy(name, "paper", parameters, Limits(size, 100_000))


def _candidates(size: int) -> Sequence[Candidate]:
    draw = random.Random(size)
    return [
        Candidate(n, draw.randrange(8), n, draw.random(), draw.random(), draw.random())
        for n in range(1, size + 1)
    ]


def _time(call: Callable[[], object], times: int) -> list[float]:
    found = []
    for _ in range(times):
        began = time.perf_counter()
        call()
        found.append(time.perf_counter() - began)
    return found


def _decision(name: str, size: int, what: str, actions: int, seconds: list[float]) -> Decision:
    p50, p99 = (round(quantile(seconds, q) * 1e6, 1) for q in (0.5, 0.99))
    return Decision(name, size, what, actions, p50, p99)
