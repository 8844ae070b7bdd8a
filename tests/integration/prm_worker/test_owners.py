"""A tree that changes hands: its next owner has other nodes of the numbers that the one before gave last."""

from __future__ import annotations

from collections.abc import Sequence
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
