"""The embedded server: its data survives it, it does not survive its parent."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import redis

from tests.integration.tree_store.helpers import LIVE, cancel_open, running, snapshot, spawn
from tree_store import connection
from tree_store.embedded import EmbeddedServer, EmbeddedServerError, free_port
from tree_store.model import TreeState
from tree_store.store import TreeStore

_PARENT = """
import sys, time
from tree_store import connection
from tree_store.embedded import EmbeddedServer
server = EmbeddedServer(sys.argv[1])
server.start()
print(server.pid, server.port, flush=True)
time.sleep(60)
"""


def _alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


def _ends(pid: int, within: float = 20.0) -> bool:
    until = time.monotonic() + within
    while _alive(pid) and time.monotonic() < until:
        time.sleep(0.02)
    return not _alive(pid)


def _command(directory: Path, port: int, *more: str) -> list[str]:
    return [
        *(sys.executable, "-m", "tree_store.embedded"),
        *("--dir", str(directory), "--port", str(port), *more),
    ]


def test_it_is_set_up_to_keep_what_it_takes_and_for_this_machine_only(tmp_path: Path) -> None:
    with (
        EmbeddedServer(tmp_path) as server,
        redis.Redis.from_url(server.url, protocol=2, decode_responses=True) as client,
    ):
        settings = client.config_get("*")

    expected = {
        "bind": "127.0.0.1",
        "appendonly": "yes",
        "appendfsync": "always",
        "latency-monitor-threshold": "100",
        "maxmemory": str(1024**3),
        "maxmemory-policy": "noeviction",
        "dir": str(tmp_path),
    }
    assert {name: settings[name] for name in expected} == expected


async def test_a_killed_server_has_all_that_it_acknowledged(tmp_path: Path) -> None:
    server = EmbeddedServer(tmp_path, free_port())
    server.start()
    try:
        store = TreeStore.connect(server.url)
        tree_id, epoch = await running(store)
        for seq in range(1, 50):
            await store.commit(tree_id, epoch, seq, spawn(LIVE, LIVE) if seq == 1 else spawn())
        with redis.Redis.from_url(server.url, protocol=2, decode_responses=True) as client:
            before = snapshot(client, tree_id)

        server.kill()
        server.start()

        with redis.Redis.from_url(server.url, protocol=2, decode_responses=True) as client:
            assert snapshot(client, tree_id) == before
            assert client.pttl(f"tb:{{{tree_id}}}:meta") > 0
        last = cancel_open(await store.nodes(tree_id))
        await store.finish(tree_id, epoch, 50, last, TreeState.CANCELLED, None, None)
        await store.close()
    finally:
        server.stop()


async def test_callers_wait_for_a_server_that_restarts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "RETRIES", 60)  # however slow this machine is
    server = EmbeddedServer(tmp_path, free_port())
    server.start()
    try:
        store = TreeStore.connect(server.url)
        tree_id, epoch = await running(store)
        server.kill()
        # back in a moment, but after the commit below has begun
        starting = await asyncio.create_subprocess_exec(*_command(tmp_path, server.port))

        await store.commit(tree_id, epoch, 1, spawn(LIVE))

        assert (await store.tree(tree_id)).counts["live"] == 1
        await store.close()
        starting.terminate()
        assert await starting.wait() == 0
    finally:
        server.stop()


def test_it_ends_with_a_parent_that_is_killed(tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", _PARENT, str(tmp_path)], stdout=subprocess.PIPE, text=True
    ) as parent:
        assert parent.stdout is not None
        pid, port = map(int, parent.stdout.readline().split())
        with redis.Redis(port=port, protocol=2) as client:
            client.set("kept", "yes")
        assert _alive(pid)

        parent.send_signal(signal.SIGKILL)

    ended = _ends(pid)
    if not ended:
        os.kill(pid, signal.SIGKILL)
    assert ended
    with EmbeddedServer(tmp_path) as again, redis.Redis.from_url(again.url, protocol=2) as client:
        assert client.get("kept") == b"yes"


def test_it_does_not_start_for_a_parent_that_is_gone(tmp_path: Path) -> None:
    done = subprocess.run(
        _command(tmp_path, free_port(), "--parent", "1"), capture_output=True, text=True, timeout=20
    )

    assert done.returncode == 1
    assert "the process that started the embedded server has ended" in done.stderr


def test_two_servers_do_not_share_a_directory(tmp_path: Path) -> None:
    with EmbeddedServer(tmp_path), pytest.raises(EmbeddedServerError, match="in use by another"):
        EmbeddedServer(tmp_path).start()


def test_a_port_that_is_taken_is_named(tmp_path: Path) -> None:
    with (
        EmbeddedServer(tmp_path / "one") as first,
        pytest.raises(EmbeddedServerError, match=rf"{first.port}.*Address already in use"),
    ):
        EmbeddedServer(tmp_path / "two", first.port).start()


def test_it_stops_within_its_block_and_leaves_no_process(tmp_path: Path) -> None:
    with EmbeddedServer(tmp_path) as server:
        pid = server.pid
        os.kill(pid, 0)

    assert not _alive(pid)
