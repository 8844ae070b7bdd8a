"""Thoughts on their way to the embedder and back."""

from __future__ import annotations

import asyncio
import threading
from array import array
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import pytest

from decoder_worker.embedding.base import EmbedderError
from decoder_worker.embedding.queue import MAX_BATCH, EmbeddedThought, EmbeddingQueue, ThoughtText


class Lengths:
    """The vector of a text is its length. batches: sizes of them. While `gate` is closed it works."""

    def __init__(self) -> None:
        self.batches: list[int] = []
        self.threads: set[int] = set()
        self.gate = threading.Event()
        self.gate.set()

    def embed(self, texts: Sequence[str]) -> Sequence[array[float]]:
        self.gate.wait(10)
        self.batches.append(len(texts))
        self.threads.add(threading.get_ident())
        if "bad" in texts:
            raise RuntimeError("it broke")
        return [array("f", [len(text)]) for text in texts if text != "lost"]


@asynccontextmanager
async def running(embedder: Lengths) -> AsyncIterator[EmbeddingQueue]:
    queue = EmbeddingQueue(lambda: embedder)
    task = asyncio.create_task(queue.run())
    try:
        yield queue
    finally:
        embedder.gate.set()
        task.cancel()
        await asyncio.wait([task])
        await queue.close()


class Receiver:
    def __init__(self) -> None:
        self.got: list[EmbeddedThought] = []
        self.calls = 0
        self.changed = asyncio.Event()

    def __call__(self, embedded: Sequence[EmbeddedThought]) -> None:
        self.got += embedded
        self.calls += 1
        self.changed.set()

    async def until(self, count: int) -> None:
        async with asyncio.timeout(10):
            while len(self.got) < count:
                self.changed.clear()
                await self.changed.wait()


def always(node: int) -> bool:
    return True


def thoughts(*texts: str) -> list[ThoughtText]:
    return [ThoughtText(1, index, text) for index, text in enumerate(texts)]


async def test_each_comes_back_to_its_sender_in_order_from_another_thread() -> None:
    embedder = Lengths()
    one, other = Receiver(), Receiver()
    async with running(embedder) as queue:
        queue.submit(thoughts("a", "bb"), always, one)
        queue.submit(thoughts("ccc"), always, other)
        queue.submit(thoughts(), always, one)
        await one.until(2)
        await other.until(1)
    assert [(e.node, e.index, list(e.vector or ())) for e in one.got] == [(1, 0, [1.0]), (1, 1, [2.0])]
    assert [list(e.vector or ()) for e in other.got] == [[3.0]]
    assert threading.get_ident() not in embedder.threads
    assert len(embedder.threads) == 1


async def test_what_gathers_goes_together_and_what_nobody_wants_any_more_does_not() -> None:
    embedder, got = Lengths(), Receiver()
    embedder.gate.clear()
    gone: set[int] = set()
    async with running(embedder) as queue:
        queue.submit([ThoughtText(0, 0, "first")], always, got)
        await asyncio.sleep(0.01)  # it is in the thread now, and the loop goes on
        queue.submit([ThoughtText(n, 0, "x") for n in range(1, 51)], lambda n: n not in gone, got)
        gone |= set(range(11, 16))
        embedder.gate.set()
        await got.until(46)
    assert embedder.batches == [1, MAX_BATCH, 45 - MAX_BATCH]
    assert {e.node for e in got.got} == set(range(51)) - gone


@pytest.mark.parametrize("text", ["bad", "lost"])
async def test_a_batch_that_fails_comes_back_without_vectors(text: str) -> None:
    embedder, got = Lengths(), Receiver()
    async with running(embedder) as queue:
        queue.submit(thoughts("a", text), always, got)
        await got.until(2)
        queue.submit(thoughts("b"), always, got)
        await got.until(3)
    assert [e.vector is None for e in got.got] == [True, True, False]


async def test_it_is_loaded_once_when_it_is_needed_and_again_after_a_failure() -> None:
    tries: list[int] = []

    def load() -> Lengths:
        tries.append(threading.get_ident())
        if len(tries) == 1:
            raise EmbedderError("no such model")
        return Lengths()

    queue = EmbeddingQueue(load)
    assert tries == []
    with pytest.raises(EmbedderError, match="no such model"):
        await queue.ready()
    first, second = await asyncio.gather(queue.ready(), queue.ready())
    assert first is second is await queue.ready()
    assert len(tries) == 2
    assert threading.get_ident() not in tries
    await queue.close()
