"""`docker compose --profile cpu up`, as plain processes: start, one question, the store, stop."""

from __future__ import annotations

import secrets
from pathlib import Path

import pytest
import redis

from tests.compose import file
from tests.compose.processes import running
from thoughtbeam import Client

QUESTION = "Start with 871 and work modulo 1000. a) +723 b) *7 c) -543. Report the value after c."


@pytest.mark.timeout(900)
def test_the_cpu_profile_starts_answers_and_stops(tmp_path: Path) -> None:
    password = secrets.token_hex(16)
    with running(file.load(), "cpu", tmp_path, password) as services:
        assert services.running.keys() == {"redis", "gateway", "prm-worker-tiny", "decoder-cpu"}

        with Client(f"127.0.0.1:{services.port('gateway', 50551)}") as client:
            result = client.solve(QUESTION, policy="gambit", answer_mode="integer")
        assert result.text.strip().lstrip("-").isdigit()
        assert result.counts.finished > 0
        assert not result.degraded

        with redis.Redis(port=services.port("redis", 6379), password=password, protocol=2) as store:
            assert store.hget(f"tb:{{{result.tree_id}}}:meta", "state") == b"succeeded"

        logs = [one.log for one in services.running.values()]
        # as `docker compose down` does it: first what depends on others
        for name in reversed(file.in_order(services.services)):
            services.stop(name)

    for log in logs:
        assert password not in log.read_text(), log.name
