"""The life of a prm worker: its scorer loaded, warmed up, served, and stopped without losing a call."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch

from prm_worker.batcher import Batcher
from prm_worker.config import PrmWorkerConfig
from prm_worker.devices import DeviceError, device_of
from prm_worker.scorer_file import Metadata, load_scorer
from prm_worker.scorers.base import HistoryScorer, Scorer, TracePart
from prm_worker.scoring_service import SERVICE, ScoringService
from prm_worker.stopping import stop_after_calls
from thoughtbeam.runtime.log import EventLogger
from thoughtbeam.runtime.rpc import MAX_TENSOR_BYTES, start_server
from thoughtbeam.runtime.settings import SettingError
from thoughtbeam.runtime.signals import stop_on_signals
from thoughtbeam.runtime.tasks import task_group
from thoughtbeam.v1.scoring_pb2_grpc import add_ScorerServiceServicer_to_server

log = EventLogger("prm_worker.server")


def prepare(config: PrmWorkerConfig) -> tuple[Scorer, Metadata]:
    """The scorer, and what it was trained for.

    Raises SettingError for a device that is not there and for a setting that contradicts the scorer file;
    ScorerFileError.
    """
    try:
        device_of(config.device)
    except DeviceError as error:
        raise SettingError("device", f"{error}; is {config.device!r}") from None
    torch.set_num_threads(config.threads)
    assert config.scorer is not None
    scorer, recorded = load_scorer(
        config.scorer,
        config.device,
        cache_bytes=config.cache_mb * 2**20,
        cache_dtype=config.cache_dtype,
    )
    return scorer, with_settings(recorded, config)


def with_settings(recorded: Metadata, config: PrmWorkerConfig) -> Metadata:
    """What a scorer was trained for: as its file records, else as the settings say.

    Raises SettingError when both say something and differ.
    """
    for name in ("model_fingerprint", "boundary_rule"):
        own, given = getattr(recorded, name), getattr(config, name)
        if own and given and own != given:
            raise SettingError(name, f"must be {own}, as the scorer file records, or left out; is {given!r}")
    return replace(
        recorded,
        model_fingerprint=recorded.model_fingerprint or config.model_fingerprint or "",
        boundary_rule=recorded.boundary_rule or config.boundary_rule or "",
    )


async def serve(config: PrmWorkerConfig, scorer: Scorer, trained_for: Metadata) -> None:
    """Serves until SIGTERM or SIGINT. Health is SERVING once a forward pass has been done; until then the
    signals do what they did before.

    Raises OSError when the address cannot be bound.
    """
    batcher = Batcher(scorer, rows_that_fit(config.max_rows, scorer))
    service = ScoringService(batcher, trained_for, scorer, allow_mismatch=config.allow_mismatch)
    server = await start_server(
        config.listen, [lambda server: add_ScorerServiceServicer_to_server(service, server)], [SERVICE]
    )
    async with task_group() as group:
        scoring = group.create_task(batcher.run(), name="batcher")
        await _warm_up(batcher, scorer)
        stop = stop_on_signals()
        await server.set_serving(True)
        log.info(
            "serving",
            port=server.port,
            kind=scorer.kind,
            hidden_size=scorer.hidden_size,
            model_fingerprint=trained_for.model_fingerprint or "unchecked",
            boundary_rule=trained_for.boundary_rule or "unchecked",
            max_rows=batcher.max_rows,
            mismatch="allowed" if config.allow_mismatch else "refused",
        )
        await stop.wait()
        log.info("stopping", grace=config.grace, passes=batcher.passes)
        await stop_after_calls(server, config.grace, batcher.close)
        scoring.cancel()
    log.info("stopped")


def rows_that_fit(max_rows: int, scorer: Scorer) -> int:
    """Rows that one message always holds, in float32, and whose answer another one does, at most max_rows."""
    answered = 2 * scorer.history_size if isinstance(scorer, HistoryScorer) else 0
    return max(1, min(max_rows, MAX_TENSOR_BYTES // max(4 * scorer.hidden_size, 4 + answered)))


async def _warm_up(batcher: Batcher, scorer: Scorer) -> None:
    """The largest pass there is, as of traces that have just begun."""
    rows = batcher.max_rows
    parts = [TracePart("", node, 0, 1) for node in range(rows)]
    await batcher.score(np.zeros((rows, scorer.hidden_size), dtype=np.float32), parts)
    batcher.drop("", ())
