"""A client that is killed in the middle of its stream leaves nothing behind in the service."""

from __future__ import annotations

import asyncio
import gc
import sys
import uuid
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

import pytest

from decoder_worker.worker import Worker
from tests.integration.gateway.harness import PATIENCE, reaches
from tests.integration.service.conftest import SMALL_GAMBIT, Service
from tests.integration.service.test_search import MEDIUM, assert_accounts
from tree_store.model import TreeState

OURS = ("decoder_worker", "gateway", "thoughtbeam", "tree_store")

# Finished traces that end the search, by whether it is to be cancelled: then it must not end by itself before
# its client is seen to be gone, however slow the machine is. One that is to end takes a while, too.
FINISHED = {True: 2000, False: 24}

CLIENT = f"""
import sys
from thoughtbeam import Client
with Client(sys.argv[1]) as client:
    for event in client.stream(
        {MEDIUM!r},
        policy="gambit", parameters={SMALL_GAMBIT!r} | dict(N_max=int(sys.argv[4])), answer_mode="integer",
        request_id=sys.argv[2], cancel_on_disconnect=sys.argv[3] == "True",
    ):
        print(event, flush=True)
"""


@dataclass(frozen=True)
class Held:
    """What this process holds of searches and calls. objects: instances of our classes, by class; tasks: by
    the coroutine that they run; blocks: KV blocks of running traces."""

    objects: Counter[str]
    tasks: Counter[str]
    blocks: dict[str, list[int]]
    busy_slots: int

    def within(self, other: Held) -> bool:
        return (
            self.objects <= other.objects
            and self.tasks <= other.tasks
            and self.blocks == other.blocks
            and self.busy_slots <= other.busy_slots
        )


async def held(service: Service, worker: Worker) -> Held:
    gc.collect()
    # not by isinstance, which proxies answer for what they stand for
    classes = [type(found) for found in gc.get_objects()]
    return Held(
        objects=Counter(
            f"{c.__module__}.{c.__qualname__}" for c in classes if str(c.__module__).startswith(OURS)
        ),
        tasks=Counter(task.get_coro().__qualname__ for task in asyncio.all_tasks()),  # type: ignore[union-attr]
        blocks=await service.engine.block_ids(),
        busy_slots=worker._slots.size - worker._slots.free,
    )


@asynccontextmanager
async def running_client(
    service: Service, tree_id: str, *, cancels: bool
) -> AsyncIterator[asyncio.subprocess.Process]:
    """A client in a process of its own, whose search has pruned a trace."""
    client = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", CLIENT, f"127.0.0.1:{service.gateway.port}", tree_id),
        *(str(cancels), str(FINISHED[cancels])),
        stdout=asyncio.subprocess.PIPE,
    )
    assert client.stdout is not None
    try:
        async with asyncio.timeout(PATIENCE):
            async for line in client.stdout:
                if b"PRUNED" in line:
                    break
        yield client
    finally:
        if client.returncode is None:
            client.kill()
        await client.stdout.read()
        await client.wait()


async def search_once(service: Service, *, cancels: bool, expected: TreeState) -> str:
    tree_id = str(uuid.uuid4())
    async with running_client(service, tree_id, cancels=cancels):
        assert (await service.store.tree(tree_id)).state is TreeState.RUNNING
    await reaches(service.store, tree_id, expected)
    return tree_id


@pytest.mark.parametrize(("cancels", "expected"), [(True, TreeState.CANCELLED), (False, TreeState.SUCCEEDED)])
async def test_a_killed_client_leaves_nothing_but_its_tree(
    service: Service, worker: Worker, cancels: bool, expected: TreeState
) -> None:
    await search_once(service, cancels=cancels, expected=expected)  # what is made once and kept
    await settles(service, worker, None)
    before = await held(service, worker)

    tree_id = await search_once(service, cancels=cancels, expected=expected)

    await settles(service, worker, before)
    tree = await service.client.tree(tree_id)
    assert tree.state == expected
    assert_accounts(tree)
    assert (tree.result is not None and tree.result.answer is not None) or cancels


async def settles(service: Service, worker: Worker, wanted: Held | None) -> None:
    """Waits until no more is held than before, or, the first time, until it grows no more."""
    last = wanted
    try:
        async with asyncio.timeout(PATIENCE):
            while True:
                now = await held(service, worker)
                if last is not None and now.within(last):
                    return
                last = wanted or now
                await asyncio.sleep(0.5)
    except TimeoutError:
        assert last is not None
        pytest.fail(
            f"more objects: {now.objects - last.objects}; more tasks: {now.tasks - last.tasks}; {now}"
        )
