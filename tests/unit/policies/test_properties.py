"""What holds for every policy, whatever happens to it.

The driver checks the rules of the state machine, of the capacity and of ghosts at every step.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from decoder_worker.policies.base import Policy
from tests.unit.policies.driver import Driver, play, policy
from tests.unit.policies.worlds import AdversarialWorld, ConstantWorld, RandomWorld, SilentWorld
from tree_store.model import NodeState

WORLDS = (RandomWorld, ConstantWorld, AdversarialWorld, SilentWorld)
NAMES = ("vanilla", "self_consistency", "best_of_n", "gambit")


@st.composite
def policies(draw: st.DrawFn) -> Callable[[], Policy[Any]]:
    """Any policy with any parameters that make sense for traces of some hundred tokens."""
    name = draw(st.sampled_from(NAMES))
    if name == "gambit":
        capacity = draw(st.integers(1, 12))
        refill = draw(st.booleans())
        overrides: dict[str, object] = {
            "C": capacity,
            "K": draw(st.integers(0, capacity // 2)),
            "interval": draw(st.integers(1, 30)),
            "interval_scope": draw(st.sampled_from(["tree", "trace"])),
            "warmup": draw(st.integers(0, 200)),
            "warmup_scope": draw(st.sampled_from(["own", "total"])),
            "high_water": draw(st.floats(0.1, 1.0)),
            "N_max": draw(st.integers(1, capacity if not refill else 30)),
            "refill": refill,
        }
    else:
        overrides = {} if name == "vanilla" else {"N": draw(st.integers(1, 12))}
    return lambda: policy(name, **overrides)


@settings(max_examples=150, deadline=None)
@given(
    make=policies(),
    world=st.sampled_from(WORLDS),
    seed=st.integers(0, 1000),
    slots=st.integers(1, 16),
    kv=st.none() | st.integers(8, 200),
    delay=st.integers(0, 3),
)
def test_every_search_ends_and_nothing_changes_when_the_policy_is_rebuilt(
    make: Callable[[], Policy[Any]],
    world: type[RandomWorld],
    seed: int,
    slots: int,
    kv: int | None,
    delay: int,
) -> None:
    once = Driver(make(), slots=slots)
    play(once, world(seed), kv=kv, delay=delay)
    once.check_end()

    again = Driver(make(), slots=slots, reload=make)
    play(again, world(seed), kv=kv, delay=delay)
    assert again.log == once.log


class AnythingHappens(RuleBasedStateMachine):
    """Events in any order, not only in one that an engine would give. After the end nothing is live."""

    driver: Driver

    @initialize(make=policies(), slots=st.integers(1, 12))
    def begin(self, make: Callable[[], Policy[Any]], slots: int) -> None:
        self.driver = Driver(make(), slots=slots, reload=make)
        self.driver.start()

    def some_live(self, data: st.DataObject) -> list[int]:
        live = [t.number for t in self.driver.view.in_state(NodeState.LIVE)]
        return data.draw(st.lists(st.sampled_from(live), min_size=1, max_size=4)) if live else []

    @rule(data=st.data(), score=st.floats(0, 1), tokens=st.integers(1, 150))
    def think(self, data: st.DataObject, score: float, tokens: int) -> None:
        self.driver.think(*((n, score) for n in self.some_live(data)), tokens=tokens)

    @rule(data=st.data())
    def finish(self, data: st.DataObject) -> None:
        numbers = sorted(set(self.some_live(data)))
        if numbers:
            self.driver.finish(*numbers)
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


AnythingHappens.TestCase.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
TestAnythingHappens = AnythingHappens.TestCase


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("world", WORLDS)
def test_tiny_profile_acts(name: str, world: type[RandomWorld]) -> None:
    """With traces as long as the bundled model's, each does in its `tiny` profile what it is there for."""
    driver = Driver(policy(name), slots=24)
    play(driver, world(seed=1, length_mean=500, thought_mean=45))
    driver.check_end()
    if name == "gambit" and world is not SilentWorld:
        assert driver.counts["branches"] >= 8
        assert driver.counts["pruned"] >= 4
    else:
        assert driver.counts["finished"] == driver.policy.capacity
