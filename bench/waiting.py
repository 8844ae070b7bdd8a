"""`python -m bench.waiting`: what a slow scorer costs a search.

A real decoder worker, with a real store, on an engine whose outputs are made up, a step every so many
milliseconds; each trace passes a boundary every 40 tokens. The scorer is a server that knows its scores at
once or takes its time for each call. A policy that reads scores as they come must decode as fast with the one
as with the other; one that holds every trace at its boundary (rebase) has to wait, and shows that waiting
would be seen.
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass
from typing import Any

import grpc
import numpy as np

from bench.paced_engine import Language, PacedEngine
from bench.report import markdown, save
from bench.running_worker import running_worker
from thoughtbeam.runtime.rpc import start_server
from thoughtbeam.v1 import scoring_pb2 as pb
from thoughtbeam.v1 import scoring_pb2_grpc
from tree_store.embedded import EmbeddedServer

GAP = 40
DELAYS = (0.0, 0.2)
WARM_UP = 3 * GAP  # steps
POLICIES: dict[str, dict[str, Any]] = {
    "gambit": {"C": 256, "K": 16, "interval": 256, "warmup": 60},
    "rebase": {"W": 256},
}


@dataclass(frozen=True, slots=True)
class Waited:
    """One search, while it was looked at. seconds: that this took; tokens: decoded in them; waited: seconds
    in which the engine had nothing of the tree and a score was awaited. rows, calls: that were scored."""

    policy: str
    traces: int
    delay: float
    seconds: float
    tokens: int
    waited: float
    rows: int
    calls: int
    rounds: int

    @property
    def rate(self) -> float:
        return self.tokens / self.seconds

    @property
    def share(self) -> float:
        return self.waited / self.seconds


class TimedScorer(scoring_pb2_grpc.ScorerServiceServicer):
    """Scores a row by its first value, after so many seconds."""

    def __init__(self, delay: float, hidden_size: int) -> None:
        self._delay = delay
        self._hidden_size = hidden_size

    async def GetScorerInfo(  # noqa: N802
        self, request: pb.GetScorerInfoRequest, context: grpc.aio.ServicerContext[Any, Any]
    ) -> pb.GetScorerInfoResponse:
        return pb.GetScorerInfoResponse(kind="mlp", hidden_size=self._hidden_size, max_rows=1024)

    async def Score(  # noqa: N802
        self, request: pb.ScoreRequest, context: grpc.aio.ServicerContext[Any, Any]
    ) -> pb.ScoreResponse:
        await asyncio.sleep(self._delay)
        rows = np.frombuffer(request.rows.data, "<f4").reshape(tuple(request.rows.shape))
        scores = (1 / (1 + np.exp(-rows[:, 0]))).astype("<f4")
        tensor = pb.Tensor(dtype=pb.DATA_TYPE_FLOAT32, shape=[len(scores)], data=scores.tobytes())
        return pb.ScoreResponse(scores=tensor)

    async def ScoreText(  # noqa: N802
        self, request: pb.ScoreTextRequest, context: grpc.aio.ServicerContext[Any, Any]
    ) -> pb.ScoreTextResponse:
        raise NotImplementedError  # its kind reads no text

    async def DropTraces(  # noqa: N802
        self, request: pb.DropTracesRequest, context: grpc.aio.ServicerContext[Any, Any]
    ) -> pb.DropTracesResponse:
        return pb.DropTracesResponse()


@asynccontextmanager
async def scorer(delay: float, hidden_size: int) -> AsyncIterator[str]:
    """Its address."""
    service = TimedScorer(delay, hidden_size)
    server = await start_server(
        "127.0.0.1:0",
        [lambda server: scoring_pb2_grpc.add_ScorerServiceServicer_to_server(service, server)],
        [],
    )
    try:
        yield f"127.0.0.1:{server.port}"
    finally:
        await server.stop(0)


async def search(
    redis_url: str, language: Language, policy: str, traces: int, delay: float, steps: int, pace: float
) -> Waited:
    """So many steps of a search, from when it is under way. pace: seconds from one step to the next."""
    engine = PacedEngine(language, traces, GAP)
    parameters = {name: traces if name in ("C", "W") else value for name, value in POLICIES[policy].items()}
    async with (
        scorer(delay, engine.info.hidden_size) as target,
        running_worker(engine, redis_url, target) as running,
    ):
        tree_id = await running.begin(policy, parameters)
        await running.filled(traces)
        await drive(engine, WARM_UP, pace)
        run = running.worker._trees[tree_id].search
        scoring = running.worker.scoring
        assert run is not None
        assert scoring is not None
        before = run.view.generated, run.score_wait, scoring.stats.rows, scoring.stats.calls, run.rounds
        began = time.monotonic()
        await drive(engine, steps, pace)
        seconds = time.monotonic() - began
        after = run.view.generated, run.score_wait, scoring.stats.rows, scoring.stats.calls, run.rounds
        tokens, waited, rows, calls, rounds = (b - a for a, b in zip(before, after, strict=True))
        running.worker.cancel(tree_id)
    return Waited(policy, traces, delay, seconds, int(tokens), waited, int(rows), int(calls), int(rounds))


async def drive(engine: PacedEngine, steps: int, pace: float) -> None:
    """So many steps, also where in between it has nothing to do."""
    end = engine.step_number + steps
    while engine.step_number < end:
        await engine.run(end - engine.step_number, pace)
        await asyncio.sleep(0.001)


def table(found: Sequence[Waited]) -> str:
    """By policy, with the rate against that of the first scorer."""
    first = {w.policy: w for w in reversed(found)}
    rows = [
        [
            w.policy,
            f"{w.delay * 1000:.0f} ms",
            f"{w.rate:,.0f}",
            f"{w.rate / first[w.policy].rate:.3f}",
            f"{w.share:.1%}",
            f"{w.rows:,} in {w.calls:,}",
            str(w.rounds),
        ]
        for w in found
    ]
    header = [
        f"{found[0].traces} traces",
        "a call takes",
        "tokens/s",
        "against at once",
        "share of wall time waiting for scores",
        "rows scored in calls",
        "tournaments",
    ]
    return markdown(header, rows)


def main() -> None:
    options = argparse.ArgumentParser(
        prog="python -m bench.waiting", description="What a slow scorer costs a search."
    )
    options.add_argument("--traces", type=int, default=256, help="C of gambit, W of rebase")
    options.add_argument("--steps", type=int, default=400, help="of the engine, that are looked at")
    options.add_argument("--pace", type=float, default=0.05, help="seconds from one step to the next")
    options.add_argument("--quick", action="store_true", help="a small run that only shows that it works")
    args = options.parse_args()
    if args.quick:
        args.traces, args.steps, args.pace = 32, 100, 0.02
    language = Language.load()
    with tempfile.TemporaryDirectory() as folder, EmbeddedServer(folder, maxmemory="2gb") as server:
        found = [
            asyncio.run(search(server.url, language, policy, args.traces, delay, args.steps, args.pace))
            for policy in POLICIES
            for delay in DELAYS
        ]
    result = {"searches": [asdict(w) | {"rate": w.rate, "share": w.share} for w in found]}
    path = save("waiting-quick" if args.quick else "waiting", result, table(found))
    print(f"{table(found)}\n\nwritten to {path}")


if __name__ == "__main__":
    main()
