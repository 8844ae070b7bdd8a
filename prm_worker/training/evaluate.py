"""`python -m prm_worker.training.evaluate`: judges scorers on questions that they were not trained on."""

from __future__ import annotations

import argparse
import json
import math
import os
import platform
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from prm_worker.scorer_file import Metadata, ScorerFileError, read_scorer_file
from prm_worker.scorers.calibration import calibrated
from prm_worker.training.comparing import compare
from prm_worker.training.data import check_classes, check_origin, questions_of, without_questions
from prm_worker.training.judging import (
    Depth,
    Judged,
    Pruned,
    Siblings,
    TokenDepth,
    by_depth,
    by_tokens,
    pruned,
    recommended_warmup,
    siblings,
    token_depths,
)
from prm_worker.training.networks import network_of
from prm_worker.training.options import BAD_INPUT, FAILED, command, prepare
from prm_worker.training.page import page
from thoughtbeam.runtime.arguments import whole
from thoughtbeam.runtime.scorer_dataset import DatasetError
from thoughtbeam.runtime.scorer_dataset_reader import Array, Traces, read_traces
from thoughtbeam.runtime.scorers import CONFIDENCE, CONFIDENCE_TOKENS

FORMAT = 1

_DESCRIPTION = (
    "Judges scorers on collected traces of questions that they were not trained on, and writes "
    "DIR/report.json and DIR/report.html: ranking by depth, calibration, what a search would prune wrongly, "
    "and from which depth on scores are worth acting on. Several scorers are judged on the same traces and "
    "compared."
)


@dataclass(frozen=True, slots=True, eq=False)
class Verdict:
    """All that is found about one scorer. warmup: the recommended w in tokens, None for none."""

    name: str
    metadata: Metadata
    by_depth: Sequence[Depth]
    by_tokens: Sequence[TokenDepth]
    warmup: int | None
    pruned: Sequence[Pruned]
    siblings: Sequence[Siblings]


def parser() -> argparse.ArgumentParser:
    parser = command("evaluate", _DESCRIPTION)
    add = parser.add_argument
    add(
        "--scorer",
        required=True,
        nargs="+",
        metavar="FILE",
        help=f"scorer files (.pt); the word {CONFIDENCE} stands for that scorer, which needs no file",
    )
    add("--out", required=True, type=Path, metavar="DIR", help="directory of the report")
    add("--prune", type=whole(1), nargs="+", default=[1, 2, 4], metavar="K", help="default 1 2 4")
    add(
        "--at",
        type=whole(1),
        nargs="+",
        metavar="TOKENS",
        help="depths w at which a bottom-K is tried (default: a few over the length of the traces)",
    )
    return parser


def evaluate(options: argparse.Namespace, device: torch.device) -> tuple[dict[str, Any], str]:
    """The report as JSON and as a page. Raises DatasetError, ScorerFileError."""
    began = time.monotonic()
    traces = read_traces(options.data)
    files = {
        name: None if given == CONFIDENCE else read_scorer_file(Path(given))
        for given, name in names(options.scorer).items()
    }
    metadata = {
        name: Metadata(CONFIDENCE, traces.origin.hidden_size) if stored is None else stored.metadata
        for name, stored in files.items()
    }
    for name, own in metadata.items():
        check_origin(name, own, traces)
    used = {key for own in metadata.values() for key in own.card.get("used_questions", ())}
    which = without_questions(traces, sorted(used))
    check_classes(traces, which, "evaluation")
    is_root = traces.parent[which] < 0
    verdicts = []
    for name, stored in files.items():
        if stored is None:
            scores = [confidence_scores(traces.confidences[traces.paths[trace]]) for trace in which]
        else:
            logits = network_of(stored, device).logits(traces, which)
            scores = [calibrated(torch.from_numpy(one), stored.metadata.calibration) for one in logits]
        roots = [one for one, root in zip(scores, is_root, strict=True) if root]
        judged = Judged.of(traces, which[is_root], roots)
        depths = by_tokens(judged)
        at = options.at or token_depths(judged)[1::4]
        verdicts.append(
            Verdict(
                name=name,
                metadata=metadata[name],
                by_depth=by_depth(judged),
                by_tokens=depths,
                warmup=recommended_warmup(depths),
                pruned=list(pruned(judged, options.prune, at)),
                siblings=siblings(traces, which, scores),
            )
        )
    comparisons = compare([(one.name, one.metadata.kind, one.by_depth) for one in verdicts])
    report = {
        "format": FORMAT,
        "measured": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "machine": machine(traces.origin.engine_version),
        "data": _data(options, traces, which, is_root, metadata),
        "scorers": [as_json(one) for one in verdicts],
        "comparisons": [
            {"first": one.first, "second": one.second, "words": one.words} for one in comparisons
        ],
        "seconds": round(time.monotonic() - began, 1),
    }
    return _plain(report), page(_plain(report))


def names(scorers: Sequence[str]) -> dict[str, str]:
    """What each scorer is called in the report, by what was given: a file by its name, with as many of the
    folders above it as tell it from the others. One that is given twice is there once."""
    parts: dict[tuple[str, ...], str] = {}
    for given in scorers:
        # not resolved: a link goes by its own name
        path = (given,) if given == CONFIDENCE else Path(os.path.abspath(given)).parts
        parts.setdefault(path, given)
    found = {}
    for path, given in parts.items():
        ends = (end for end in range(1, len(path) + 2) if _alike(path, parts, end) == 1)
        found[given] = str(Path(*path[-next(ends) :]))
    return found


