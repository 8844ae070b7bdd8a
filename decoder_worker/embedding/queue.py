"""Has thoughts embedded in a thread of its own, batched across searches; decoding never waits for it."""

from __future__ import annotations

import asyncio
from array import array
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TypeAlias

from decoder_worker.embedding.base import Embedder, EmbedderError
from thoughtbeam.runtime.log import EventLogger

MAX_BATCH = 32  # texts; what is no longer wanted is found out between two batches

log = EventLogger("decoder_worker.embedding")


@dataclass(frozen=True, slots=True)
class ThoughtText:
    """A merged thought of a node. index: among the node's merged thoughts, from 0."""

    node: int
    index: int
    text: str


@dataclass(frozen=True, slots=True)
class EmbeddedThought:
    """vector: of length 1; None when the embedder failed."""

    node: int
    index: int
    vector: array[float] | None


Deliver: TypeAlias = Callable[[Sequence[EmbeddedThought]], None]
Wanted: TypeAlias = Callable[[int], bool]


@dataclass(frozen=True, slots=True)
class _Queued:
    thought: ThoughtText
    wanted: Wanted
    deliver: Deliver


class EmbeddingQueue:
    """Owns one embedder, which `load` makes (in its thread) when it is first needed."""

    def __init__(self, load: Callable[[], Embedder]) -> None:
        self._load = load
        self._loading: asyncio.Future[Embedder] | None = None
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="embedder")
        self._queue: deque[_Queued] = deque()
        self._arrived = asyncio.Event()

    async def ready(self) -> Embedder:
        """The embedder, loaded. Raises EmbedderError when it cannot be; the next call tries again."""
        if self._loading is None:
            self._loading = asyncio.get_running_loop().run_in_executor(self._thread, self._load)
        loading = self._loading
        try:
            return await asyncio.shield(loading)
        except EmbedderError:
            if self._loading is loading:
                self._loading = None
            raise

    def submit(self, thoughts: Sequence[ThoughtText], wanted: Wanted, deliver: Deliver) -> None:
        """Queues thoughts. `deliver` gets each back once, called from `run`, unless `wanted` says no of its
        node when its turn comes. It must not raise."""
        self._queue.extend(_Queued(thought, wanted, deliver) for thought in thoughts)
        if thoughts:
            self._arrived.set()

    async def run(self) -> None:
        """Embeds what is submitted until it is cancelled."""
        while True:
            await self._arrived.wait()
            batch = self._take()
            vectors = await self._embed([entry.thought.text for entry in batch])
            by_receiver: dict[Deliver, list[EmbeddedThought]] = {}
            for entry, vector in zip(batch, vectors, strict=True):
                embedded = EmbeddedThought(entry.thought.node, entry.thought.index, vector)
                by_receiver.setdefault(entry.deliver, []).append(embedded)
            for deliver, own in by_receiver.items():
                deliver(own)
            if not self._queue:
                self._arrived.clear()

    async def close(self) -> None:
        """Waits for what the thread is doing. `run` has ended."""
        await asyncio.to_thread(self._thread.shutdown, cancel_futures=True)

    def _take(self) -> list[_Queued]:
        """The oldest that are still wanted."""
        taken: list[_Queued] = []
        while self._queue and len(taken) < MAX_BATCH:
            entry = self._queue.popleft()
            if entry.wanted(entry.thought.node):
                taken.append(entry)
        return taken

    async def _embed(self, texts: Sequence[str]) -> Sequence[array[float] | None]:
        if not texts:
            return ()
        try:
            embedder = await self.ready()
            loop = asyncio.get_running_loop()
            vectors = await loop.run_in_executor(self._thread, embedder.embed, texts)
            if len(vectors) != len(texts):
                raise EmbedderError(f"{len(vectors)} vectors for {len(texts)} texts")
        except Exception:
            log.exception("thoughts_not_embedded", thoughts=len(texts))
            return (None,) * len(texts)
        return vectors
