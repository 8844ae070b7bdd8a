"""`python -m bench.scorer_kinds`: gambit against step, with every kind of scorer, on the same hard questions.

Each kind scores the same model's traces: `mlp` and `sequence` from a prm worker with the bundled scorers,
`confidence` in the decoder worker, `process_reward` from a small text model that reads the traces, which is
first trained for some minutes. A question that lost scores, because they took too long, ended in an unscored
vote. Written to bench/results/scorer_kinds.{json,md}.
"""

from __future__ import annotations

import argparse
import asyncio
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from bench import report, rows
from bench.asking import Question, load, parameters
from bench.compare import Scene, measure
from bench.service import service
from thoughtbeam.models import BUNDLED_MODEL

POLICIES = ("gambit", "step")
SCENE = Scene("hard", 24, 850)
SLOTS = 64  # half of what bench.compare has: a text model beside the engine has to keep up


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of scorer, and what it is served from. asked: what a request says."""

    name: str
    scorer: Path | None = None
    process_reward: Path | None = None
    asked: str = ""


HEADER = [
    "scorer",
    "policy",
    rows.ACCURACY,
    "finished traces that are right",
    "generated tokens per question",
    "inference P50 / P97, s",
    rows.ACTIONS,
    "questions that lost scores",
]


def line(row: Mapping[str, object]) -> list[str]:
    """The table's row."""
    return [
        f"`{row['scorer']}`",
        f"`{row['policy']}`",
        rows.accuracy(row),
        rows.share(row["finished_right"]),
        rows.thousands(row["generated"]),
        rows.times(row, "inference", 50, 97),
        rows.actions(row),
        str(row["degraded"]),
    ]


def trained(folder: Path, minutes: float) -> Path:
    """A text model, in a process of its own: nothing of its training is left beside the engines."""
    command = [sys.executable, "-m", "bench.tiny_reasoner.process_reward"]
    subprocess.run([*command, "--minutes", str(minutes), "--out", str(folder)], check=True)
    return folder


def measured(kind: Kind, questions: Sequence[Question]) -> Iterator[dict[str, object]]:
    """A row for each policy."""
    with service(
        slots=SLOTS, kv_blocks=SCENE.kv_blocks, scorer=kind.scorer, process_reward=kind.process_reward
    ) as endpoint:
        for policy in POLICIES:
            values = parameters(policy, SCENE.size, {})
            row, _ = asyncio.run(measure(endpoint, SCENE, questions, policy, values, scorer=kind.asked))
            yield {"scorer": kind.name, **row}


def main() -> None:
    options = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = options.add_argument
    add("--mlp", type=Path, default=BUNDLED_MODEL / "scorer.pt", metavar="FILE")
    add("--sequence", type=Path, default=BUNDLED_MODEL / "scorer_sequence.pt", metavar="FILE")
    add("--process-reward", type=Path, metavar="DIR", help="a text model (default: one is trained first)")
    add("--minutes", type=float, default=6.0, help="of that training")
    add("--questions", type=int, default=60, help="of the hard split")
    add("--name", default="scorer_kinds", help="of the result files")
    add("--quick", action="store_true", help="a small run that only shows that it works")
    args = options.parse_args()
    if args.quick:
        args.questions, args.minutes, args.name = 2, 0.1, "scorer_kinds-quick"

    questions, found = load(SCENE.split, args.questions), list[dict[str, object]]()
    with tempfile.TemporaryDirectory() as folder:
        text_model = args.process_reward or trained(Path(folder), args.minutes)
        for kind in (
            Kind("mlp", scorer=args.mlp),
            Kind("sequence", scorer=args.sequence),
            Kind("confidence", scorer=args.mlp, asked="confidence"),
            Kind("process_reward", process_reward=text_model),
        ):
            for row in measured(kind, questions):
                found.append(row)
                print(" | ".join(line(row)), flush=True)
                # after each row: of a long run nothing is lost
                table = report.markdown(HEADER, [line(one) for one in found])
                path = report.save(args.name, {"slots": SLOTS, "rows": found}, table)
    print(f"\n{table}\n\nwritten to {path}")


if __name__ == "__main__":
    main()
