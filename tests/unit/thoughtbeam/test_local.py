from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

import decoder_worker.main
import gateway.main
import prm_worker.main
from tests.unit.thoughtbeam.launches import SLEEPER, alive, service
from thoughtbeam import local
from thoughtbeam.local import LocalConfig, LocalSetupError, running
from thoughtbeam.models import BUNDLED_MODEL
from thoughtbeam.supervision.signals import StopRequestedError, StopSignals
from thoughtbeam.supervision.state import AlreadyRunningError, Running, StateDirectory
from thoughtbeam.supervision.supervisor import Service, ServiceFailedError, Supervisor

PORTS = local._Ports(gateway=1, store=2, prm_worker=3, decoder_worker=4)
MARK = f"local-{os.getpid()}"


@pytest.fixture
def state(tmp_path: Path) -> StateDirectory:
    return StateDirectory(tmp_path / "home")


def services(config: LocalConfig, state: StateDirectory) -> dict[str, Service]:
    """By name."""
    return {s.name: s for wave in local._services(config, PORTS, state) for s in wave}


def commands(config: LocalConfig, state: StateDirectory) -> dict[str, Sequence[str]]:
    """Arguments by program, what runs Python left out."""
    started = services(config, state)
    return {name: s.command[s.command.index("-m") + 1 :] for name, s in started.items()}


# ---- what is started


def test_the_programs_know_the_flags_that_they_are_given(state: StateDirectory, tmp_path: Path) -> None:
    config = LocalConfig(
        boundary_rule="blank_line_before_think_end", profile="paper", slots=8, max_context=2048
    )

    started = commands(config, state)

    worker = decoder_worker.main.parse(started["decoder_worker"][1:])
    assert (worker.gateway, worker.scorer, worker.redis_url) == (
        "127.0.0.1:1",
        "127.0.0.1:3",
        "redis://127.0.0.1:2",
    )
    assert (worker.listen, worker.model, worker.profile) == (
        "127.0.0.1:4",
        str(BUNDLED_MODEL),
        "paper",
    )
    assert (worker.slots, worker.max_context, worker.boundary_rule) == (
        8,
        2048,
        "blank_line_before_think_end",
    )
    served = gateway.main.parse(started["gateway"][1:])
    assert (served.listen, served.redis_url) == ("127.0.0.1:1", "redis://127.0.0.1:2")


def test_the_bundled_model_comes_with_its_scorer_and_profile(state: StateDirectory) -> None:
    started = commands(LocalConfig(), state)

    assert str(BUNDLED_MODEL / "scorer.pt") in started["prm_worker"]
    assert "tiny" in started["decoder_worker"]
    assert BUNDLED_MODEL.is_dir()


def test_a_model_without_a_scorer_runs_without_a_prm_worker(state: StateDirectory, tmp_path: Path) -> None:
    started = commands(LocalConfig(model=str(tmp_path)), state)

    assert "prm_worker" not in started
    worker = decoder_worker.main.parse(started["decoder_worker"][1:])
    assert (worker.model, worker.scorer, worker.profile) == (str(tmp_path), None, "paper")


def test_a_scorer_of_ones_own(state: StateDirectory, tmp_path: Path) -> None:
    scorer = tmp_path / "mine.pt"
    scorer.touch()

    assert str(scorer) in commands(LocalConfig(scorer=str(scorer)), state)["prm_worker"]


def test_a_scorer_that_is_not_there(state: StateDirectory, tmp_path: Path) -> None:
    with pytest.raises(LocalSetupError, match=r"--scorer: there is no file .*missing\.pt"):
        commands(LocalConfig(scorer=str(tmp_path / "missing.pt")), state)


def test_a_process_reward_model_takes_the_place_of_a_scorer(
    state: StateDirectory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "prm").mkdir()

    started = commands(LocalConfig(process_reward="prm", boundary_rule="blank_line"), state)

    served = prm_worker.main.parse(started["prm_worker"][1:])
    assert (served.scorer, served.process_reward) == (None, str(tmp_path / "prm"))
    assert decoder_worker.main.parse(started["decoder_worker"][1:]).scorer == "127.0.0.1:3"
    named = commands(LocalConfig(process_reward="Qwen/Qwen2.5-Math-PRM-7B"), state)
    assert "Qwen/Qwen2.5-Math-PRM-7B" in named["prm_worker"]
    with pytest.raises(LocalSetupError, match="one scorer"):
        commands(LocalConfig(process_reward="prm", scorer="mine.pt"), state)


