"""What the settings mean, and what is refused."""

from __future__ import annotations

import logging
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from prm_worker.config import PrmWorkerConfig
from prm_worker.main import main
from prm_worker.scorer_file import Metadata
from prm_worker.scorers.mlp import MlpScorer
from prm_worker.server import rows_that_fit, with_settings
from tests.unit.prm_worker.weights import sequence_scorer, step_weights
from thoughtbeam.runtime.rpc import MAX_MESSAGE_BYTES
from thoughtbeam.runtime.settings import SettingError


@pytest.fixture(autouse=True)
def process_settings() -> Iterator[None]:
    """`main` sets them for a whole process; here it is given them back."""
    root, threads = logging.getLogger(), torch.get_num_threads()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)
    torch.set_num_threads(threads)


def asked(model_fingerprint: str | None, boundary_rule: str | None) -> PrmWorkerConfig:
    return PrmWorkerConfig(
        scorer=Path("scorer.pt"), model_fingerprint=model_fingerprint, boundary_rule=boundary_rule
    )


def test_settings_fill_in_what_a_file_does_not_record() -> None:
    assert with_settings(Metadata("mlp", 8), asked("f", "r")) == Metadata("mlp", 8, "f", "r")
    assert with_settings(Metadata("mlp", 8, "f", ""), asked(None, "r")) == Metadata("mlp", 8, "f", "r")
    assert with_settings(Metadata("mlp", 8, "f", "r"), asked("f", None)) == Metadata("mlp", 8, "f", "r")
    assert with_settings(Metadata("mlp", 8), asked(None, None)) == Metadata("mlp", 8)


def test_settings_must_not_contradict_the_file() -> None:
    recorded = Metadata("mlp", 8, "f", "r")
    with pytest.raises(SettingError, match=r"^model_fingerprint: must be f, as the scorer file .* is 'g'"):
        with_settings(recorded, asked("g", None))
    with pytest.raises(SettingError, match=r"^boundary_rule: must be r, as the scorer file .* is 's'"):
        with_settings(recorded, asked("f", "s"))


@pytest.mark.parametrize("hidden_size", [1, 128, 2560, 4096, 8192, 16384])
def test_the_largest_call_fits_into_a_message(hidden_size: int) -> None:
    for scorer in (MlpScorer(step_weights(hidden_size, 8)), sequence_scorer(hidden_size)):
        rows = rows_that_fit(10**9, scorer)
        assert rows >= 256
        assert rows * hidden_size * 4 < MAX_MESSAGE_BYTES
        assert rows * (4 + 2 * 256) < MAX_MESSAGE_BYTES or scorer.kind == "mlp"
        assert rows_that_fit(100, scorer) == 100


@pytest.mark.parametrize(
    "flag",
    [
        ["--threads", "0"],
        ["--threads", "two"],
        ["--max-rows", "-1"],
        ["--device", "abacus"],
        ["--device", "cuda:99"],
        ["--cache-mb", "15"],
        ["--cache-dtype", "bfloat16"],
    ],
)
def test_bad_flags_are_refused(flag: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["--scorer", str(tmp_path / "scorer.pt"), *flag])
    assert caught.value.code == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"prm_worker: {flag[0].strip('-').replace('-', '_')}: must be ")


def test_an_address_that_cannot_be_bound_is_an_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    scorer = tmp_path / "scorer.pt"
    torch.save(step_weights(4), scorer)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"

        assert main(["--scorer", str(scorer), "--listen", address]) == 1

    output = capsys.readouterr()
    assert "cannot_start" in output.err
    assert output.out == ""


def test_a_scorer_that_cannot_be_loaded_is_an_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--scorer", str(tmp_path / "scorer.pt")]) == 1
    assert "no such file" in capsys.readouterr().err
