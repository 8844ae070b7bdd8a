"""compose.yaml against the schema, and everything that it refers to."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import fastjsonschema
import pytest

from tests.compose import dockerfile, file
from tests.compose.file import ROOT

SCHEMA = json.loads((Path(file.__file__).parent / "compose.schema.json").read_text())
# checked by the schema's own patterns or by the tests below
FORMATS = dict.fromkeys(("duration", "expose", "ports", "subnet_ip_address"), ".*")
VALID = fastjsonschema.compile(SCHEMA, formats=FORMATS, use_default=False)

PROJECT = file.load()
SERVICES: dict[str, dict[str, Any]] = PROJECT["services"]
GPU_PROFILES = ["gpu", *(f"gpu{number}" for number in range(1, 8))]
OURS = sorted(name for name, service in SERVICES.items() if "build" in service)


def test_the_file_is_valid_as_it_stands_and_with_its_variables_put_in() -> None:
    VALID(file.raw())
    VALID(PROJECT)


def test_the_schema_would_find_a_mistake() -> None:
    broken = file.load()
    broken["services"]["redis"]["healtcheck"] = broken["services"]["redis"].pop("healthcheck")
    with pytest.raises(fastjsonschema.JsonSchemaValueException, match="healtcheck"):
        VALID(broken)


# ---- references within the file


@pytest.mark.parametrize("kind", ["secrets", "networks"])
def test_what_a_service_names_is_defined_and_what_is_defined_is_used(kind: str) -> None:
    named = {name for service in SERVICES.values() for name in service.get(kind, ())}
    assert named == PROJECT[kind].keys()


def test_volumes_are_defined_and_used() -> None:
    short = [
        volume
        for service in SERVICES.values()
        for volume in service.get("volumes", ())
        if isinstance(volume, str)
    ]
    assert {volume.partition(":")[0] for volume in short} == PROJECT["volumes"].keys()


@pytest.mark.parametrize("profile", ["cpu", *GPU_PROFILES])
def test_what_a_service_depends_on_starts_with_the_same_profile(profile: str) -> None:
    # a further GPU is a further profile: `gpu1` is used beside `gpu`
    with_gpu = ["gpu"] if profile in GPU_PROFILES else []
    chosen = file.services(PROJECT, profile, *with_gpu)
    for name, service in chosen.items():
        assert service.get("depends_on", {}).keys() <= chosen.keys(), name


def test_without_a_profile_nothing_starts() -> None:
    assert file.services(PROJECT) == {}


def test_every_address_of_another_service_is_one_that_starts_with_it_on_a_network_of_both() -> None:
    found = 0
    for profiles in (["cpu"], ["gpu"], GPU_PROFILES):
        chosen = file.services(PROJECT, *profiles)
        for service in chosen.values():
            for value in service["environment"].values():
                for host in re.findall(r"(?:^|//)([a-z][a-z0-9-]*):\d+", value):
                    assert set(chosen[host]["networks"]) & set(service["networks"])
                    found += 1
    assert found > 6


def test_files_that_are_mounted_exist_and_are_read_only() -> None:
    found = 0
    for service in SERVICES.values():
        for volume in service.get("volumes", ()):
            if isinstance(volume, dict):
                assert volume["type"] == "bind"
                assert volume["read_only"] is True
                assert (ROOT / volume["source"]).exists(), volume
                found += 1
    assert found >= 4


def test_paths_in_commands_and_environments_lie_in_what_is_mounted() -> None:
    found = 0
    for service in SERVICES.values():
        binds = {v["target"]: ROOT / v["source"] for v in service.get("volumes", ()) if isinstance(v, dict)}
        named = [
            *service.get("command", ()),
            *service["healthcheck"]["test"],
            *service["environment"].values(),
        ]
        for path in (Path(text) for text in named if text.startswith(("/etc/", "/models/"))):
            (target,) = (Path(target) for target in binds if path.is_relative_to(target))
            assert (binds[str(target)] / path.relative_to(target)).exists(), path
            found += 1
    assert found == 5


# ---- variables


def test_every_variable_has_a_default_or_an_error_and_is_explained() -> None:
    explained = file.example_values()
    used = {use.name for use in file.uses(file.raw())}
    # Compose's own
    assert used | {"COMPOSE_PROFILES"} == explained.keys()
    for use in file.uses(file.raw()):
        assert use.how is not None, f"${{{use.name}}} has neither a default nor an error"


def test_the_values_of_the_example_are_the_defaults() -> None:
    explained = file.example_values()
    assert file.load({name: value for name, value in explained.items() if value}) == file.load()
    for use in file.uses(file.raw()):
        assert explained[use.name] == use.text


def test_the_example_sets_nothing_and_has_a_comment_above_every_variable() -> None:
    for block in file.ENV_EXAMPLE.read_text().strip().split("\n\n"):
        assert all(line.startswith("#") for line in block.splitlines())
        if re.search(r"^#[A-Z_]+=", block, re.MULTILINE):
            assert block.startswith("# "), block


def test_what_is_secret_or_of_one_machine_is_ignored_by_git_and_not_sent_to_the_builder() -> None:
    secret = PROJECT["secrets"]["redis_password"]["file"]
    local = [".env", "compose.override.yaml", secret.removeprefix("./"), "scorers/scorer.pt"]
    ignored = subprocess.run(
        ["git", "check-ignore", *local], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert ignored.stdout.split() == local
    lines = (ROOT / ".dockerignore").read_text().splitlines()
    allowed = [line[1:] for line in lines if line.startswith("!")]
    assert "*" in lines
    assert not {Path(name).parts[0] for name in local} & {Path(name).parts[0] for name in allowed}


# ---- what a platform team counts on


def test_only_the_gateway_is_published_and_on_loopback() -> None:
    assert [name for name, service in SERVICES.items() if "ports" in service] == ["gateway"]
    (port,) = SERVICES["gateway"]["ports"]
    assert port == {"host_ip": "127.0.0.1", "published": "50551", "target": 50551}
    for service in SERVICES.values():
        assert not {"network_mode", "ipc", "pid", "privileged"} & service.keys()


def test_store_and_scorer_have_no_way_out() -> None:
    assert PROJECT["networks"]["inside"]["internal"] is True
    for name in ("redis", "prm-worker", "prm-worker-tiny", "decoder-cpu"):
        assert SERVICES[name]["networks"] == ["inside"]


@pytest.mark.parametrize("name", sorted(SERVICES))
def test_every_service_is_hardened_restarted_and_its_log_bounded(name: str) -> None:
    service = SERVICES[name]
    user = service.get("user") or dockerfile.image(service["build"]["target"]).user
    assert user.partition(":")[0] not in ("", "0", "root")
    assert service["read_only"] is True
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert service["init"] is True
    assert service["restart"] == "unless-stopped"
    assert service["logging"]["options"].keys() == {"max-size", "max-file"}


@pytest.mark.parametrize("name", sorted(SERVICES))
def test_every_service_says_whether_it_is_healthy_and_has_time_to_start(name: str) -> None:
    check = SERVICES[name]["healthcheck"]
    assert check["test"][0] == "CMD"
    assert file.seconds(check["timeout"]) <= file.seconds(check["interval"])
    least = {"decoder-cpu": 120, "redis": 60, "gateway": 30}.get(name, 1800 if "gpu" in name else 60)
    assert file.seconds(check["start_period"]) >= least


def test_dependencies_are_waited_for_until_they_are_healthy() -> None:
    for service in SERVICES.values():
        for condition in service.get("depends_on", {}).values():
            assert condition == {"condition": "service_healthy"}


def test_profile_gpu_needs_one_gpu_and_each_further_profile_one_more() -> None:
    for number, profile in enumerate(GPU_PROFILES):
        chosen = file.services(PROJECT, *GPU_PROFILES[: number + 1])
        devices = [
            device
            for service in chosen.values()
            for device in service.get("deploy", {})
            .get("resources", {})
            .get("reservations", {})
            .get("devices", ())
        ]
        assert [device["device_ids"] for device in devices] == [[str(n)] for n in range(number + 1)], profile
        assert all(d["driver"] == "nvidia" and d["capabilities"] == ["gpu"] for d in devices)


def test_decoder_workers_on_gpus_differ_in_their_gpu_only() -> None:
    workers = [dict(SERVICES[f"decoder-gpu{number}"]) for number in range(8)]
    for worker in workers:
        del worker["deploy"], worker["profiles"]
        assert worker == workers[0]


def test_a_decoder_worker_has_shared_memory_and_a_place_for_compiled_code() -> None:
    for name, service in SERVICES.items():
        if name.startswith("decoder-"):
            assert service["shm_size"].endswith("gb"), name
            assert any(mount.startswith("/tmp:") and "exec" in mount for mount in service["tmpfs"]), name
            home = dockerfile.image(service["build"]["target"]).environment["HOME"]
            writable = [mount.partition(":")[0] for mount in service["tmpfs"]]
            writable += [v.partition(":")[2] for v in service["volumes"] if isinstance(v, str)]
            assert home in writable, name


def test_the_store_is_redis_with_its_append_only_file_and_without_eviction() -> None:
    store = SERVICES["redis"]
    assert re.fullmatch(r"redis:\d+\.\d+\.\d+(-\w+)?", store["image"])
    settings = dict(
        line.split(" ", 1)
        for line in (ROOT / "docker/redis/redis.conf").read_text().splitlines()
        if line and not line.startswith("#")
    )
    assert (settings["appendonly"], settings["appendfsync"]) == ("yes", "always")
    assert settings["latency-monitor-threshold"] == "100"
    assert settings["maxmemory-policy"] == "noeviction"
    assert f"store:{settings['dir']}" in store["volumes"]
    assert store["environment"]["REDIS_MAXMEMORY"]


def test_images_are_pinned_or_built_here_and_never_pulled() -> None:
    for name in OURS:
        service = SERVICES[name]
        assert service["image"] == f"thoughtbeam-{service['build']['target']}:local"
        assert service["pull_policy"] == "never"
