"""`python -m bench.compare`: every policy on the same questions, model, scorer and judge, end to end.

For each scene (a split of the tiny reasoner's questions, N = C, and a KV cache that so many traces fill) it
starts the embedded default and asks every question once per policy. Accuracy with its 95 % (Wilson) interval,
the share of finished traces that are right, tokens, latency, and what the policy did go to
bench/results/compare.{json,md}, single questions to compare.csv. A policy that did nothing where its
definition acts is marked; such a row is no result. It takes hours: --resume goes on where an interrupted run
has ended.
"""

from __future__ import annotations

import argparse
import asyncio
import csv
import itertools
import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from io import StringIO

from bench import report, rows
from bench.asking import Question, Run, Value, ask, load, parameters
from bench.service import service
from decoder_worker.policies import POLICIES
from thoughtbeam import AsyncClient


@dataclass(frozen=True, slots=True)
class Scene:
    """A split and the traces per question. kv_blocks: of the engine, so few that as many independent traces
    as it has slots run short of memory, which is what step is about."""

    split: str
    size: int
    kv_blocks: int


SCENES = (
    Scene("easy", 24, 800),
    Scene("medium", 24, 1250),
    Scene("hard", 24, 1700),
    Scene("hard2", 24, 1800),
    Scene("hard2", 64, 1800),
)
SLOTS = 128


async def measure(
    endpoint: str,
    scene: Scene,
    questions: Sequence[Question],
    policy: str,
    values: Mapping[str, Value],
    *,
    scorer: str = "",
) -> tuple[dict[str, object], Sequence[Run]]:
    """All questions at once: the service queues what it has no room for. The row's numbers, and its runs."""
    began = time.perf_counter()
    async with AsyncClient(endpoint) as client:
        runs = await asyncio.gather(*(ask(client, q, policy, values, scorer=scorer) for q in questions))
    wall = time.perf_counter() - began
    finished = rows.total(runs, "finished")
    return {
        **asdict(scene),
        **rows.summary(policy, runs, wall),
        "parameters": dict(values),
        "finished_right": rows.total(runs, "finished_right") / finished if finished else None,
        "rounds": rows.total(runs, "rounds") / len(runs),
        "degraded": sum(run.degraded for run in runs),
        "wall": wall,
        "measured": report.now(),
    }, runs


HEADER = [
    "questions",
    "N",
    "policy",
    rows.ACCURACY,
    "finished traces that are right",
    "generated tokens per question",
    "unique tokens per trace",
    "inference P50 / P97, s",
    "completed traces/s",
    rows.ACTIONS,
]


def line(row: Mapping[str, object]) -> list[str]:
    """The table's row. Without the time in the queue: all questions are asked at once."""
    return [
        str(row["split"]),
        str(row["size"] if row["parameters"] else 1),
        f"`{row['policy']}`",
        rows.accuracy(row),
        rows.share(row["finished_right"]),
        rows.thousands(row["generated"]),
        f"{row['unique']:.0f}",
        rows.times(row, "inference", 50, 97),
        f"{row['traces_per_second']:.1f}",
        rows.actions(row),
    ]


def overview(found: Sequence[Mapping[str, object]]) -> str:
    """A line for each policy, a column for each scene: the share of right answers, its interval, and the
    generated tokens per question."""
    cells = {(row["policy"], row["split"], row["size"]): rows.short(row) for row in found}
    scenes = list(dict.fromkeys(key[1:] for key in cells))
    lines = [
        [f"`{policy}`", *(cells.get((policy, *scene), "–") for scene in scenes)]
        for policy in dict.fromkeys(key[0] for key in cells)
    ]
    return report.markdown(["policy", *(f"{split}, N = {size}" for split, size in scenes)], lines)


def _key(row: Mapping[str, object]) -> tuple[str, str, str]:
    """What a row, or a single run in the CSV, belongs to."""
    return str(row["split"]), str(row["size"]), str(row["policy"])


