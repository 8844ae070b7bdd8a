"""The simulator: the same for the same seed, its books balance, and it behaves as theory says."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from statistics import fmean

import pytest

from bench import report
from bench.report import quantile
from bench.simulate import main, p97_ratio, summary
from bench.simulation.host import Ended, Request, Simulation
from bench.simulation.scales import Row, Scale, poisson, simulate, tiny
from bench.simulation.world import Lengths
from decoder_worker.engine.scripted import StepTime
from decoder_worker.policies import POLICIES
from decoder_worker.policies.parameters import Limits
from decoder_worker.policies.registry import make_policy

RATE = 0.5  # requests per second: about what the engine can serve


def small(**engine: object) -> Scale:
    scale = tiny(seed=3)
    return replace(scale, engine=replace(scale.engine, **engine))  # type: ignore[arg-type]


def runs(scale: Scale, policy: str, requests: int = 6, rate: float = RATE) -> list[Ended]:
    return simulate(scale, policy, 1.0, rate, requests).runs


# ---- determinism

_PRINT = (
    "from bench.simulation.scales import simulate, tiny\n"
    "for policy in ('gambit', 'slim_sc', 'deepconf'):\n"
    "    print(simulate(tiny(3), policy, 1.0, 0.5, 2))\n"
)


def test_a_run_is_the_same_in_every_process() -> None:
    def printed(hash_seed: str) -> str:
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
        command = [sys.executable, "-c", _PRINT]
        return subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stdout

    first = printed("1")
    assert first.count("Ended(") == 6
    assert printed("2") == first


def test_another_seed_is_another_run() -> None:
    assert runs(tiny(3), "vanilla") != runs(tiny(4), "vanilla")


# ---- accounting


@pytest.mark.parametrize("policy", POLICIES)
def test_the_books_of_every_policy_balance_and_it_acts(policy: str) -> None:
    requests = poisson(12, RATE, 3)
    simulation = small().simulation(policy, requests)
    ended = simulation.run()

    assert sorted(run.tree_id for run in ended) == sorted(request.tree_id for request in requests)
    for run in ended:
        begun = run.roots + run.branches
        # deepconf begins N traces only where its warm-up does not end in a consensus
        never_begun = 24 - run.roots if policy == "deepconf" else 0
        assert begun + never_begun == run.finished + run.pruned + run.stopped
        assert run.finished
        assert run.arrival <= run.began < run.ended
        assert run.answer is not None
    assert simulation.engine.resident() == []
    assert simulation.engine.kv_use == 0.0
    assert simulation.now == max(run.ended for run in ended)
    assert ended == sorted(ended, key=lambda run: run.ended)

    row = Row(policy, 1.0, simulation.now, simulation.preemptions, ended)
    assert summary(row)["acted"]
    assert sum(run.right for run in ended) >= 4  # a guess would be right in one of seven


def test_the_table_marks_a_policy_that_did_nothing() -> None:
    ample = small(kv_blocks=1 << 16)
    row = simulate(ample, "step", 1.0, RATE, 4)
    assert not summary(row)["acted"]


def test_the_command_writes_a_table_and_what_it_hangs_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(report, "RESULTS", tmp_path)
    asked = ["--quick", "--requests", "2", "--policies", "vanilla", "step", "--kv-blocks", "4096"]
    monkeypatch.setattr(sys, "argv", ["simulate", *asked])
    main()
    written = json.loads((tmp_path / "simulate-quick.json").read_text())
    assert [row["policy"] for row in written["rows"]] == ["vanilla", "step"]
    assert written["engine"]["kv_blocks"] == 4096
    assert written["capacity"] > 0
    table = (tmp_path / "simulate-quick.md").read_text()
    assert "did not act" in table
    assert table in capsys.readouterr().out


def test_a_row_adds_up() -> None:
    row = simulate(small(), "gambit", 0.5, RATE, 8)
    found = summary(row)
    assert found["requests"] == 8
    assert found["generated"] == fmean(run.generated for run in row.runs)
    traces = sum(run.roots + run.branches for run in row.runs)
    assert found["unique"] == pytest.approx(sum(run.generated for run in row.runs) / traces)
    assert found["traces_per_second"] == pytest.approx(sum(run.finished for run in row.runs) / row.seconds)
    latencies = [run.ended - run.arrival for run in row.runs]
    assert found["latency"]["p99"] == quantile(latencies, 0.99)  # type: ignore[index]


# ---- load and memory


def test_requests_queue_at_high_load_and_not_at_low() -> None:
    def queued(rate: float) -> float:
        return fmean(run.queued for run in runs(small(), "self_consistency", 12, rate))

    low, full, high = queued(0.05), queued(0.5), queued(2.0)
    assert low < 0.01
    assert low <= full < high
    assert high > 2.0


def test_a_request_waits_for_one_slot_and_not_for_all_of_them() -> None:
    """SART's order of service: a new request is taken as soon as a slot is free and no trace is pending."""
    scale = small(slots=36, kv_blocks=4096)
    first, second = sorted(runs(scale, "self_consistency", 2, 1e6), key=lambda run: run.began)
    assert first.queued < 0.01
    assert first.began < second.began < first.ended


