"""kill -9 of each process while a search runs, and of all: what was accepted ends in one answer."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from threading import Event

import pytest

from tests.fault.processes import PATIENCE, alive, children, command, eventually
from tests.integration.service.test_search import assert_accounts
from thoughtbeam import Client, Result, TreeEvent
from thoughtbeam.local import LocalConfig, running
from thoughtbeam.results import NodeState, NodeTransition, TreeState
from thoughtbeam.supervision.signals import StopSignals
from thoughtbeam.supervision.state import StateDirectory

pytestmark = pytest.mark.timeout(600)

QUESTION = (
    "Start with 871 and work modulo 1000. a) +723 b) +809 c) *7 d) -543 e) -633 f) +823 g) *4 h) *9 i) +737 "
    "j) +658 k) +731 l) +809. Report the value after l."
)


@dataclass
class Service:
    """A local service, and what has become of its processes."""

    endpoint: str
    store: list[str]  # the command that starts it: Valkey overwrites its own
    pids: dict[str, int]
    restarted: list[subprocess.Popen[bytes]]

    def kill(self, name: str) -> list[str]:
        """Kills one process with SIGKILL; returns its command."""
        pid = self.pids[name]
        started_by = command(pid)
        descendants = children(pid)
        os.kill(pid, signal.SIGKILL)
        eventually(lambda: not any(map(alive, [pid, *descendants])), f"{name} and its processes end")
        return started_by

    def start(self, name: str, arguments: list[str]) -> None:
        """Starts it again, as a service manager does."""
        process = subprocess.Popen(arguments, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.restarted.append(process)
        self.pids[name] = process.pid


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    state = StateDirectory(tmp_path_factory.mktemp("local"))
    with (
        StopSignals() as signals,
        running(LocalConfig(port=None, slots=32), state, signals, print) as (ready, _),
    ):
        port = ready.redis_url.rpartition(":")[2]
        store = [sys.executable, "-m", "tree_store.embedded", "--dir", str(state.store), "--port", port]
        found = Service(ready.endpoint, store, dict(ready.processes), [])
        try:
            yield found
        finally:
            for process in reversed(found.restarted):
                process.terminate()
            try:
                for process in reversed(found.restarted):
                    process.wait(timeout=60)
            finally:
                for process in found.restarted:
                    process.kill()
                    process.wait()


@pytest.fixture
def search(service: Service) -> Iterator[tuple[Client, Future[Result]]]:
    """A search under way: some of its traces have passed boundaries."""
    under_way = Event()

    def watch(event: TreeEvent) -> None:
        if isinstance(event, NodeTransition) and event.after is NodeState.PRUNED:
            under_way.set()

    with Client(service.endpoint) as client, ThreadPoolExecutor() as pool:
        result = pool.submit(
            client.solve,
            QUESTION,
            policy="gambit",
            answer_mode="integer",
            timeout=2 * PATIENCE,
            on_event=watch,
        )
        while not under_way.wait(0.1):
            if result.done():
                result.result()
                pytest.fail("the search ended before it was under way")
        yield client, result


def ends_well(client: Client, search: Future[Result]) -> Result:
    result = search.result(timeout=2 * PATIENCE)
    assert result.state is TreeState.SUCCEEDED
    assert result.answer is not None
    assert_one_search(client, result.tree_id)
    return result


def assert_one_search(client: Client, tree_id: str) -> None:
    """The call, the last one, made one search, however often it was sent, and its tree adds up."""
    tree = client.tree(tree_id)
    assert_accounts(tree)
    assert [other.id for other in client.trees() if tree.created <= other.created] == [tree_id]


def test_the_prm_worker_comes_back(service: Service, search: tuple[Client, Future[Result]]) -> None:
    service.start("prm_worker", service.kill("prm_worker"))
    assert not ends_well(*search).degraded


def test_the_gateway_comes_back(service: Service, search: tuple[Client, Future[Result]]) -> None:
    service.start("gateway", service.kill("gateway"))
    ends_well(*search)


def test_the_store_comes_back(service: Service, search: tuple[Client, Future[Result]]) -> None:
    service.kill("store")
    service.start("store", service.store)
    ends_well(*search)


def test_another_decoder_worker_goes_on_with_the_search(
    service: Service, search: tuple[Client, Future[Result]]
) -> None:
    client, result = search
    service.start("decoder_worker", service.kill("decoder_worker"))
    found = ends_well(client, result)
    assert client.tree(found.tree_id).epoch == 2


@contextmanager
def solving(service: Service) -> Iterator[subprocess.Popen[str]]:
    """The command line, asking; its search has a trace that is pruned."""
    arguments = ["solve", QUESTION, "--answer-mode", "integer", "--json", "--endpoint", service.endpoint]
    with Client(service.endpoint) as client:
        before = {tree.id for tree in client.trees()}
        command_line = subprocess.Popen(
            [sys.executable, "-P", "-m", "thoughtbeam.cli.main", *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        try:

            def under_way() -> bool:
                new = [tree for tree in client.trees() if tree.id not in before]
                return bool(new and new[0].counts.pruned)

            eventually(under_way, "the search is under way")
            yield command_line
        finally:
            command_line.kill()
            command_line.communicate()


def answers_once(service: Service, command_line: subprocess.Popen[str]) -> None:
    output, errors = command_line.communicate(timeout=2 * PATIENCE)
    assert command_line.returncode == 0, errors
    result = json.loads(output)
    assert result["answer"]
    with Client(service.endpoint) as client:
        assert_one_search(client, result["tree_id"])


def test_the_command_line_waits_for_a_gateway_that_is_away(service: Service) -> None:
    with solving(service) as command_line:
        arguments = service.kill("gateway")
        time.sleep(5)  # longer than any single attempt to connect takes
        assert command_line.poll() is None
        service.start("gateway", arguments)
        answers_once(service, command_line)


def test_the_command_line_waits_for_a_whole_service_that_is_away(service: Service) -> None:
    with solving(service) as command_line:
        names = ["decoder_worker", "gateway", "prm_worker", "store"]
        arguments = {name: service.kill(name) for name in names}
        service.start("store", service.store)
        for name in ("prm_worker", "gateway", "decoder_worker"):
            service.start(name, arguments[name])
        answers_once(service, command_line)
