"""Generates the gRPC stubs in thoughtbeam/v1 from protos/.

`python scripts/gen_protos.py` writes them; `--check` changes nothing and fails when what is checked in
differs. Needs grpcio-tools and mypy-protobuf in the versions of requirements/dev.txt.
"""

from __future__ import annotations

import argparse
import importlib.resources
import sys
import tempfile
from pathlib import Path

from grpc_tools import protoc

ROOT = Path(__file__).resolve().parent.parent
PROTOS = ROOT / "protos"
STUBS = ROOT / "thoughtbeam" / "v1"


def generate(out: Path) -> None:
    """Writes `thoughtbeam/v1/*_pb2*` under `out`."""
    includes = [f"-I{PROTOS}", f"-I{importlib.resources.files('grpc_tools') / '_proto'}"]
    files = sorted(str(p.relative_to(PROTOS)) for p in PROTOS.rglob("*.proto"))
    plugin = Path(sys.executable).with_name("protoc-gen-mypy_grpc")
    status = protoc.main(
        [
            "protoc",
            *includes,
            f"--python_out={out}",
            f"--pyi_out={out}",
            f"--grpc_python_out={out}",
            f"--plugin=protoc-gen-mypy_grpc={plugin}",
            f"--mypy_grpc_out={out}",
            *files,
        ]
    )
    if status:
        raise SystemExit(f"protoc failed with status {status}")


def stubs_in(folder: Path) -> dict[str, str]:
    return {p.name: p.read_text() for p in sorted(folder.glob("*_pb2*.py*")) if p.suffix in {".py", ".pyi"}}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="fail when the checked-in stubs differ")
    check = parser.parse_args().check
    with tempfile.TemporaryDirectory() as folder:
        generate(Path(folder))
        fresh = stubs_in(Path(folder) / "thoughtbeam" / "v1")
    if check:
        stored = stubs_in(STUBS)
        differing = sorted(n for n in fresh.keys() | stored.keys() if fresh.get(n) != stored.get(n))
        if differing:
            raise SystemExit(f"stubs differ from the protos: {', '.join(differing)}; run `make protos`")
        print(f"{len(stored)} stubs match the protos")
        return
    for name, text in fresh.items():
        (STUBS / name).write_text(text)
    print(f"wrote {len(fresh)} stubs to {STUBS.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