def test_a_second_engine_on_cpus_is_bound_to_the_last_core(
    state: StateDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    bind = "VLLM_CPU_OMP_THREADS_BIND"
    monkeypatch.delenv(bind, raising=False)
    with_text_model = LocalConfig(process_reward="prm")

    assert all(bind not in service.environment for service in services(LocalConfig(), state).values())
    placed = services(with_text_model, state)
    assert bind not in placed["decoder_worker"].environment
    assert placed["prm_worker"].environment == {bind: str(max(os.sched_getaffinity(0)))}
    monkeypatch.setenv(bind, "nobind")
    assert services(with_text_model, state)["prm_worker"].environment == {bind: "nobind"}


def test_a_name_of_a_model_is_left_to_the_engine(state: StateDirectory) -> None:
    assert "Qwen/Qwen3-4B" in commands(LocalConfig(model="Qwen/Qwen3-4B"), state)["decoder_worker"]


# ---- the run


@pytest.fixture
def small_services(monkeypatch: pytest.MonkeyPatch) -> list[list[Service]]:
    """Two children that need no engine, in the place of the real ones."""
    waves = [[service("store", SLEEPER, MARK)], [service("gateway", SLEEPER, MARK)]]
    monkeypatch.setattr(local, "_services", lambda config, ports, state: waves)
    return waves


@contextlib.contextmanager
def launched(
    state: StateDirectory, port: int | None = None, report: Callable[[str], None] = print
) -> Iterator[tuple[Running, Supervisor]]:
    with StopSignals() as signals, running(LocalConfig(port=port), state, signals, report) as started:
        yield started


def test_a_run_from_start_to_stop(small_services: list[list[Service]], state: StateDirectory) -> None:
    said: list[str] = []
    with launched(state, report=said.append) as (ready, supervisor):
        written = json.loads((state.path / "local.json").read_text())
        assert written["supervisor"] == os.getpid()
        assert written["processes"] == supervisor.processes
        assert (written["endpoint"], written["redis_url"]) == (ready.endpoint, ready.redis_url)
        assert len(alive(MARK)) == 2

    assert alive(MARK) == []
    assert not (state.path / "local.json").exists()
    assert state.holder() is None
    assert [line.split()[:2] for line in said] == [
        ["store", "starting"],
        ["store", "ready"],
        ["gateway", "starting"],
        ["gateway", "ready"],
        ["gateway", "stopping"],
        ["store", "stopping"],
    ]


def test_a_service_that_fails_ends_the_others(
    small_services: list[list[Service]], state: StateDirectory
) -> None:
    broken = service("decoder_worker", "raise SystemExit('no engine')", MARK)
    small_services.append([Service(broken.name, broken.command, lambda: False)])

    with pytest.raises(ServiceFailedError) as caught, launched(state):
        raise AssertionError("must not become ready")

    assert "no engine" in caught.value.log
    assert alive(MARK) == []
    assert state.holder() is None


def test_a_signal_during_the_start_ends_it(
    small_services: list[list[Service]], state: StateDirectory
) -> None:
    def signal_then_wait() -> bool:
        os.kill(os.getpid(), signal.SIGINT)
        return False

    never = service("decoder_worker", SLEEPER, MARK)
    small_services.append([Service(never.name, never.command, signal_then_wait)])

    with pytest.raises(StopRequestedError), launched(state):
        raise AssertionError("must not become ready")

    assert alive(MARK) == []


def test_a_port_that_is_taken_is_named(small_services: list[list[Service]], state: StateDirectory) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(LocalSetupError, match=rf"port {port} .*--port"), launched(state, port):
            raise AssertionError("must not start")

    assert alive(MARK) == []


def test_two_at_once_are_refused(small_services: list[list[Service]], state: StateDirectory) -> None:
    with launched(state):
        with pytest.raises(AlreadyRunningError), launched(state):
            raise AssertionError("must not start")
        assert len(alive(MARK)) == 2
