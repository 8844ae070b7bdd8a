"""What holds for every policy, whatever happens to it.

The driver checks the rules of the state machine, of the capacity, of held traces and of ghosts at every step:
no action ever concerns a trace that has ended.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from decoder_worker.policies import POLICIES
from decoder_worker.policies.base import Policy, SpawnRoot
from decoder_worker.policies.parameters import specs
from tests.unit.policies.driver import Driver, play, policy
from tests.unit.policies.worlds import AdversarialWorld, ConstantWorld, RandomWorld, SilentWorld
from tree_store.model import NodeState

WORLDS = (RandomWorld, ConstantWorld, AdversarialWorld, SilentWorld)
NAMES = tuple(POLICIES)
ANSWERS = ("29", "52", "7", None)

Make = Callable[[], Policy[Any]]


def groups_of(driver: Driver) -> dict[str, int]:
    """Answers grouped by spelling, in the order of their first finish."""
    answers = [t.answer for t in driver.view.finished if t.answer is not None]
    return {answer: i for i, answer in enumerate(dict.fromkeys(answers))}


def gambit(draw: st.DrawFn) -> dict[str, object]:
    capacity = draw(st.integers(1, 12))
    exchange = draw(st.integers(0, capacity // 2))
    refill = draw(st.booleans())
    high_water = draw(st.floats(0.1, 1.0))
    return {
        "C": capacity,
        "K": exchange,
        "interval": draw(st.integers(1, 30)),
        "interval_scope": draw(st.sampled_from(["tree", "trace"])),
        "warmup": draw(st.integers(0, 200)),
        "warmup_scope": draw(st.sampled_from(["own", "total"])),
        "high_water": high_water,
        "N_max": draw(st.integers(1, capacity if not refill else 30)),
        "refill": refill,
        "unscored": draw(st.sampled_from(["mean", "zero"])),
        "vote": draw(st.sampled_from(["weighted", "decorrelated"])),
        "revive_ghosts": high_water < 1 and draw(st.booleans()),
        "revive_margin": draw(st.floats(0, 0.09)),
        "revive_interval": draw(st.integers(1, 100)),
        "stable_thoughts": draw(st.integers(0, 3 if exchange or refill else 0)),
        "stable_within": draw(st.floats(0, 1)),
        "reserve": draw(st.integers(0, capacity - 2 * exchange if exchange else 0)),
    }


def sart(draw: st.DrawFn, *, prune: bool) -> dict[str, object]:
    n = draw(st.integers(1, 12))
    given: dict[str, object] = {
        "N": n,
        "M": draw(st.none() | st.integers(1, n)),
        "reward": draw(st.sampled_from(["last", "min", "mean", "product"])),
    }
    if not prune:
        return given
    return given | {
        "alpha": draw(st.floats(0, 1)),
        "beta": draw(st.none() | st.integers(0, n - 1)),
        "interval": draw(st.integers(1, 200)),
    }


def deepconf(draw: st.DrawFn) -> dict[str, object]:
    n = draw(st.integers(1, 12))
    return {
        "mode": draw(st.sampled_from(["online", "online", "offline"])),
        "N": n,
        "warmup_traces": draw(st.integers(1, n)),
        "eta": draw(st.floats(1, 100)),
        "tau": draw(st.floats(0.5, 1)),
        "consensus_traces": draw(st.integers(1, n)),
        "window": draw(st.integers(1, 200)),
        "weight": draw(st.sampled_from(["mean", "tail", "bottom", "lowest", "majority"])),
        "bottom": draw(st.floats(0, 1)),
        "interval": draw(st.integers(1, 100)),
    }


def slim_sc(draw: st.DrawFn) -> dict[str, object]:
    return {
        "N": draw(st.integers(1, 12)),
        "threshold": draw(st.floats(-1, 1)),
        "start_after": draw(st.integers(0, 8)),
        "index_window": draw(st.integers(0, 3)),
        "shortest": draw(st.integers(1, 60)),
        "pruning": draw(st.sampled_from(["random", "diversity"])),
    }


def rebase(draw: st.DrawFn) -> dict[str, object]:
    kinds = st.sampled_from(["last", "min", "mean", "product"])
    return {
        "W": draw(st.integers(1, 12)),
        "tau": draw(st.floats(0.001, 10)),
        "reward": draw(kinds),
        "vote": draw(kinds),
        "depth": draw(st.integers(1, 40)),
    }


@st.composite
def policies(draw: st.DrawFn) -> Make:
    """Any policy with any parameters that make sense for traces of some hundred tokens."""
    name = draw(st.sampled_from(NAMES))
    overrides: dict[str, object]
    match name:
        case "vanilla":
            overrides = {}
        case "gambit":
            overrides = gambit(draw)
        case "sart" | "sart_no_prune":
            overrides = sart(draw, prune=name == "sart")
        case "step":
            overrides = {"N": draw(st.integers(1, 12)), "high_water": draw(st.floats(0.1, 0.99))}
            overrides["unscored"] = draw(st.sampled_from(["mean", "zero"]))
        case "deepconf":
            overrides = deepconf(draw)
        case "slim_sc":
            overrides = slim_sc(draw)
        case "rebase":
            overrides = rebase(draw)
        case _:
            overrides = {"N": draw(st.integers(1, 12))}
    # the parameters that are drawn here are all there are
    assert overrides.keys() | {"child_temperature", "by"} >= specs(POLICIES[name].parameters_type).keys()
    return lambda: policy(name, **overrides)


@settings(max_examples=300, deadline=None)
@given(
    make=policies(),
    world=st.sampled_from(WORLDS),
    seed=st.integers(0, 1000),
    slots=st.integers(1, 16),
    kv=st.none() | st.integers(8, 200),
    delay=st.integers(0, 3),
)
def test_every_search_ends_and_nothing_changes_when_the_policy_is_rebuilt(
    make: Make,
    world: type[RandomWorld],
    seed: int,
    slots: int,
    kv: int | None,
    delay: int,
) -> None:
    once = Driver(make(), slots=slots, seed=seed)
    play(once, world(seed), kv=kv, delay=delay)
    once.check_end()

    again = Driver(make(), slots=slots, seed=seed, reload=make)
    play(again, world(seed), kv=kv, delay=delay)
    assert again.log == once.log

    # the vote is over finished traces only, and the same one, too
    groups = groups_of(once)
    decision = once.vote(groups)
    assert again.vote(groups) == decision
    finished = {t.number for t in once.view.finished if t.answer is not None}
    assert {node for group in decision.groups for node in group.nodes} <= finished
    assert (decision.winner is None) == (not finished)


class AnythingHappens(RuleBasedStateMachine):
    """Events in any order, not only in one that an engine would give. After the end nothing is live."""

    driver: Driver

    @initialize(make=policies(), slots=st.integers(1, 12), seed=st.integers(0, 99))
    def begin(self, make: Make, slots: int, seed: int) -> None:
        self.driver = Driver(make(), slots=slots, seed=seed, reload=make)
        self.driver.start()

    def some_live(self, data: st.DataObject, *, once: bool) -> list[int]:
        live = [t.number for t in self.driver.view.in_state(NodeState.LIVE)]
        if not live:
            return []
        return data.draw(st.lists(st.sampled_from(live), min_size=1, max_size=4, unique=once))

    @rule(
        data=st.data(),
        score=st.none() | st.floats(0, 1),
        tokens=st.integers(1, 150),
        confidence=st.none() | st.floats(0, 30, width=32),
    )
    def think(self, data: st.DataObject, score: float | None, tokens: int, confidence: float | None) -> None:
        numbers = self.some_live(data, once=self.driver.policy.holds_at_boundaries)
        for number in numbers:
            trace = self.driver.view[number]
            complete = len(trace.confidences) == len(trace.tokens)
            asked = confidence is not None and complete and self.driver.policy.needs_confidence
            self.driver.boundary(number, tokens, [confidence or 0.0] * tokens if asked else ())
        self.driver.deliver(*((n, score) for n in numbers))
        self.driver.check_idle()

    @rule(data=st.data(), answer=st.sampled_from(ANSWERS))
    def finish(self, data: st.DataObject, answer: str | None) -> None:
        numbers = sorted(self.some_live(data, once=True))
        if numbers:
            self.driver.finish(*numbers, answer=answer)
            self.driver.check_idle()

    @rule(
        data=st.data(), index=st.integers(0, 9), vector=st.sampled_from([(1.0, 0.0), (0.6, 0.8), (0.0, 0.0)])
    )
    def embed(self, data: st.DataObject, index: int, vector: tuple[float, float]) -> None:
        everyone = sorted(self.driver.view.traces)
        if everyone:
            numbers = data.draw(st.lists(st.sampled_from(everyone), min_size=1, max_size=3, unique=True))
            self.driver.embed(*((n, index, vector) for n in numbers))
            self.driver.check_idle()

    @rule(steps=st.integers(1, 300), kv_use=st.floats(0, 1))
    def pass_steps(self, steps: int, kv_use: float) -> None:
        self.driver.steps(steps, kv_use)
        self.driver.check_idle()

    @rule(blocks=st.integers(1, 50))
    def press(self, blocks: int) -> None:
        self.driver.press(blocks)
        self.driver.check_idle()

    @invariant()
    def accounting(self) -> None:
        counts = self.driver.counts
        states = [state.value for state in NodeState]
        assert counts["nodes"] == sum(counts[state] for state in states)
        if self.driver.ended:
            self.driver.check_end()

    @invariant()
    def there_is_always_a_vote(self) -> None:
        """A budget may end a search at any moment."""
        answered = any(t.answer is not None for t in self.driver.view.finished)
        assert (self.driver.vote(groups_of(self.driver)).winner is not None) == answered


AnythingHappens.TestCase.settings = settings(max_examples=150, stateful_step_count=30, deadline=None)
TestAnythingHappens = AnythingHappens.TestCase


@pytest.mark.parametrize(
    ("name", "overrides"), [*((name, {}) for name in NAMES), ("slim_sc", {"pruning": "random"})]
)
@pytest.mark.parametrize("world", WORLDS)
def test_the_same_seed_gives_the_same_search(
    name: str, overrides: dict[str, object], world: type[RandomWorld]
) -> None:
    logs = []
    for _ in range(2):
        driver = Driver(policy(name, **overrides), slots=16, seed=7)
        play(driver, world(seed=1), kv=400)
        logs.append(driver.log)
    assert logs[0] == logs[1]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("world", WORLDS)
def test_tiny_profile_acts(name: str, world: type[RandomWorld]) -> None:
    """With traces as long as the bundled model's, each does in its `tiny` profile what it is there for, where
    scores, confidences or vectors tell traces apart. `step` acts only when the memory is too small."""
    driver = Driver(policy(name), slots=24)
    play(driver, world(seed=1, length_mean=500, thought_mean=45), kv=400 if name == "step" else None)
    driver.check_end()
    counts = driver.counts
    if world is RandomWorld:
        acted = {
            "gambit": min(counts["branches"] // 8, counts["pruned"] // 4),
            "sart": counts["pruned"],
            "sart_no_prune": counts["cancelled"],
            "step": counts["pruned"],
            "deepconf": counts["pruned"],
            "slim_sc": counts["pruned"],
            "rebase": min(counts["branches"], counts["pruned"]),
        }
        assert acted.get(name, 1) >= 1
    roots = sum(isinstance(a, SpawnRoot) for entry in driver.log for a in entry.actions)
    # where all say the same, deepconf's warm-up is enough
    assert roots == (8 if name == "deepconf" and world is ConstantWorld else driver.policy.capacity)
