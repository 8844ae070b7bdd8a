"""kill -9 of one of two prm workers in the middle of a search whose scorer keeps a history."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from decoder_worker.scoring.wire import scoring_id
from prm_worker.scorer_file import ScorerFile, write_scorer_file
from tests.integration.decoder_worker.harness import ended, working
from tests.integration.decoder_worker.test_policies_handover import ASKED, decode, has_begun, paused
from tests.integration.decoder_worker.test_policies_handover import Written as Traces
from tests.integration.decoder_worker.test_scorer_history import (
    HIDDEN,
    TRAINED_FOR,
    WIDTH,
    Drawn,
    assert_scored_as_a_whole,
    client_of,
    until_scored,
)
from tests.integration.prm_worker.serving import Worker, free_port, start_worker
from tests.unit.prm_worker.weights import sequence_weights
from tree_store.embedded import EmbeddedServer

pytestmark = pytest.mark.timeout(300)


@pytest.fixture
def redis_url(tmp_path: Path) -> Iterator[str]:
    with EmbeddedServer(tmp_path / "store") as server:
        yield server.url


@asynccontextmanager
async def prm_worker(scorer: Path) -> AsyncIterator[tuple[str, Worker]]:
    port = free_port()
    worker = await start_worker(port, scorer)
    try:
        yield f"127.0.0.1:{port}", worker
    finally:
        if worker.process.returncode is None:
            await worker.kill()
        # what it wrote is read, so that its pipes are closed
        await worker.process.communicate()


async def test_the_search_goes_on_with_the_other_and_misses_no_score(redis_url: str, tmp_path: Path) -> None:
    scorer = tmp_path / "scorer.pt"
    write_scorer_file(scorer, ScorerFile(sequence_weights(HIDDEN, WIDTH), TRAINED_FOR))
    engine = paused(Traces(Drawn(2)))
    async with prm_worker(scorer) as one, prm_worker(scorer) as two:
        processes = dict([one, two])
        async with client_of(*processes) as client, working(redis_url, engine, scoring=client) as bench:
            tree_id = await bench.start("gambit", parameters=dict(ASKED["gambit"]))
            await has_begun(engine)
            await decode(engine, 150)
            await until_scored(client, 20)
            home = client.home_of(scoring_id(tree_id, 1))
            assert home is not None
            engine.pace(None)
            await asyncio.sleep(0.05)
            await processes[home].kill()
            record = await ended(bench.store, tree_id)
            assert client.serving == 1
            assert await assert_scored_as_a_whole(bench.store, record, client.given) > 40
            assert client.stats.lost == 0
            assert client.stats.histories > 0
