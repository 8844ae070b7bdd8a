"""`python -m decoder_worker`: one vLLM engine and the searches that run on it."""

from __future__ import annotations

import asyncio
import os
import socket
import sys
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

from decoder_worker.config import DecoderWorkerConfig
from decoder_worker.embedding.base import EmbedderError
from decoder_worker.engine.base import Engine, EngineError
from decoder_worker.engine.vllm_config import VllmConfig
from thoughtbeam.runtime.config import configure, refuse
from thoughtbeam.runtime.log import EventLogger, setup_logging
from thoughtbeam.runtime.rpc import ListenError, start_server
from thoughtbeam.runtime.settings import SettingError
from thoughtbeam.runtime.signals import ending_at_once, stop_on_signals
from thoughtbeam.runtime.status import StatusError

if TYPE_CHECKING:
    from decoder_worker.scoring.client import ScoringClient
    from decoder_worker.worker import WorkerConfig

SERVICE = "thoughtbeam.DecoderWorker"  # whose health is asked for; it has no calls
SCORER_POLL_SECONDS = 2.0

log = EventLogger("decoder_worker.main")


class StartError(RuntimeError):
    """What a worker was given does not let it start; the message says why."""


def parse(arguments: Sequence[str] | None = None) -> DecoderWorkerConfig:
    """The settings that a worker is started with; exits with a message when they cannot be used."""
    description = "Runs one vLLM engine and the searches that share it."
    return configure("decoder_worker", DecoderWorkerConfig, description, arguments)


async def start_vllm(config: VllmConfig) -> Engine:
    """The engine of a worker, up and ready."""
    from decoder_worker.engine.vllm_engine import VllmEngine

    return await VllmEngine.start(config)


async def serve(
    config: DecoderWorkerConfig, start_engine: Callable[[VllmConfig], Awaitable[Engine]] = start_vllm
) -> None:
    """Starts the engine, then works until SIGTERM or SIGINT; then its trees may end for `drain_seconds`, or
    until the next signal. Until it is up, signals end the process at once: there is nothing to hand back yet,
    and the engine's processes end with this one.

    Raises StartError when the engine cannot be started or what answers as prm worker cannot score for it.
    """
    password = config.redis_password()
    # heavy imports wait until the settings are known to be good
    from decoder_worker.answers.equivalence import Equivalence
    from decoder_worker.embedding.choice import embedder_loader
    from decoder_worker.embedding.queue import EmbeddingQueue
    from decoder_worker.garbage import calm_collector
    from decoder_worker.gateway_link import GatewayLink
    from decoder_worker.scoring.client import ScoringClient
    from decoder_worker.worker import Worker
    from tree_store.store import TreeStore

    async with AsyncExitStack() as cleanup:
        health = await start_server(config.listen, [], [SERVICE])
        cleanup.push_async_callback(health.stop, 0)
        try:
            engine = await start_engine(_engine_config(config))
        except EngineError as error:
            raise StartError(str(error)) from error
        cleanup.push_async_callback(engine.close)
        calm_collector()
        hurry = asyncio.Event()
        stop = stop_on_signals(again=hurry)
        store = TreeStore.connect(config.redis_url, password)
        cleanup.push_async_callback(store.close)
        equivalence = await cleanup.enter_async_context(Equivalence())
        scoring, kind = None, ""
        if config.scorer:
            scoring = ScoringClient(
                config.scorer,
                engine.info.fingerprint,
                engine.info.boundary_rule,
                config.scorer_deadline,
                hidden_size=engine.info.hidden_size,
            )
            cleanup.push_async_callback(scoring.close)
            kind = await _scorer_kind(scoring, config.scorer, stop)
        embedding = None
        if (load := embedder_loader(config.embedding_model)) is not None:
            embedding = EmbeddingQueue(load)
            cleanup.push_async_callback(embedding.close)
            if config.embedding_model is not None:
                await embedding.ready()  # a name that is no good is better known now
        own = _worker_config(config, kind)
        worker = Worker(own, engine, store, scoring, equivalence, embedding)
        link = GatewayLink(config.gateway, worker, on_state=health.set_serving)
        await worker.run(stop, link.run, hurry)


def _engine_config(config: DecoderWorkerConfig) -> VllmConfig:
    return VllmConfig(
        model=config.model,
        served_name=config.model_name,
        dtype=config.dtype,
        slots=config.slots,
        max_context=config.max_context,
        kv_blocks=config.kv_blocks,
        block_size=config.block_size,
        boundary_rule=config.boundary_rule,
        gpu_memory=config.gpu_memory,
        tensor_parallel=config.tensor_parallel,
    )


def _worker_config(config: DecoderWorkerConfig, scorer_kind: str) -> WorkerConfig:
    from decoder_worker.worker import WorkerConfig

    return WorkerConfig(
        name=f"decoder@{socket.gethostname()}:{os.getpid()}",
        profile=config.profile,
        max_capacity=config.max_capacity,
        lease_seconds=config.lease_seconds,
        drain_seconds=config.drain_seconds,
        scorer_kind=scorer_kind,
    )


async def _scorer_kind(scoring: ScoringClient, target: str, stop: asyncio.Event) -> str:
    """Waits for a prm worker as long as it takes; "" when asked to stop meanwhile.

    Raises StartError when its scorer does not fit the engine or is not that of another prm worker, or when
    what listens at `target` is no prm worker.
    """
    from decoder_worker.scoring.client import ScorerMismatchError, ScorerUnreachableError

    while not stop.is_set():
        try:
            return (await scoring.info(timeout=SCORER_POLL_SECONDS)).kind
        except ScorerUnreachableError as error:
            log.warning("waiting_for_scorer", error=error)
        except ScorerMismatchError as error:
            raise StartError(str(error)) from error
        except StatusError as error:
            raise StartError(f"what listens at {target} is no prm worker: {error}") from error
    return ""


def main() -> None:
    config = parse()
    setup_logging(config.log_level, config.log_format)
    try:
        with ending_at_once():
            asyncio.run(serve(config))
    except SettingError as error:
        refuse("decoder_worker", error)
    except (ListenError, StartError, EmbedderError) as error:
        log.error("cannot_start", error=error)
        sys.exit(1)
    except Exception:
        log.exception("worker_died")
        sys.exit(1)
