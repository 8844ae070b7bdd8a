"""`thoughtbeam scorer` hands its arguments to the programs of the workers, as they are."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys

import pytest

from thoughtbeam.cli import exits
from thoughtbeam.cli.main import main


@pytest.mark.parametrize(
    ("name", "module"),
    [
        ("collect", "decoder_worker.collecting"),
        ("train", "prm_worker.training.train"),
        ("evaluate", "prm_worker.training.evaluate"),
        ("calibrate", "prm_worker.training.calibrate"),
    ],
)
def test_what_follows_the_program_is_its_own(name: str, module: str, monkeypatch: pytest.MonkeyPatch) -> None:
    class _Became(Exception):  # noqa: N818 - it stands for what does not return
        pass

    def execv(path: str, arguments: list[str]) -> None:
        assert path == sys.executable
        raise _Became(arguments)

    monkeypatch.setattr(os, "execv", execv)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: object())
    given = ["--arch", "mlp", "--help", "-x", "a b", "--data=d"]
    with pytest.raises(_Became) as became:
        main(["scorer", name, *given])
    assert became.value.args[0] == [sys.executable, "-P", "-m", module, *given]


def test_a_missing_extra_is_named_in_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "torch" else object())
    assert main(["scorer", "train", "--arch", "mlp"]) == exits.USAGE
    said = capsys.readouterr().err
    assert said == (
        "thoughtbeam: scorer train needs torch, not installed here: pip install 'thoughtbeam[prm]'\n"
    )


@pytest.mark.parametrize("name", ["collect", "train", "evaluate", "calibrate"])
def test_each_program_explains_itself_under_the_name_it_was_called_by(name: str) -> None:
    run = subprocess.run(
        [sys.executable, "-m", "thoughtbeam.cli.main", "scorer", name, "--help"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert run.stdout.startswith(f"usage: thoughtbeam scorer {name} ")


def test_a_bad_value_is_refused_by_the_program_and_names_what_is_allowed() -> None:
    run = subprocess.run(
        [sys.executable, "-m", "thoughtbeam.cli.main", "scorer", "train", "--arch", "tree"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 2
    assert "argument --arch: invalid choice: 'tree' (choose from" in run.stderr
    assert "mlp" in run.stderr
    assert "sequence" in run.stderr