def _alike(path: tuple[str, ...], paths: Iterable[tuple[str, ...]], end: int) -> int:
    """How many of the paths have the same last parts, so many of them."""
    return sum(other[-end:] == path[-end:] for other in paths)


def confidence_scores(confidences: Array) -> Array:
    """The scorer `confidence`: 1 - ln k / c of each thought, in [0, 1); 0 where c is not known."""
    with np.errstate(divide="ignore", invalid="ignore"):
        scores = 1 - math.log(CONFIDENCE_TOKENS) / confidences.astype(np.float64)
    found: Array = np.nan_to_num(np.clip(scores, 0.0, 1.0), nan=0.0).astype(np.float32)
    return found


def _data(
    options: argparse.Namespace,
    traces: Traces,
    which: Array,
    is_root: Array,
    metadata: Mapping[str, Metadata],
) -> dict[str, Any]:
    unknown = [
        name
        for name, own in metadata.items()
        if own.kind != CONFIDENCE and "trained_questions" not in own.card
    ]
    return {
        "directories": [path.resolve().name for path in options.data],
        "model": traces.origin.model,
        "model_fingerprint": traces.origin.fingerprint,
        "boundary_rule": traces.origin.boundary_rule,
        "sampling": dict(traces.origin.sampling),
        "questions": len(questions_of(traces, which)),
        "questions_left_out": len(traces.questions) - len(questions_of(traces, which)),
        "roots": int(is_root.sum()),
        "branches": int((~is_root).sum()),
        "right_share": float(traces.right[which[is_root]].mean()),
        "median_tokens": float(np.median(traces.tokens[which[is_root]])),
        "median_thoughts": float(np.median([len(traces.paths[trace]) for trace in which[is_root]])),
        "training_questions_unknown": unknown,
    }


def as_json(verdict: Verdict) -> dict[str, Any]:
    """A verdict in plain values."""
    own = verdict.metadata
    return {
        "name": verdict.name,
        "kind": own.kind,
        "calibration": own.calibration.get("kind", "none"),
        "trained_on": own.card.get("data", {}),
        "by_depth": [
            {
                "percent": one.percent,
                "auroc": one.auroc,
                "pairwise": one.pairwise,
                "low": one.within.low,
                "high": one.within.high,
                "auroc_within": one.within.mean,
                "pairwise_by_last_thought": one.last_pairwise,
                "calibration_error": one.ece,
                "calibration_error_of_thoughts": one.thought_ece,
                "reliability": [
                    {"score": part.score, "right": part.share, "traces": part.traces} for part in one.bins
                ],
            }
            for one in verdict.by_depth
        ],
        "by_tokens": [
            {
                "tokens": one.tokens,
                "traces": one.traces,
                "questions": one.questions,
                "pairwise": one.within.pairwise,
                "low": one.within.low,
                "high": one.within.high,
            }
            for one in verdict.by_tokens
        ],
        "recommended_warmup": verdict.warmup,
        "pruned": [_fields(one) for one in verdict.pruned],
        "siblings": [_fields(one) for one in verdict.siblings],
    }


def machine(engine_version: str) -> dict[str, Any]:
    """Where and with what the report was made."""
    return {
        "cpu": _cpu_name(),
        "system": f"{platform.system()} {platform.release()}",
        "cores": len(os.sched_getaffinity(0)),
        "python": platform.python_version(),
        "torch": str(torch.__version__),
        "numpy": np.__version__,
        "engine": engine_version,
    }


def _cpu_name() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def _fields(one: Any) -> dict[str, Any]:
    return {name: getattr(one, name) for name in one.__dataclass_fields__}


def _plain(value: Any) -> Any:
    """With null for what is no number, and six digits of the others."""
    if isinstance(value, Mapping):
        return {key: _plain(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    if isinstance(value, float | np.floating):
        return round(float(value), 6) if math.isfinite(value) else None
    return value


def main(arguments: Sequence[str] | None = None) -> int:
    """Returns the exit status."""
    options = parser().parse_args(arguments)
    try:
        report, html = evaluate(options, prepare(options))
        options.out.mkdir(parents=True, exist_ok=True)
        (options.out / "report.json").write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
        (options.out / "report.html").write_text(html, encoding="utf-8")
    except (DatasetError, ScorerFileError, ValueError) as error:
        print(f"thoughtbeam scorer evaluate: {error}", file=sys.stderr)
        return BAD_INPUT
    except OSError as error:
        print(f"thoughtbeam scorer evaluate: {error}", file=sys.stderr)
        return FAILED
    for scorer in report["scorers"]:
        warmup = scorer["recommended_warmup"]
        said = "no depth is reliably above chance" if warmup is None else f"w = {warmup} tokens"
        print(f"{scorer['name']}: {said}")
    for comparison in report["comparisons"]:
        print(comparison["words"])
    print(f"wrote {options.out / 'report.html'} and report.json")
    return 0


if __name__ == "__main__":
    sys.exit(main())
