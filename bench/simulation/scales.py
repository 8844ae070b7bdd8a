"""Settings of whole simulations: a world, an engine, and policies that fit them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from random import Random
from typing import Any

from bench.arrivals import MEASURED, moments, steady_rate
from bench.simulation.host import Ended, Request, Simulation
from bench.simulation.world import Lengths, World
from decoder_worker.engine.scripted import ScriptedConfig, StepTime
from decoder_worker.policies import POLICIES, Limits, make_policy
from decoder_worker.policies.base import Policy


@dataclass(frozen=True)
class Scale:
    """profile: of the policies; overrides: of their parameters, by policy. trace_limit: most generated tokens
    of a trace. requests, policies, loads: how many and which, unless somebody asks for others; a load is a
    multiple of what self-consistency can serve."""

    world: World
    engine: ScriptedConfig
    profile: str
    trace_limit: int
    requests: int
    policies: tuple[str, ...] = tuple(POLICIES)
    loads: tuple[float, ...] = (0.7,)
    overrides: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    def policy(self, name: str) -> Callable[[], Policy[Any]]:
        """What makes a policy for each request."""
        limits = Limits(self.engine.slots * 8, self.trace_limit)
        return lambda: make_policy(name, self.profile, self.overrides.get(name, {}), limits)

    def simulation(self, name: str, requests: list[Request]) -> Simulation:
        """These requests under one policy."""
        return Simulation(self.world, self.engine, self.policy(name), requests, trace_limit=self.trace_limit)

    def capacity(self) -> float:
        """Requests per second that self-consistency ends while more of them wait than can run."""
        requests = [Request(f"question {i}", 0.0) for i in range(min(self.requests, 80))]
        return steady_rate([tree.ended for tree in self.simulation(MEASURED, requests).run()])


def tiny(seed: int) -> Scale:
    """Traces as the bundled model's, with the profile `tiny`: every policy acts."""
    world = World(seed=seed)
    engine = ScriptedConfig(slots=64, kv_blocks=1024, max_context=2048, confidence=world.confidence)
    return Scale(world, engine, "tiny", trace_limit=1900, requests=200)


def paper(seed: int) -> Scale:
    """Thousands of tokens with a heavy tail, N = 8 and M = 4 with the profile `paper`."""
    world = World(
        seed=seed, prompt=128, lengths=Lengths(median=3000.0, sigma=0.8), thought=150, difficulty=0.7
    )
    engine = ScriptedConfig(
        slots=64,
        kv_blocks=24_576,
        max_context=32_768,
        step_time=StepTime(base=0.015, per_trace=0.0001, per_prefilled=0.00004),
        confidence=world.confidence,
    )
    many = {name: {"N": 8} for name in ("self_consistency", "best_of_n", "sart", "sart_no_prune")}
    overrides = {**many, "rebase": {"W": 8}}
    return Scale(
        world,
        engine,
        "paper",
        trace_limit=32_000,
        requests=500,
        policies=("vanilla", "self_consistency", "sart", "sart_no_prune", "rebase"),
        loads=(0.7, 1.2),
        overrides=overrides,
    )


SCALES: Mapping[str, Callable[[int], Scale]] = {"tiny": tiny, "paper": paper}


def poisson(requests: int, rate: float, seed: int) -> list[Request]:
    """Requests that arrive at random, so many per second on average."""
    times = moments(rate, Random(f"{seed} arrivals"))
    return [Request(f"question {number}", at) for number, at in zip(range(requests), times, strict=False)]


@dataclass(frozen=True, slots=True)
class Row:
    """What became of requests under one policy. load: a multiple of self-consistency's capacity. seconds: of
    virtual time, from the first arrival to the last end. preemptions: of traces by the engine itself. runs:
    in the order in which they ended."""

    policy: str
    load: float
    seconds: float
    preemptions: int
    runs: list[Ended]


def simulate(scale: Scale, name: str, load: float, rate: float, requests: int) -> Row:
    """One policy. rate: requests per second. load: the same as a multiple of the capacity."""
    arriving = poisson(requests, rate, scale.world.seed)
    simulation = scale.simulation(name, arriving)
    runs = simulation.run()
    return Row(name, load, simulation.now - arriving[0].arrival, simulation.preemptions, runs)
