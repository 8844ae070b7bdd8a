"""`python -m prm_worker`: loads one scorer and serves it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from prm_worker.config import PrmWorkerConfig
from thoughtbeam.runtime.config import configure, refuse
from thoughtbeam.runtime.log import EventLogger, setup_logging
from thoughtbeam.runtime.settings import SettingError
from thoughtbeam.runtime.signals import ending_at_once

log = EventLogger("prm_worker.main")


def parse(arguments: Sequence[str] | None = None) -> PrmWorkerConfig:
    """The settings that a worker is started with; exits with a message when they cannot be used."""
    description = "Serves one scorer, of hidden states or of texts, to decoder workers."
    return configure("prm_worker", PrmWorkerConfig, description, arguments)


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs until SIGTERM or SIGINT; returns the exit status."""
    config = parse(arguments)
    setup_logging(config.log_level, config.log_format)
    with ending_at_once():
        try:
            return _serve(config) if config.process_reward is None else _serve_process_reward(config)
        except OSError as error:
            log.error("cannot_start", error=error)
            return 1


def _serve(config: PrmWorkerConfig) -> int:
    # torch waits until the settings are known to be good
    from prm_worker.scorer_file import ScorerFileError
    from prm_worker.server import prepare, serve

    try:
        asyncio.run(serve(config, *prepare(config)))
    except SettingError as error:
        refuse("prm_worker", error)
    except ScorerFileError as error:
        log.error("cannot_start", error=error)
        return 1
    return 0


def _serve_process_reward(config: PrmWorkerConfig) -> int:
    # only here is vLLM needed
    from prm_worker.process_reward.launch import EngineStartError
    from prm_worker.process_reward.server import serve
    from prm_worker.process_reward.tokenizer import TokenizerError

    try:
        asyncio.run(serve(config))
    except (EngineStartError, TokenizerError) as error:
        log.error("cannot_start", error=error)
        return 1
    return 0
