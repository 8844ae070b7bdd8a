"""The prm worker as a process of its own: killed, stopped, hung and started again under a client."""

from __future__ import annotations

import asyncio
import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest
import torch

from decoder_worker.scoring.client import ScorerMismatchError, ScoringClient
from prm_worker.scorer_file import ScorerFile, write_scorer_file
from prm_worker.scorers.sequence import net_of
from tests.integration.prm_worker.clients import Inbox, assert_in_order, assert_right, client_of, row_of
from tests.integration.prm_worker.serving import HIDDEN, TRAINED_FOR, WEIGHTS, free_port, start_worker
from tests.unit.prm_worker.weights import sequence_weights
from thoughtbeam.runtime.rpc import open_channel
from thoughtbeam.v1 import scoring_pb2 as pb
from thoughtbeam.v1.scoring_pb2_grpc import ScorerServiceStub


@pytest.fixture
def scorer(tmp_path: Path) -> Path:
    path = tmp_path / "scorer.pt"
    write_scorer_file(path, ScorerFile(WEIGHTS, TRAINED_FOR))
    return path


async def test_killed_and_started_again_under_traffic_every_row_is_scored_once(scorer: Path) -> None:
    port = free_port()
    box = Inbox()
    worker = await start_worker(port, scorer)
    async with client_of(f"127.0.0.1:{port}", deadline=60) as client:
        thoughts = 0
        for _ in range(20):
            client.submit([row_of("tree", node, thoughts) for node in range(1, 9)], box.deliver)
            thoughts += 1
            await asyncio.sleep(0.005)
        await box.wait_for(80)

        await worker.kill()
        for _ in range(20):
            client.submit([row_of("tree", node, thoughts) for node in range(1, 9)], box.deliver)
            thoughts += 1
            await asyncio.sleep(0.005)
        assert len(box.received) < 8 * thoughts

        worker = await start_worker(port, scorer)
        scored = await box.wait_for(8 * thoughts)
        assert client.stats.retries > 0
        assert client.stats.lost == 0

    assert (await worker.stop())[0] == 0
    assert len(scored) == 8 * thoughts
    assert_in_order(scored)
    assert_right(scored)


async def test_stopped_in_traffic_it_ends_cleanly_and_says_nothing_on_stdout(scorer: Path) -> None:
    port = free_port()
    box = Inbox()
    worker = await start_worker(port, scorer)
    async with client_of(f"127.0.0.1:{port}", deadline=1.0) as client:
        for thought in range(200):
            client.submit([row_of("tree", 1, thought)], box.deliver)
        status, output, errors = await worker.stop()
        scored = await box.wait_for(200)

    assert status == 0
    assert output == b""
    assert b" prm_worker.server serving port=" in errors
    assert b" prm_worker.server stopping grace=" in errors
    assert b"Traceback" not in errors
    assert_in_order(scored)
    assert_right([item for item in scored if item.error != "SCORER_LOST"])


async def test_hung_its_rows_are_lost_at_the_deadline_and_scored_again_once_it_goes_on(scorer: Path) -> None:
    port = free_port()
    box = Inbox()
    worker = await start_worker(port, scorer)
    async with client_of(f"127.0.0.1:{port}", deadline=1.0) as client:
        client.submit([row_of("tree", 1, 0)], box.deliver)
        await box.wait_for(1)

        worker.send(signal.SIGSTOP)
        client.submit([row_of("tree", 1, 1)], box.deliver)
        assert (await box.wait_for(2, timeout=3))[1].error == "SCORER_LOST"

        worker.send(signal.SIGCONT)
        client.submit([row_of("tree", 1, 2)], box.deliver)
        scored = await box.wait_for(3)
    await worker.stop()

    assert_right([scored[0], scored[2]])
    assert_in_order(scored)


async def test_flags_say_what_a_public_checkpoint_does_not(tmp_path: Path) -> None:
    scorer = tmp_path / "step.pt"
    torch.save({"model_state_dict": WEIGHTS, "epoch": 3}, scorer)
    port = free_port()
    worker = await start_worker(
        port, scorer, "--model-fingerprint", "a-model", "--boundary-rule", "blank_line", "--max-rows", "64"
    )

    async with client_of(f"127.0.0.1:{port}") as client:
        info = await client.info()
        assert (info.kind, info.hidden_size, info.max_rows) == ("mlp", HIDDEN, 64)
        box = Inbox()
        client.submit([row_of("tree", 1, thought) for thought in range(100)], box.deliver)
        assert_right(await box.wait_for(100))

    stranger = ScoringClient(f"127.0.0.1:{port}", "another-model", "blank_line", 5.0)
    with pytest.raises(ScorerMismatchError, match="another-model"):
        await stranger.info()
    await stranger.close()
    assert (await worker.stop())[0] == 0


async def test_a_sequence_scorer_is_served_with_its_cache_and_for_another_model_where_that_is_allowed(
    tmp_path: Path,
) -> None:
    path = tmp_path / "sequence.pt"
    weights = sequence_weights(HIDDEN, width=32)
    write_scorer_file(path, ScorerFile(weights, replace(TRAINED_FOR, kind="sequence")))
    port = free_port()
    worker = await start_worker(
        port, path, "--cache-mb", "16", "--cache-dtype", "float32", "--allow-mismatch"
    )

    async with open_channel(f"127.0.0.1:{port}") as channel:
        stub: Any = ScorerServiceStub(channel)
        info = await stub.GetScorerInfo(pb.GetScorerInfoRequest())
        rows = np.ones((2, HIDDEN), "<f4")
        tensor = pb.Tensor(dtype=pb.DATA_TYPE_FLOAT32, shape=rows.shape, data=rows.tobytes())
        part = pb.TraceRows(tree_id="t", node=0, rows=2)
        answer = await stub.Score(pb.ScoreRequest(model_fingerprint="other", rows=tensor, traces=[part]))
        part.first_thought = 16 * 2**20 // (2 * 32 * 4) - 1
        with pytest.raises(grpc.aio.AioRpcError, match="for which cache_mb has room"):
            await stub.Score(pb.ScoreRequest(model_fingerprint="other", rows=tensor, traces=[part]))

    assert (info.kind, info.history_size, info.mismatch_allowed) == ("sequence", 32, True)
    with torch.inference_mode():
        right = torch.sigmoid(net_of(weights)(torch.ones(1, 2, HIDDEN), torch.tensor([2])))[0]
    assert np.frombuffer(answer.scores.data, "<f4") == pytest.approx(right.numpy(), abs=1e-5)
    assert "model_fingerprint is other, not a-model" in answer.mismatch
    assert (await worker.stop())[0] == 0
