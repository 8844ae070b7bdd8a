"""`docker compose --profile cpu up` and `down` as plain processes, a question before and one meanwhile."""

from __future__ import annotations

import secrets
import time
from pathlib import Path

import pytest
import redis

from tests.compose import file
from tests.compose.processes import running
from thoughtbeam import Client

QUESTION = "Start with 871 and work modulo 1000. a) +723 b) *7 c) -543. Report the value after c."
PATIENCE = 120.0  # seconds; for what takes a few


def until_running(client: Client, tree_id: str) -> None:
    end = time.monotonic() + PATIENCE
    while client.tree(tree_id).state == "queued":
        assert time.monotonic() < end
        time.sleep(0.05)


@pytest.mark.timeout(900)
def test_the_cpu_profile_starts_answers_drains_and_stops(tmp_path: Path) -> None:
    password = secrets.token_hex(16)
    with running(file.load(), "cpu", tmp_path, password) as services:
        logs = {name: one.log for name, one in services.running.items()}
        assert logs.keys() == {"redis", "gateway", "prm-worker-tiny", "decoder-cpu"}

        with Client(f"127.0.0.1:{services.port('gateway', 50551)}") as client:
            result = client.solve(QUESTION, policy="gambit", answer_mode="integer")
            assert result.text.strip().isdigit()
            assert result.counts.finished > 0
            assert not result.degraded

            with redis.Redis(port=services.port("redis", 6379), password=password, protocol=2) as store:
                assert store.hget(f"tb:{{{result.tree_id}}}:meta", "state") == b"succeeded"

            # as `docker compose down` does it: first what depends on others. What runs may end.
            last = client.submit(QUESTION, policy="gambit", answer_mode="integer").id
            until_running(client, last)
            services.stop("decoder-cpu")
            assert client.result(last).counts.finished > 0
            assert client.tree(last).epoch == 1

        for name in reversed(file.in_order(services.services)):
            if name in services.running:
                services.stop(name)

    for name, log in logs.items():
        text = log.read_text()
        assert password not in text, name
        assert QUESTION[:20] not in text, name
