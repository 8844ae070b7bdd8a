"""Training: split by question, reproducible, and better than chance where there is something to find."""

from __future__ import annotations

import math
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch

from prm_worker.scorer_file import load_scorer, read_scorer_file
from prm_worker.scorers.sequence import net_of
from prm_worker.training import calibrate, train
from prm_worker.training.data import split_by_question
from prm_worker.training.fitting import class_weights, loss_of
from prm_worker.training.networks import MlpNetwork, SequenceNetwork, network_of
from tests.unit.prm_worker.training.drawn import HIDDEN, ORIGIN, draw
from tests.unit.prm_worker.weights import sequence_weights, step_weights
from thoughtbeam.runtime.scorer_dataset_reader import read_traces

CPU = torch.device("cpu")


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return draw(tmp_path_factory.mktemp("data"))


@pytest.fixture(scope="module")
def much(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Enough to learn from, also for a transformer."""
    return draw(tmp_path_factory.mktemp("much"), questions=100, traces=8)


def trained(data: Path, out: Path, *more: str, arch: str = "mlp", epochs: int = 6) -> Path:
    arguments = ["--arch", arch, "--data", str(data), "--out", str(out), "--epochs", str(epochs), *more]
    arguments += ["--learning-rate", {"mlp": "1e-3", "sequence": "3e-4"}[arch]]
    assert train.main([*arguments, "--threads", "1"]) == 0
    return out


# ---- the split


def test_no_question_is_in_two_parts_and_none_is_lost(data: Path) -> None:
    traces = read_traces([data])
    split = split_by_question(traces, 0, 0.2, 0.1)
    parts = [set(traces.question[part].tolist()) for part in (split.train, split.stop, split.test)]
    assert [len(part) for part in parts] == [28, 8, 4]
    assert len(set.union(*parts)) == 40
    every = np.concatenate([split.train, split.stop, split.test])
    assert sorted(every.tolist()) == list(range(len(traces)))


def test_the_split_does_not_depend_on_the_order_of_the_data(tmp_path: Path) -> None:
    one, two = draw(tmp_path / "a", questions=10), draw(tmp_path / "b", questions=10, seed=1, name="p")
    parts = []
    for directories in ([one, two], [two, one]):
        traces = read_traces(directories)
        stop = split_by_question(traces, 0, 0.3, 0.0).stop
        parts.append({traces.questions[question] for question in traces.question[stop]})
    assert parts[0] == parts[1]
    assert len(parts[0]) == 6


# ---- training


@pytest.mark.parametrize("arch", ["mlp", "sequence"])
def test_the_same_seed_gives_the_same_weights_and_another_one_others(
    arch: str, data: Path, tmp_path: Path
) -> None:
    files = [
        read_scorer_file(trained(data, tmp_path / f"{name}.pt", "--seed", seed, arch=arch, epochs=1))
        for name, seed in (("one", "5"), ("two", "5"), ("three", "6"))
    ]
    one, two, three = (file.weights for file in files)
    assert one.keys() == two.keys()
    assert all(torch.equal(one[name], two[name]) for name in one)
    assert not all(torch.equal(one[name], three[name]) for name in one)
    assert files[0].metadata.calibration == files[1].metadata.calibration


@pytest.mark.parametrize("arch", ["mlp", "sequence"])
def test_what_is_trained_can_be_served_and_finds_what_there_is_to_find(
    arch: str, much: Path, tmp_path: Path
) -> None:
    epochs = {"mlp": 5, "sequence": 3}[arch]
    path = trained(much, tmp_path / "new" / "scorer.pt", arch=arch, epochs=epochs)
    scorer, metadata = load_scorer(path)
    assert (scorer.kind, scorer.hidden_size) == (arch, HIDDEN)
    assert (metadata.model_fingerprint, metadata.boundary_rule) == (ORIGIN.fingerprint, ORIGIN.boundary_rule)
    assert metadata.calibration["kind"] == "temperature"
    card = metadata.card
    assert card["data"]["questions"] == {"train": 70, "stop": 15, "test": 15}
    assert len(card["used_questions"]) == 85
    assert card["training"]["seed"] == 0
    ranking = card["metrics"]["test"]["within_question_ranking_by_depth_percent"]
    assert ranking["100"] > 0.8
    assert ranking["100"] > ranking["10"] + 0.1


def test_one_large_value_that_says_nothing_does_not_drown_the_others(data: Path, tmp_path: Path) -> None:
    """The standardisation of rows is part of the weights: the file's scorer sees rows as they come."""
    stored = read_scorer_file(trained(data, tmp_path / "s.pt", epochs=20))
    traces = read_traces([data])
    every = np.arange(len(traces))
    (network,) = [network_of(stored, CPU)]
    ends = np.array([one[-1] for one in network.logits(traces, every)])
    assert np.corrcoef(ends, traces.right)[0, 1] > 0.6
    scorer, _ = load_scorer(tmp_path / "s.pt")
    served = scorer.score(traces.values(traces.paths[0]))
    temperature, bias = stored.metadata.calibration["temperature"], stored.metadata.calibration["bias"]
    mine = 1 / (1 + np.exp(-(network.logits(traces, [0])[0] + bias) / temperature))
    assert np.abs(served - mine).max() < 1e-4


def test_both_classes_weigh_the_same_and_a_trace_weighs_one() -> None:
    wrong, right = class_weights(np.array([True, False, False, False]))
    assert (3 * wrong, right) == (pytest.approx(2.0), pytest.approx(2.0))


def test_the_loss_is_the_mean_over_traces_of_the_mean_over_thoughts(data: Path) -> None:
    traces = read_traces([data])
    network = MlpNetwork.of(step_weights(HIDDEN), CPU)
    which = np.array([0, 1, 2, 7])
    weights = (0.7, 1.6)
    total = weight = 0.0
    for trace, logits in zip(which, network.logits(traces, which), strict=True):
        label = bool(traces.right[trace])
        away = [float(-logit if label else logit) for logit in logits]  # from the right side
        own = [max(value, 0.0) + math.log1p(math.exp(-abs(value))) for value in away]
        total += weights[label] * sum(own) / len(own)
        weight += weights[label]
    assert loss_of(network, traces, which, weights) == pytest.approx(total / weight, rel=1e-4)


def test_batches_of_many_lengths_give_each_trace_its_own_logits(data: Path) -> None:
    traces = read_traces([data])
    network = SequenceNetwork(net_of(sequence_weights(HIDDEN)), CPU)
    together = network.logits(traces, np.arange(12))
    for trace in range(12):
        (alone,) = network.logits(traces, [trace])
        assert len(alone) == len(traces.paths[trace])
        assert np.abs(together[trace] - alone).max() < 1e-4


# ---- what cannot be trained on


@pytest.mark.parametrize("right", [True, False])
def test_one_class_alone_is_refused(right: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = draw(tmp_path / "data", questions=6, right=right)
    assert train.main(["--arch", "mlp", "--data", str(data), "--out", str(tmp_path / "s.pt")]) == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert "right: is so for" in said
    assert "there must be right and wrong ones" in said
    assert not (tmp_path / "s.pt").exists()


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"--data": "nowhere"}, "nowhere: is no data set"),
        ({"--data": "damaged"}, "shard-00000.npz: cannot be read: "),
        ({"--device": "abacus"}, "device: is 'abacus'; must be cpu, or cuda or cuda:INDEX ("),
        ({"--device": "cuda:99"}, "device: is 'cuda:99'; must be cpu, or cuda or cuda:INDEX ("),
    ],
)
def test_bad_input_is_told_in_one_line(
    change: dict[str, str],
    named: str,
    data: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    damaged = Path(shutil.copytree(data, tmp_path / "damaged")) / "shard-00000.npz"
    damaged.write_bytes(damaged.read_bytes()[:1000])
    monkeypatch.chdir(tmp_path)
    options = {"--arch": "mlp", "--data": str(data), "--out": str(tmp_path / "s.pt"), **change}
    assert train.main([text for pair in options.items() for text in pair]) == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert named in said


@pytest.mark.parametrize("out", ["", "file/s.pt"])
def test_a_file_that_cannot_be_written_is_told_before_the_training(
    out: str, data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").touch()
    path = tmp_path / out
    assert train.main(["--arch", "mlp", "--data", str(data), "--out", str(path)]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"thoughtbeam scorer train: {path}: cannot be written: ")


# ---- calibrating a file


def test_a_foreign_scorer_gets_a_calibration_and_keeps_its_weights(data: Path, tmp_path: Path) -> None:
    torch.save(step_weights(HIDDEN), tmp_path / "foreign.pt")
    out = tmp_path / "new" / "calibrated.pt"
    for method in ("isotonic", "none", "temperature"):
        arguments = ["--scorer", str(tmp_path / "foreign.pt"), "--data", str(data), "--out", str(out)]
        assert calibrate.main([*arguments, "--method", method]) == 0
        stored = read_scorer_file(out)
        assert stored.metadata.calibration.get("kind", "none") == method
        assert all(torch.equal(stored.weights[name], own) for name, own in step_weights(HIDDEN).items())
        scorer, _ = load_scorer(out)
        assert ((scorer.score(np.zeros((2, HIDDEN), np.float32)) <= 1).all()) is np.True_


def test_a_calibrated_scorer_that_cannot_be_written_is_told_in_one_line(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    torch.save(step_weights(HIDDEN), tmp_path / "foreign.pt")
    arguments = ["--scorer", str(tmp_path / "foreign.pt"), "--data", str(data), "--out", str(tmp_path)]
    assert calibrate.main(arguments) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"thoughtbeam scorer calibrate: {tmp_path}: cannot be written: ")


def test_a_scorer_is_not_calibrated_on_what_it_was_trained_on(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = trained(data, tmp_path / "s.pt", "--stop-share", "0.1", "--test-share", "0", epochs=1)
    card = read_scorer_file(path).metadata.card
    assert len(card["trained_questions"]) == 36
    assert calibrate.main(["--scorer", str(path), "--data", str(data), "--out", str(path)]) == 0
    # what it was calibrated on is no longer fit to judge it by
    assert len(read_scorer_file(path).metadata.card["used_questions"]) == 40
    assert read_scorer_file(path).metadata.card["trained_questions"] == card["trained_questions"]