class Results:
    """The result files NAME.{json,md,csv}, written anew after each row: of a long run nothing is lost."""

    def __init__(self, name: str, *, resume: bool) -> None:
        self.name = name
        self.rows: list[dict[str, object]] = []
        self._runs: list[dict[str, object]] = []
        if resume and (path := report.RESULTS / f"{name}.json").exists():
            self.rows = json.loads(path.read_text())["rows"]
            complete = set(map(_key, self.rows))
            with path.with_suffix(".csv").open(newline="") as file:
                self._runs = [run for run in csv.DictReader(file) if _key(run) in complete]

    def has(self, scene: Scene, policy: str, values: Mapping[str, Value], questions: int) -> bool:
        """Whether the row is there. Raises SystemExit for one with other parameters or other questions."""
        for row in self.rows:
            if _key(row) == (scene.split, str(scene.size), policy):
                if (row["parameters"], row["requests"]) != (values, questions):
                    raise SystemExit(
                        f"--name: {self.name} has {policy} on {scene.split} with N = {scene.size} from "
                        f"{row['requests']} questions and parameters {row['parameters']}: take another name"
                    )
                return True
        return False

    def add(self, row: dict[str, object], runs: Sequence[Run]) -> None:
        """One more row."""
        self.rows.append(row)
        self._runs += [
            {"split": row["split"], "size": row["size"], "policy": row["policy"], **asdict(r)} for r in runs
        ]
        text = StringIO()
        writer = csv.DictWriter(text, list(self._runs[-1]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(self._runs)
        # the rows last: what --resume finds in them is complete
        report.replace(report.RESULTS / f"{self.name}.csv", text.getvalue())
        report.save(self.name, {"slots": SLOTS, "rows": self.rows}, self.table())

    def table(self) -> str:
        """In Markdown: a column for each scene; then every row with all its numbers."""
        return f"{overview(self.rows)}\n\n{report.markdown(HEADER, [line(row) for row in self.rows])}"


def compare(
    scenes: Sequence[Scene],
    policies: Sequence[str],
    questions: int,
    overrides: Mapping[str, Value],
    results: Results,
    endpoint: str,
) -> None:
    """Every policy in every scene that has no row yet. questions: of each split, at most."""
    asked = {scene: load(scene.split, questions) for scene in scenes}
    missing: dict[Scene, dict[str, dict[str, Value]]] = {}
    for scene, policy in itertools.product(scenes, policies):
        values = parameters(policy, scene.size, overrides)
        if not results.has(scene, policy, values, len(asked[scene])):
            missing.setdefault(scene, {})[policy] = values
    for scene, wanted in missing.items():
        with service(endpoint, slots=SLOTS, kv_blocks=scene.kv_blocks) as there:
            for policy, values in wanted.items():
                row, runs = asyncio.run(measure(there, scene, asked[scene], policy, values))
                results.add(row, runs)
                print(" | ".join(line(row)), flush=True)


def override(text: str) -> tuple[str, Value]:
    """NAME=VALUE, where a value that is not JSON is a word: N=8, vote=decorrelated."""
    name, _, value = text.partition("=")
    try:
        return name, json.loads(value)
    except json.JSONDecodeError:
        return name, value


def main() -> None:
    options = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    options.add_argument(
        "--endpoint", default="", help="a running service (default: starts the embedded one)"
    )
    names = [f"{scene.split}:{scene.size}" for scene in SCENES]
    options.add_argument(
        "--scenes", nargs="+", choices=names, default=names, metavar="SPLIT:N", help=", ".join(names)
    )
    options.add_argument(
        "--policies", nargs="+", choices=list(POLICIES), default=list(POLICIES), metavar="POLICY"
    )
    options.add_argument("--questions", type=int, default=60, help="per split, at most 60")
    options.add_argument("--set", nargs="*", default=[], metavar="NAME=VALUE", help="overrides of parameters")
    options.add_argument("--name", default="compare", help="of the result files")
    options.add_argument("--resume", action="store_true", help="keep the rows that the result files have")
    options.add_argument("--quick", action="store_true", help="a small run that only shows that it works")
    args = options.parse_args()

    scenes = [scene for scene, name in zip(SCENES, names, strict=True) if name in args.scenes]
    if args.quick:
        scenes, args.questions, args.name = [Scene("medium", 8, 0)], 2, "compare-quick"
    overrides = dict(map(override, args.set))
    results = Results(args.name, resume=args.resume)
    compare(scenes, args.policies, args.questions, overrides, results, args.endpoint)
    print(f"\n{results.table()}\n\nwritten to {report.RESULTS / args.name}.json")


if __name__ == "__main__":
    main()
