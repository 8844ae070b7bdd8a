"""Rules that the whole repository keeps: what may import what, what is shipped, what is never written."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

# the table "The pieces" of ARCHITECTURE.md: what each package may import of the others
MAY_IMPORT = {
    "thoughtbeam": set(),
    "tree_store": {"thoughtbeam.runtime"},
    "prm_worker": {"thoughtbeam.v1", "thoughtbeam.runtime"},
    "decoder_worker": {"thoughtbeam.v1", "thoughtbeam.runtime", "tree_store"},
    "gateway": {"thoughtbeam.v1", "thoughtbeam.runtime", "tree_store"},
    "bench": {"thoughtbeam", "tree_store", "decoder_worker", "prm_worker"},
}
SHIPPED = sorted(MAY_IMPORT.keys() - {"bench"})

# in pieces, so that this file does not break the rule that it checks
REGISTRY_HOSTS = [".".join(parts) for parts in (("pypi", "org"), ("pythonhosted", "org"), ("pytorch", "org"))]
MACHINE_PATH = re.compile(r"(?<![\w.~}$)>*-])/(?:home|root|Users|opt|work|mnt)/\w")
LOCAL_VERSION = re.compile(r"==\s*[\d.]+\+(?:cpu|cu\d+)")


def tracked_files() -> list[Path]:
    """Every file that is in version control, or would be."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    )
    return [path for name in listed.stdout.splitlines() if (path := ROOT / name).is_file()]


def texts() -> Iterator[tuple[str, str]]:
    """Name and content of every text file."""
    for path in tracked_files():
        try:
            yield str(path.relative_to(ROOT)), path.read_text()
        except UnicodeDecodeError:
            continue


def imports_of(path: Path) -> set[str]:
    """Every module that a file imports, wherever in it."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: a relative import"
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return found


def within(module: str, prefix: str) -> bool:
    return module == prefix or module.startswith(prefix + ".")


@pytest.mark.parametrize("package", list(MAY_IMPORT))
def test_a_package_imports_only_what_the_architecture_allows(package: str) -> None:
    allowed = {package} | MAY_IMPORT[package]
    ours = {*MAY_IMPORT, "tests"}
    for path in (ROOT / package).rglob("*.py"):
        for module in imports_of(path):
            if module.split(".")[0] in ours:
                assert any(within(module, prefix) for prefix in allowed), f"{path} imports {module}"


def test_the_sdk_loads_nothing_beyond_the_base_install() -> None:
    code = (
        "import sys; before = set(sys.modules); import thoughtbeam;"
        "print(*{name.split('.')[0] for name in set(sys.modules) - before})"
    )
    run = subprocess.run(
        [sys.executable, "-I", "-c", code], cwd="/", check=True, capture_output=True, text=True
    )
    third_party = set(run.stdout.split()) - sys.stdlib_module_names - {"thoughtbeam"}
    # grpc itself looks for its sister packages; Cython's runtime has a name of its own
    beyond = {
        name for name in third_party if not re.match(r"grpc|_?cython_|google$|typing_extensions$", name)
    }
    assert "grpc" in third_party
    assert beyond == set()


def test_no_registry_host_and_no_path_of_a_machine_is_written_anywhere() -> None:
    for name, text in texts():
        for host in REGISTRY_HOSTS:
            assert host not in text, f"{name} names {host}"
        path = MACHINE_PATH.search(text)
        assert path is None, f"{name} names a path of one machine: {path and path[0]}"
        assert not LOCAL_VERSION.search(text), f"{name} pins a build of one index"


def test_links_between_documents_lead_somewhere() -> None:
    for name, text in texts():
        if name.endswith(".md"):
            for target in re.findall(r"\]\(([^)#\s]+)[^)]*\)", text):
                if not target.startswith(("http:", "https:", "mailto:")):
                    assert (ROOT / name).parent.joinpath(target).exists(), f"{name} links to {target}"


def test_documents_name_only_make_targets_that_exist() -> None:
    targets = set(re.findall(r"^([a-z][a-z-]*):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    for name, text in texts():
        if name.endswith((".md", ".yaml")):
            blocks = "\n".join(re.findall(r"```\w*\n(.*?)```", text, re.DOTALL))
            named = set(re.findall(r"(?:`|entry: )make ([a-z][a-z-]*)", text))
            named |= set(re.findall(r"^make ([a-z][a-z-]*)", blocks, re.MULTILINE))
            assert named <= targets, f"{name} names {named - targets}"


def test_every_package_is_listed_for_the_wheel() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())
    packages = {path.parent.name for path in ROOT.glob("*/__init__.py")} - {"bench", "tests"}
    assert sorted(settings["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]) == sorted(packages)
    assert sorted(packages) == SHIPPED


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    """The wheel that a release would have."""
    folder = tmp_path_factory.mktemp("dist")
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True)
    (built,) = folder.glob("*.whl")
    return zipfile.ZipFile(built)


def test_the_wheel_has_every_file_of_the_packages_and_no_other(wheel: zipfile.ZipFile) -> None:
    packaged = {name for name in wheel.namelist() if ".dist-info/" not in name}
    wanted = {
        name for path in tracked_files() if (name := str(path.relative_to(ROOT))).split("/")[0] in SHIPPED
    }
    assert packaged == wanted
    assert any(name.endswith(".lua") for name in packaged)
    assert "thoughtbeam/py.typed" in packaged
    assert "thoughtbeam/models/tiny_reasoner/model.safetensors" in packaged


def test_the_wheel_carries_the_licence(wheel: zipfile.ZipFile) -> None:
    (licence,) = (name for name in wheel.namelist() if name.endswith("/LICENSE"))
    assert "Apache License" in wheel.read(licence).decode()


def test_package_data_stays_under_20_megabytes(wheel: zipfile.ZipFile) -> None:
    data = [info for info in wheel.infolist() if not info.filename.endswith((".py", ".pyi"))]
    assert sum(info.file_size for info in data) < 20_000_000


def test_the_stubs_match_the_protos() -> None:
    check = [sys.executable, "scripts/gen_protos.py", "--check"]
    run = subprocess.run(check, cwd=ROOT, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout + run.stderr
