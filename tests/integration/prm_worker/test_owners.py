"""A tree that changes hands: its next owner has other nodes of the numbers that the one before gave last, and
a prm worker to which it comes back may remember what never became part of it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from decoder_worker.engine.base import SamplingSpec
from decoder_worker.engine.scripted_traces import ScriptedTokenizer
from decoder_worker.scoring.client import ScoredRow, ScoringClient
from decoder_worker.scoring.of_search import SearchScores
from decoder_worker.spec import SearchSpec
from decoder_worker.tree_view import Trace, TreeView
from prm_worker.scorers.base import Float32Array, Scored, TracePart
from prm_worker.scorers.incremental import SequenceScorer
from tests.integration.prm_worker.clients import Inbox, client_of, hidden
from tests.integration.prm_worker.serving import HIDDEN, TRAINED_FOR, served
from tests.integration.prm_worker.test_histories import WIDTH, right_scores, some_rows
from tests.unit.prm_worker.weights import sequence_weights
from tree_store.model import NodeState, Thought

SEQUENCE = replace(TRAINED_FOR, kind="sequence")


class Owner:
    """The tree `t` as one owner has it, without an engine."""

    def __init__(self, client: ScoringClient, epoch: int) -> None:
        log: Any = None  # nothing is written here
        spec = SearchSpec(
            "t", (), SamplingSpec(), 1000, 0, 0.0, "none", "", 0, scorer=client.scorer, epoch=epoch
        )
        self.name = spec.scoring_id
        self.view = TreeView()
        self._scores = SearchScores(spec, log, ScriptedTokenizer(), wanted=True)
        self._client = client

    def add(self, parent: Trace | None = None) -> Trace:
        trace = self.view.add_branch(parent) if parent else self.view.add_root()
        self.view.move(trace, NodeState.LIVE)
        return trace

    def take_over(self, trace: Trace) -> Trace:
        """A root as it was stored."""
        known = Trace(1 + len(self.view), None, tokens=trace.tokens[:], thoughts=list(trace.thoughts))
        known.projected = list(trace.projected)
        self.view.restore(known)
        self.view.move(known, NodeState.LIVE)
        return known

    async def think(self, trace: Trace, rows: torch.Tensor) -> Sequence[float | None]:
        """Scores of new thoughts with these rows, one after the other."""
        scores = []
        for row in rows:
            self.view.append_tokens(trace, [1])
            trace.thoughts.append(Thought(trace.total_tokens))
            box = Inbox()
            self._client.submit([self._scores.send(trace, hidden(row))], box.deliver)
            scores.append(self._take(trace, (await box.wait_for(1))[0]))
        return scores

    def _take(self, trace: Trace, item: ScoredRow) -> float | None:
        if item.score is not None:
            self.view.set_score(trace, item.row.thought, item.score, item.projected)
        return item.score


async def test_no_trace_is_taken_for_one_that_an_earlier_owner_had() -> None:
    """Each owner gives node 3 to a branch of its own; the first is not told that it has lost the tree."""
    rows = some_rows(8, seed=5)
    scorer = SequenceScorer(sequence_weights(HIDDEN, WIDTH), cache_bytes=2**20, cache_dtype="float32")
    async with served(SEQUENCE, scorer=scorer) as prm, client_of(prm.target) as client:
        await client.info()
        first = Owner(client, epoch=1)
        roots = [first.add(), first.add()]
        for root, own in zip(roots, (rows[:2], rows[2:4]), strict=True):
            await first.think(root, own)
        second = Owner(client, epoch=2)
        known = [second.take_over(root) for root in roots]
        old = first.add(roots[0])
        before = [*await first.think(old, rows[4:5])]
        new = second.add(known[1])
        assert (new.number, new.scored) == (old.number, roots[0].scored)
        after = [*await second.think(new, rows[6:7])]
        before += await first.think(old, rows[5:6])
        after += await second.think(new, rows[7:8])

        assert before == pytest.approx(right_scores(torch.cat((rows[:2], rows[4:6])))[2:], abs=1e-3)
        assert after == pytest.approx(right_scores(torch.cat((rows[2:4], rows[6:8])))[2:], abs=1e-3)

        client.forget(first.name)
        after = await second.think(new, rows[:1])
        assert np.isfinite(np.array(after, float)).all()
        client.forget(second.name)


class Late(SequenceScorer):
    """Its answers can be held back once it has scored."""

    seconds = 0.0

    def score_parts(self, rows: Float32Array, parts: Sequence[TracePart]) -> Scored:
        scored = super().score_parts(rows, parts)
        time.sleep(self.seconds)
        return scored


async def test_what_a_prm_worker_scored_in_vain_is_no_history_when_the_tree_comes_back() -> None:
    rows = some_rows(4, seed=6)
    late = [Late(sequence_weights(HIDDEN, WIDTH), cache_dtype="float32") for _ in range(2)]
    async with AsyncExitStack() as stack:
        prms: dict[str, tuple[Late, AsyncExitStack]] = {}
        for scorer in late:
            own = await stack.enter_async_context(AsyncExitStack())
            prm = await own.enter_async_context(served(SEQUENCE, scorer=scorer))
            prms[prm.target] = scorer, own
        client = await stack.enter_async_context(client_of(",".join(prms), deadline=1.0))
        await client.info()
        owner = Owner(client, epoch=1)
        trace = owner.add()
        scores = [*await owner.think(trace, rows[:1])]
        home = client.home_of(owner.name)
        assert home is not None
        prms[home][0].seconds = 1.5
        assert await owner.think(trace, rows[1:2]) == [None]  # it was lost
        prms[home][0].seconds = 0.0
        scores += await owner.think(trace, rows[2:3])
        other = client.home_of(owner.name)
        assert other not in (None, home)
        async with asyncio.timeout(10):
            while client.serving < 2:  # noqa: ASYNC110 - nothing announces it
                await asyncio.sleep(0.02)
        await prms[str(other)][1].aclose()
        scores += await owner.think(trace, rows[3:])
        assert client.home_of(owner.name) == home
    assert scores == pytest.approx(right_scores(torch.cat((rows[:1], rows[2:]))), abs=1e-3)