@pytest.mark.parametrize(("policy", "gives_back"), [("gambit", "evictions"), ("step", "pruned")])
def test_more_kv_never_means_more_evictions(policy: str, gives_back: str) -> None:
    def given_back(kv_blocks: int) -> int:
        return sum(getattr(run, gives_back) for run in runs(small(kv_blocks=kv_blocks), policy, 10, 1.0))

    found = [given_back(kv_blocks) for kv_blocks in (400, 800, 1600, 1 << 16)]
    assert found == sorted(found, reverse=True)
    assert found[0] > 0
    assert found[-1] == 0


def test_more_kv_never_means_more_preemptions() -> None:
    def preempted(kv_blocks: int) -> int:
        return simulate(small(kv_blocks=kv_blocks), "self_consistency", 1.0, 1.0, 6).preemptions

    found = [preempted(kv_blocks) for kv_blocks in (400, 800, 1600, 1 << 16)]
    assert found == sorted(found, reverse=True)
    assert found[0] > 0
    assert found[-1] == 0


# ---- relations


def test_sart_without_pruning_and_with_all_completions_is_self_consistency() -> None:
    scale = small(slots=256, kv_blocks=1 << 14)
    all_of_them = replace(scale, overrides={"sart_no_prune": {"M": 24}})
    independent = {run.tree_id: run for run in runs(scale, "self_consistency")}
    for run in runs(all_of_them, "sart_no_prune"):
        twin = independent[run.tree_id]
        assert (run.finished, run.generated) == (twin.finished, twin.generated)
        assert run.ended == pytest.approx(twin.ended, abs=0.05)  # it waits for its last scores


@pytest.mark.parametrize("n", [4, 8, 16])
def test_the_mth_of_n_completes_as_order_statistics_say(n: int) -> None:
    """SART's formula: P(M-th of N completes within L) = Σ_{i=M..N} C(N, i) F(L)^i (1 - F(L))^(N - i)."""
    m, requests = n // 2, 400
    lengths = Lengths(median=60.0, sigma=0.4)
    scale = small(slots=n, kv_blocks=1 << 12, step_time=StepTime(1.0, 0.0, 0.0))
    world = replace(scale.world, lengths=lengths, thought=20)
    policy = lambda: make_policy("sart_no_prune", "tiny", {"N": n, "M": m}, Limits(64, 1900))  # noqa: E731
    apart = [Request(f"question {i}", 10_000.0 * i) for i in range(requests)]
    ended = Simulation(world, scale.engine, policy, apart, trace_limit=1900, score_delay=0.0).run()

    steps = sorted(round(run.latency) for run in ended)
    assert all(run.finished >= m for run in ended)
    # Kolmogorov and Smirnov: farther than this off once in a thousand times
    assert _distance(steps, lengths, m, n) < 1.95 / math.sqrt(requests)
    assert _distance(steps, lengths, m + 1, n) > 1.95 / math.sqrt(requests)  # and the test can tell


def _distance(steps: Sequence[int], lengths: Lengths, m: int, n: int) -> float:
    """Largest difference between the share of steps within L and what the formula says."""

    def formula(length: int) -> float:
        f = lengths.within(length)
        return sum(math.comb(n, i) * f**i * (1 - f) ** (n - i) for i in range(m, n + 1))

    def share(length: int) -> float:
        return sum(1 for s in steps if s <= length) / len(steps)

    return max(abs(share(length) - formula(length)) for length in range(15, 200))


def test_rebase_decodes_as_many_tokens_as_independent_traces() -> None:
    """Being stopped at every boundary makes no trace longer."""
    scale = small(slots=256, kv_blocks=1 << 14)
    independent = fmean(run.generated for run in runs(scale, "self_consistency", 16))
    held = fmean(run.generated for run in runs(scale, "rebase", 16))
    assert held == pytest.approx(independent, rel=0.15)


def test_an_overload_is_borne_by_sart_and_not_by_independent_traces() -> None:
    """SART's claim: at 1.2 times what self-consistency can serve, its own latency grows without end."""
    scale = replace(tiny(seed=3), overrides={name: {"N": 8} for name in ("self_consistency", "sart")})
    rate = 1.2 * replace(scale, requests=40).capacity()
    rows = [summary(simulate(scale, name, 1.2, rate, 300)) for name in ("self_consistency", "sart")]
    assert p97_ratio(rows) > 5
    assert p97_ratio([{**row, "load": 0.1} for row in reversed(rows)]) == p97_ratio(rows)
