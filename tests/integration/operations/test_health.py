"""Health says SERVING only when a program can do its work, of processes as they are run."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest
import torch

from decoder_worker.main import SERVICE as DECODER
from gateway.main import SERVICES as GATEWAY
from prm_worker.scoring_service import SERVICE as PRM
from tests.integration.operations.conftest import Store
from tests.integration.operations.programs import running
from tests.unit.prm_worker.weights import step_weights
from thoughtbeam.runtime.probe import SERVING
from thoughtbeam.supervision.probes import free_ports

NOT_SERVING = "NOT_SERVING"
SCRIPTED = "tests.integration.operations.scripted_decoder"


async def test_a_decoder_worker_serves_once_its_engine_scorer_and_gateway_are_there(
    tmp_path: Path, store: Store
) -> None:
    gate, weights, answer = tmp_path / "gate", tmp_path / "scorer.pt", tmp_path / "answer"
    answer.write_text("29")
    torch.save(step_weights(4), weights)
    gateway_port, prm_port = free_ports(2)
    flags = (
        "--model",
        "scripted",
        "--gateway",
        f"127.0.0.1:{gateway_port}",
        "--scorer",
        f"127.0.0.1:{prm_port}",
    )
    async with running(
        tmp_path,
        "decoder_worker",
        *flags,
        module=f"{SCRIPTED} {gate} {answer}",
        environment=store.environment,
    ) as worker:
        await worker.becomes(NOT_SERVING, DECODER)
        async with running(tmp_path, "gateway", environment=store.environment, port=gateway_port) as gateway:
            for service in ("", *GATEWAY):
                await gateway.becomes(SERVING, service)
            await worker.stays(NOT_SERVING, DECODER)  # no engine

            gate.touch()
            await worker.stays(NOT_SERVING, DECODER)  # no scorer

            async with running(tmp_path, "prm_worker", "--scorer", weights, port=prm_port) as prm:
                await prm.becomes(SERVING, PRM)
                for service in ("", DECODER):
                    await worker.becomes(SERVING, service)

                assert await gateway.stop() == 0
                await worker.becomes(NOT_SERVING, DECODER)

        async with running(tmp_path, "gateway", environment=store.environment, port=gateway_port):
            await worker.becomes(SERVING, DECODER)
            assert await worker.stop() == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_decoder_worker_that_starts_ends_at_once(
    tmp_path: Path, store: Store, number: signal.Signals
) -> None:
    async with running(
        tmp_path,
        *("decoder_worker", "--model", "scripted"),
        module=f"{SCRIPTED} {tmp_path / 'never'} none",
        environment=store.environment,
    ) as worker:
        await worker.becomes(NOT_SERVING)
        assert await worker.stop(number) == 128 + number
        assert worker.log.read_text() == ""


async def test_a_gateway_without_its_store_is_not_serving(tmp_path: Path, store: Store) -> None:
    # the password is missing, so that Redis answers and refuses
    async with running(tmp_path, "gateway", environment={"THOUGHTBEAM_REDIS_URL": store.url}) as gateway:
        for service in ("", *GATEWAY):
            await gateway.becomes(NOT_SERVING, service)
        await gateway.stays(NOT_SERVING)
        await gateway.says("store_unreachable")
        assert await gateway.stop() == 0
