"""The life of a prm worker with a process reward model: loaded, served, started again, stopped."""

from __future__ import annotations

import asyncio

from prm_worker.config import PrmWorkerConfig
from prm_worker.process_reward.engine import PoolingEngine
from prm_worker.process_reward.keeper import EngineKeeper
from prm_worker.process_reward.launch import EngineConfig
from prm_worker.process_reward.service import ProcessRewardService
from prm_worker.process_reward.tokenizer import PromptTokenizer
from prm_worker.scoring_service import SERVICE
from prm_worker.stopping import stop_after_calls
from thoughtbeam.runtime.log import EventLogger
from thoughtbeam.runtime.rpc import start_server
from thoughtbeam.runtime.scorers import PROCESS_REWARD
from thoughtbeam.runtime.signals import stop_on_signals
from thoughtbeam.runtime.tasks import task_group
from thoughtbeam.v1.scoring_pb2_grpc import add_ScorerServiceServicer_to_server

log = EventLogger("prm_worker.process_reward.server")


async def serve(config: PrmWorkerConfig) -> None:
    """Serves until SIGTERM or SIGINT. Health is SERVING while an engine scores; until the first one does the
    signals do what they did before.

    Raises OSError when the address cannot be bound; EngineStartError, TokenizerError.
    """
    assert config.process_reward is not None
    chosen = EngineConfig(
        config.process_reward,
        dtype=config.dtype,
        max_context=config.max_context,
        gpu_memory=config.gpu_memory,
    )
    tokenizer = await asyncio.to_thread(PromptTokenizer.load, chosen.model)
    keeper = EngineKeeper(lambda: PoolingEngine.start(chosen))
    service = ProcessRewardService(tokenizer, keeper, config.max_rows)
    server = await start_server(
        config.listen, [lambda server: add_ScorerServiceServicer_to_server(service, server)], [SERVICE]
    )
    try:
        await keeper.open()
    except BaseException:
        await server.stop(0)
        raise
    async with task_group() as group:
        keeping = group.create_task(keeper.run(server.set_serving), name="engine keeper")
        stop = stop_on_signals()
        await server.set_serving(True)
        log.info(
            "serving",
            port=server.port,
            kind=PROCESS_REWARD,
            model=chosen.model,
            max_context=keeper.engine.max_context,
            max_texts=config.max_rows,
        )
        await stop.wait()
        log.info("stopping", grace=config.grace, restarts=keeper.restarts)
        await stop_after_calls(server, config.grace, service.close)
        keeping.cancel()
    log.info("stopped")
