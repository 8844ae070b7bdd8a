"""The store of compose.yaml: docker/redis, run by a real Redis server."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from tests.compose import file
from tests.compose.processes import Processes, ServiceDiedError

PASSWORDS = [
    "7f0c9d",
    "with space",
    'a"quote',
    "back\\slash\\",
    "#hash",
    "$HOME `id` $(id)",
    "пароль",
    "%41@:/?",
]


@pytest.fixture
def store(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Processes]:
    processes = Processes(file.load(), "cpu", tmp_path, getattr(request, "param", "7f0c9d"))
    yield processes
    processes.kill_all()


def client(store: Processes, password: str | None) -> redis.Redis:
    # a refused password is not tried again
    once = Retry(NoBackoff(), 0)
    return redis.Redis(port=store.port("redis", 6379), password=password, protocol=2, retry=once)


@pytest.mark.parametrize("store", PASSWORDS, indirect=True)
def test_it_wants_the_password_of_its_file_whatever_is_in_it(
    store: Processes, request: pytest.FixtureRequest
) -> None:
    password = request.node.callspec.params["store"]
    store.start("redis")
    store.wait_healthy("redis")
    with client(store, password) as known:
        assert known.ping()
    for wrong in (None, f"{password}x"):
        with client(store, wrong) as unknown, pytest.raises(redis.AuthenticationError):
            unknown.ping()
    running = store.running["redis"]
    for told in ("cmdline", "environ"):
        assert password.encode() not in (Path("/proc") / str(running.process.pid) / told).read_bytes()
    assert password not in running.log.read_text()


def test_its_health_needs_the_right_password(store: Processes) -> None:
    store.start("redis")
    store.wait_healthy("redis")
    store.running["redis"].mounts["/run/secrets/redis_password"].write_text("another\n")
    assert not store.healthy("redis")


@pytest.mark.parametrize("store", ["", "\r"], indirect=True)
def test_it_does_not_start_with_an_empty_password(store: Processes) -> None:
    store.start("redis")
    with pytest.raises(ServiceDiedError, match="redis_password is empty"):
        store.wait_healthy("redis")


def test_what_it_has_acknowledged_outlives_a_restart_and_nothing_is_evicted(store: Processes) -> None:
    store.start("redis")
    store.wait_healthy("redis")
    with client(store, "7f0c9d") as before:
        before.set("key", "value")
        settings = before.config_get("maxmemory*")
    assert settings["maxmemory"] == str(2 * 1024**3)
    assert settings["maxmemory-policy"] == "noeviction"
    store.stop("redis")
    store.start("redis")
    store.wait_healthy("redis")
    with client(store, "7f0c9d") as after:
        assert after.get("key") == b"value"
