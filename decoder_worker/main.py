"""`python -m decoder_worker`: one vLLM engine and the searches that run on it."""

from __future__ import annotations

import argparse
import asyncio
import os
import socket
import sys
from contextlib import AsyncExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from thoughtbeam.runtime.log import EventLogger, setup_logging
from thoughtbeam.runtime.rpc import start_server, stop_on_signals

if TYPE_CHECKING:
    from decoder_worker.scoring.client import ScoringClient

SCORER_POLL_SECONDS = 2.0

log = EventLogger("decoder_worker.main")


def parser() -> argparse.ArgumentParser:
    options = argparse.ArgumentParser(prog="python -m decoder_worker", description=__doc__)
    add = options.add_argument
    add("--model", required=True, help="Hugging Face directory or name of the model")
    add("--served-name", default="", help="name that requests use for it (default: last part of --model)")
    add("--gateway", required=True, help="HOST:PORT of the gateway")
    add("--redis-url", required=True, help="URL of the tree store's Redis or Valkey")
    add("--scorer", default="", help="HOST:PORT of the prm worker; without one only unscored policies run")
    add(
        "--scorer-deadline",
        type=float,
        default=30.0,
        help="seconds a score may take before it counts as lost",
    )
    add("--listen", default="127.0.0.1:0", help="HOST:PORT of the health service")
    add("--profile", default="paper", choices=["paper", "tiny"], help="parameter defaults of the policies")
    add("--boundary-rule", default="blank_line", choices=["blank_line", "blank_line_before_think_end"])
    add("--slots", type=int, default=64, help="traces that the engine decodes at once")
    add("--max-capacity", type=int, default=512, help="largest logical capacity of one search")
    add("--max-context", type=int, default=0, help="longest sequence in tokens (0: the model's)")
    add("--dtype", default="auto", help="of weights and activations")
    add("--kv-blocks", type=int, default=0, help="KV cache blocks (0: what memory allows)")
    add("--block-size", type=int, default=0, help="tokens per KV block (0: the engine's default)")
    add("--gpu-memory", type=float, default=0.9, help="share of GPU memory that the engine may take")
    add("--lease-seconds", type=float, default=10.0)
    add("--log-level", default=None)
    return options


async def serve(args: argparse.Namespace) -> None:
    """Starts the engine, then works until SIGTERM or SIGINT. Until it is up, signals end the process at once:
    there is nothing to hand back yet, and the engine's processes end with this one."""
    # heavy imports wait until the flags are known to be good
    from decoder_worker.answers.equivalence import Equivalence
    from decoder_worker.engine.vllm_engine import VllmConfig, VllmEngine
    from decoder_worker.gateway_link import GatewayLink
    from decoder_worker.scoring.client import ScoringClient
    from decoder_worker.worker import Worker, WorkerConfig
    from tree_store.store import TreeStore

    async with AsyncExitStack() as cleanup:
        health = await start_server(args.listen, [], ["thoughtbeam.DecoderWorker"])
        cleanup.push_async_callback(health.stop, 0)
        engine = await VllmEngine.start(
            VllmConfig(
                model=args.model,
                served_name=args.served_name or Path(args.model).name,
                dtype=args.dtype,
                slots=args.slots,
                max_context=args.max_context,
                kv_blocks=args.kv_blocks,
                block_size=args.block_size,
                boundary_rule=args.boundary_rule,
                gpu_memory=args.gpu_memory,
            )
        )
        cleanup.push_async_callback(engine.close)
        stop = stop_on_signals()
        store = TreeStore.connect(args.redis_url)
        cleanup.push_async_callback(store.close)
        equivalence = await cleanup.enter_async_context(Equivalence())
        scoring, kind = None, ""
        if args.scorer:
            scoring = ScoringClient(
                args.scorer,
                engine.info.fingerprint,
                engine.info.boundary_rule,
                args.scorer_deadline,
                hidden_size=engine.info.hidden_size,
            )
            cleanup.push_async_callback(scoring.close)
            kind = await _scorer_kind(scoring, stop)
        name = f"decoder@{socket.gethostname()}:{os.getpid()}"
        config = WorkerConfig(name, args.profile, args.max_capacity, args.lease_seconds)
        worker = Worker(config, engine, store, scoring, equivalence)
        link = GatewayLink(args.gateway, worker, kind, on_state=health.set_serving)
        await worker.run(stop, link.run)


async def _scorer_kind(scoring: ScoringClient, stop: asyncio.Event) -> str:
    """Waits for the prm worker as long as it takes; "" when asked to stop meanwhile.

    Raises ScorerMismatchError when its scorer does not fit the engine.
    """
    from decoder_worker.scoring.client import ScorerUnreachableError

    while not stop.is_set():
        try:
            return (await scoring.info(timeout=SCORER_POLL_SECONDS)).kind
        except ScorerUnreachableError as error:
            log.warning("waiting_for_scorer", error=error)
    return ""


def main() -> None:
    args = parser().parse_args()
    setup_logging(args.log_level)
    try:
        asyncio.run(serve(args))
    except Exception:
        log.exception("worker_died")
        sys.exit(1)
