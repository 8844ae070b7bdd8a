"""The clock gives every part its own time, whatever runs inside it or in between."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest

from bench.clock import Clock


class Scene:
    """Something with these attributes."""

    def __init__(self, **attributes: Any) -> None:
        vars(self).update(attributes)

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(name)


def busy(seconds: float) -> None:
    """Keeps the thread's CPU busy."""
    until = time.thread_time() + seconds
    while time.thread_time() < until:
        pass


async def test_a_part_inside_another_takes_its_time_from_it_and_pauses_count_for_none() -> None:
    def inner() -> None:
        busy(0.02)

    def outer() -> None:
        busy(0.01)
        scene.inner()
        scene.inner()

    async def waiting() -> str:
        busy(0.01)
        await asyncio.sleep(0.05)
        scene.inner()
        return "done"

    scene = Scene(inner=inner, outer=outer, waiting=waiting)
    clock = Clock()
    with clock.watching(
        {(scene, "inner"): "inner", (scene, "outer"): "outer"}, {(scene, "waiting"): "waiting"}
    ):
        scene.outer()
        answers = await asyncio.gather(scene.waiting(), scene.waiting())

    assert answers == ["done", "done"]
    seconds = clock.seconds()
    assert clock.calls["inner"] == 4
    assert seconds["inner"] == pytest.approx(0.08, rel=0.2)
    assert seconds["outer"] == pytest.approx(0.01, rel=0.3)
    assert seconds["waiting"] == pytest.approx(0.02, rel=0.3)


async def test_errors_and_cancellations_reach_a_watched_coroutine() -> None:
    seen: list[str] = []

    async def patient() -> None:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            seen.append("cancelled")
            raise

    async def broken() -> None:
        await asyncio.sleep(0)
        raise ValueError("broken")

    scene = Scene(patient=patient, broken=broken)
    clock = Clock()
    with clock.watching({}, {(scene, "patient"): "patient", (scene, "broken"): "broken"}):
        task = asyncio.create_task(scene.patient())
        await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        with pytest.raises(ValueError, match="broken"):
            await scene.broken()
    assert seen == ["cancelled"]
    assert scene.patient is patient


def test_what_measuring_costs_is_taken_off() -> None:
    def nothing() -> None:
        pass

    scene = Scene(nothing=nothing)
    clock = Clock()
    with clock.watching({(scene, "nothing"): "nothing"}, {}):
        began = time.thread_time()
        for _ in range(20_000):
            scene.nothing()
        everything = time.thread_time() - began
    assert clock.overhead > 0
    # of all that these calls took, nearly everything was measuring
    assert clock.seconds()["nothing"] < everything / 3
