"""Every benchmark that needs no vLLM runs, in its quick mode, and finds what it looks for."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from bench.report import RESULTS

ROOT = Path(__file__).parents[3]


def quick(name: str) -> Any:
    """What `python -m bench.<name> --quick` writes."""
    command = [sys.executable, "-m", f"bench.{name}", "--quick"]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout + run.stderr
    path = RESULTS / f"{name}-quick.json"
    result = json.loads(path.read_text())
    table = path.with_suffix(".md").read_text()
    path.unlink()
    path.with_suffix(".md").unlink()
    assert table.strip() in run.stdout
    assert result["machine"]["cores"] >= 1
    return result


def test_the_store_is_measured() -> None:
    result = quick("store")
    for memory in result["memory"]:
        assert memory["per_token"] > 4  # a token's id alone
        assert memory["per_node"] > 100
        assert sum(memory["by_kind"].values()) == pytest.approx(memory["total"], rel=0.35)
    for timed in result["times"]:
        assert 0 < timed["p50"] <= timed["p99"], timed
    # CPU time comes in ticks, which a single quick call may not fill
    assert sum(timed["server"] for timed in result["times"]) > 0


def test_the_worker_is_measured() -> None:
    result = quick("worker")
    (memory,) = result["memory"]
    assert memory["per_token"] > 4
    assert memory["per_trace"] > 100
    assert {decision["policy"] for decision in result["decisions"]} == {
        *("vanilla", "self_consistency", "best_of_n", "gambit")
    }


def test_a_step_is_measured_part_by_part() -> None:
    result = quick("step")
    (profile,) = result["profiles"]
    assert profile["total"] > 0
    # every boundary is scored, and the parts are all of the time
    assert profile["per_step"]["boundaries scored"] > 0
    assert profile["per_step"]["writes"] > 0
    assert abs(sum(profile["parts"].values()) - profile["total"]) < 1
    for part in ("tap: vLLM's outputs read", "store: the call (redis-py)", "policy: decisions"):
        assert profile["parts"][part] > 0
    assert all(cost > 0 for cost in result["hooks_us"].values())


def test_scorers_are_measured_alone_and_over_grpc() -> None:
    result = quick("scorers")
    measured = {timed["what"] for timed in result["times_ms"]}
    for what in ("mlp", "sequence, float16 cache", "sequence, full, from boundary rows"):
        assert what in measured
    assert any(what.startswith("call, sequence, all histories") for what in measured)
    for timed in result["times_ms"]:
        assert 0 < timed["least"] <= timed["median"], timed


def test_what_a_slow_scorer_costs_is_measured() -> None:
    found = {(w["policy"], w["delay"]): w for w in quick("waiting")["searches"]}
    assert all(w["tokens"] > 0 and w["rows"] > 0 for w in found.values())
    # it decodes while scores are under way
    assert found["gambit", 0.2]["waited"] == 0
    assert found["gambit", 0.2]["tokens"] == found["gambit", 0.0]["tokens"]
    # where the policy itself waits for scores, that is seen
    assert found["rebase", 0.2]["share"] > 0.05
