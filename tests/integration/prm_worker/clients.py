"""A scoring client that runs, and rows to give it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from zlib import crc32

import torch

from decoder_worker.engine.base import HiddenRow
from decoder_worker.scoring.client import BoundaryRow, ScoredRow, ScoringClient
from tests.integration.prm_worker.serving import HIDDEN, TRAINED_FOR, WEIGHTS
from tests.unit.prm_worker.weights import direct_scores


class Inbox:
    """A receiver of scores that can be waited for."""

    def __init__(self) -> None:
        self.received: list[ScoredRow] = []
        self._changed = asyncio.Event()

    def deliver(self, scored: Sequence[ScoredRow]) -> None:
        self.received.extend(scored)
        self._changed.set()

    async def wait_for(self, count: int, timeout: float = 30.0) -> list[ScoredRow]:
        """What has come once there are `count` rows or more."""
        async with asyncio.timeout(timeout):
            while len(self.received) < count:
                self._changed.clear()
                await self._changed.wait()
        return self.received


@asynccontextmanager
async def client_of(
    target: str, deadline: float = 30.0, model_fingerprint: str = TRAINED_FOR.model_fingerprint
) -> AsyncIterator[ScoringClient]:
    client = ScoringClient(target, model_fingerprint, TRAINED_FOR.boundary_rule, deadline, hidden_size=HIDDEN)
    async with asyncio.TaskGroup() as group:
        task = group.create_task(client.run())
        try:
            yield client
        finally:
            task.cancel()
    await client.close()


def hidden(values: torch.Tensor) -> HiddenRow:
    dtype = str(values.dtype).removeprefix("torch.")
    return HiddenRow(position=0, data=values.view(torch.uint8).numpy().tobytes(), dtype=dtype)


def row_of(tree_id: str, node: int, thought: int, values: torch.Tensor | None = None) -> BoundaryRow:
    """One boundary; without values some that only this boundary has."""
    if values is None:
        generator = torch.Generator().manual_seed(crc32(f"{tree_id}/{node}/{thought}".encode()))
        values = torch.randn(HIDDEN, generator=generator)
    return BoundaryRow(tree_id, node, thought, thought, hidden(values))


def expected_score(row: BoundaryRow) -> float:
    """The right score of a float32 row."""
    values = torch.frombuffer(bytearray(row.row.data), dtype=torch.float32)
    return direct_scores(WEIGHTS, values[None])[0]


def assert_right(scored: Sequence[ScoredRow]) -> None:
    """Every row has the score that a direct forward pass gives it."""
    for item in scored:
        assert item.score is not None, item.error
        assert abs(item.score - expected_score(item.row)) < 1e-6


def assert_in_order(scored: Sequence[ScoredRow]) -> None:
    """Of each trace, every thought from the first to the last has come exactly once, in order."""
    thoughts: dict[tuple[str, int], list[int]] = {}
    for item in scored:
        thoughts.setdefault((item.row.tree_id, item.row.node), []).append(item.row.thought)
    for of_trace in thoughts.values():
        assert of_trace == list(range(len(of_trace)))
