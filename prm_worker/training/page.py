"""The report as one page that needs nothing but itself: tables, plots, and what each of them means."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from prm_worker.training.judging import LEAST_QUESTIONS
from prm_worker.training.plots import Axis, Line, chart

_STYLE = """
:root{color-scheme:light dark;--ink:#1d2129;--faint:#5d6673;--rule:#d7dbe0;--paper:#fff;
--c0:#2463b4;--c1:#c2521c;--c2:#2c8457;--c3:#8a3f9c;--c4:#98741a;--c5:#5d6673}
@media(prefers-color-scheme:dark){:root{--ink:#e4e7eb;--faint:#9aa4b1;--rule:#3a414b;--paper:#16191d;
--c0:#7fb2f0;--c1:#f0935f;--c2:#6fc79a;--c3:#cf94de;--c4:#dcb95a;--c5:#9aa4b1}}
body{font:15px/1.5 system-ui,sans-serif;color:var(--ink);background:var(--paper);max-width:980px;
margin:2rem auto;padding:0 1rem}
h1{font-size:1.5rem}h2{font-size:1.15rem;margin-top:2.2rem}p,li{max-width:72ch}
table{border-collapse:collapse;font-variant-numeric:tabular-nums;margin:.6rem 0}
th,td{padding:.2rem .7rem;text-align:right;border-bottom:1px solid var(--rule)}
th{font-weight:600;vertical-align:bottom}th:first-child,td:first-child{text-align:left}
.scroll{overflow-x:auto}.plots{display:flex;flex-wrap:wrap;gap:1rem}
figure{margin:.5rem 0;flex:1 1 400px;max-width:480px}figcaption{font-weight:600}
svg{width:100%;height:auto}svg text{font-size:11px;fill:var(--faint)}.grid{stroke:var(--rule)}
.line{fill:none;stroke-width:2}.band{stroke:none;opacity:.16}.dash{stroke-dasharray:5 4}
.legend{font-size:.85rem;color:var(--faint);display:flex;flex-wrap:wrap;gap:.2rem 1rem}
.legend i{display:inline-block;width:1.4em;border-top:2px solid;margin-right:.4em;vertical-align:middle}
.legend i.dash{border-top-style:dashed}
""" + "".join(
    f".line.c{n}{{stroke:var(--c{n})}}.band.c{n}{{fill:var(--c{n})}}.legend "
    f".c{n}{{border-color:var(--c{n})}}\n"
    for n in range(6)
)
_CALIBRATION_DEPTHS = (20, 50, 80, 100)
_NOTHING = "–"


def page(report: Mapping[str, Any]) -> str:
    """The page of a report, as `evaluate` writes it to report.json."""
    scorers = report["scorers"]
    parts = [
        "<h1>Scorers judged</h1>",
        _summary(report),
        *_ranking(scorers),
        *_warmup(scorers),
        *_calibration(scorers),
        *_pruning(scorers),
        *_siblings(scorers),
        _origin(report),
    ]
    return (
        '<!doctype html><html lang="en"><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        f"<title>Scorers judged</title><style>{_STYLE}</style><body>{''.join(parts)}</body></html>\n"
    )


def _summary(report: Mapping[str, Any]) -> str:
    data = report["data"]
    lines = [
        f"{data['questions']} questions that no scorer here was trained on, {data['roots']:,} independent "
        f"traces ({data['right_share']:.0%} right) and {data['branches']:,} branches of {data['model']}. A "
        f"trace has {data['median_thoughts']:.0f} thoughts and {data['median_tokens']:.0f} tokens in the "
        "middle."
    ]
    if data["training_questions_unknown"]:
        names = ", ".join(data["training_questions_unknown"])
        lines.append(f"{names}: not known what it was trained on; it may have seen these questions.")
    for scorer in report["scorers"]:
        end, warmup = scorer["by_depth"][-1], scorer["recommended_warmup"]
        said = f"{scorer['name']} ({scorer['kind']}): ranks {_number(end['pairwise'])} of the pairs within "
        said += f"questions at the end of the traces [{_number(end['low'])}, {_number(end['high'])}]; "
        if warmup is None:
            said += (
                "at no depth is it reliably above chance, so it recommends no warm-up and no search with it."
            )
        else:
            said += f"recommended warm-up w = {warmup} tokens."
        lines.append(said)
    lines += [comparison["words"] for comparison in report["comparisons"]]
    return "<ul>" + "".join(f"<li>{escape(line)}</li>" for line in lines) + "</ul>"


def _ranking(scorers: Sequence[Mapping[str, Any]]) -> list[str]:
    lines, over_all = [], []
    for colour, scorer in enumerate(scorers):
        depths = scorer["by_depth"]
        x = [one["percent"] for one in depths]
        lines.append(_pairs_ranked(scorer["name"], x, depths, colour))
        over_all.append(Line(scorer["name"], x, _values(depths, "auroc"), colour=colour))
    chance = Line("chance", [10, 100], [0.5, 0.5], colour=5, dashed=True)
    percent = Axis("share of the trace's thoughts, %", 10, 100)
    rows = [
        [
            scorer["name"],
            f"{one['percent']} %",
            _number(one["pairwise"]),
            f"{_number(one['low'])}–{_number(one['high'])}",
            _number(one["auroc_within"]),
            _number(one["pairwise_by_last_thought"]),
            _number(one["auroc"]),
        ]
        for scorer in scorers
        for one in scorer["by_depth"]
    ]
    header = [
        "scorer",
        "depth",
        "pairs ranked right",
        "95 %",
        "mean AUROC",
        "by last thought",
        "AUROC over all",
    ]
    return [
        "<h2>Ranking by depth</h2>",
        "<p>Of two traces of the same question, one right and one wrong: how often the right one has the "
        "higher mean score, after this share of their thoughts. 0.5 is chance. The band is the 95 % "
        "interval over questions (bootstrap). Over all questions a trained scorer's figure is usually "
        "higher, because it also sees that a question is hard; a search never gains from that.</p>",
        '<div class="plots">',
        chart("Within questions", percent, Axis("pairs ranked right", 0.3, 1.0), [*lines, chance]),
        chart("Over all questions", percent, Axis("AUROC", 0.3, 1.0), [*over_all, chance]),
        "</div>",
        _table(header, rows),
    ]


def _warmup(scorers: Sequence[Mapping[str, Any]]) -> list[str]:
    lines, end = [], 1.0
    for colour, scorer in enumerate(scorers):
        depths = scorer["by_tokens"]
        x = [float(one["tokens"]) for one in depths]
        end = max([end, *x])
        lines.append(_pairs_ranked(scorer["name"], x, depths, colour))
    lines.append(Line("chance", [0, end], [0.5, 0.5], colour=5, dashed=True))
    said = [
        f"{scorer['name']}: "
        f"{'no w' if scorer['recommended_warmup'] is None else scorer['recommended_warmup']}"
        for scorer in scorers
    ]
    return [
        "<h2>From which depth on scores are worth acting on</h2>",
        "<p>The same ranking by depth in tokens, among the traces that have come so far. The recommended "
        "warm-up w is the first depth at which the whole interval is above chance, there and at the next "
        f"depth, and at least {LEAST_QUESTIONS} questions have right and wrong traces. "
        f"{escape('; '.join(said))}.</p>",
        '<div class="plots">',
        chart(
            "Within questions, by tokens",
            Axis("tokens after the prompt", 0, end),
            Axis("pairs ranked right", 0.3, 1.0),
            lines,
        ),
        "</div>",
    ]


def _calibration(scorers: Sequence[Mapping[str, Any]]) -> list[str]:
    parts = [
        "<h2>Calibration by depth</h2>",
        "<p>Traces with similar mean scores: how many of them are right. On the diagonal a score is a "
        "probability, and a sum of scores in a vote an expected number of right traces. The expected "
        "calibration error is the mean distance from the diagonal.</p>",
        '<div class="plots">',
    ]
    for scorer in scorers:
        lines = [Line("score = share", [0, 1], [0, 1], colour=5, dashed=True)]
        for colour, depth in enumerate(_CALIBRATION_DEPTHS):
            (one,) = (one for one in scorer["by_depth"] if one["percent"] == depth)
            bins = one["reliability"]
            lines.append(Line(f"{depth} %", _values(bins, "score"), _values(bins, "right"), colour=colour))
        name = f"{scorer['name']} (calibration: {scorer['calibration']})"
        parts.append(chart(name, Axis("mean score", 0, 1), Axis("share right", 0, 1), lines))
    parts.append("</div>")
    rows = [
        [scorer["name"], kind, *(_number(one[key]) for one in scorer["by_depth"])]
        for scorer in scorers
        for kind, key in (
            ("mean score", "calibration_error"),
            ("last thought", "calibration_error_of_thoughts"),
        )
    ]
    parts.append(
        _table(["calibration error", "of", *(f"{one['percent']} %" for one in scorers[0]["by_depth"])], rows)
    )
    return parts


def _pruning(scorers: Sequence[Mapping[str, Any]]) -> list[str]:
    rows = [
        [
            scorer["name"],
            str(one["tokens"]),
            str(one["k"]),
            f"{one['traces_per_question']:.1f}",
            _percent(one["right"]),
            _percent(one["wrong"]),
            _percent(one["by_chance"]),
        ]
        for scorer in scorers
        for one in scorer["pruned"]
    ]
    header = ["scorer", "w", "K", "of traces", "right ones pruned", "wrong ones pruned", "by lot"]
    return [
        "<h2>What a bottom-K would prune</h2>",
        "<p>The lowest K of the traces of a question that have come to w tokens, by mean score there: the "
        "chance that a right trace is among them, and a wrong one. A useful scorer prunes fewer right ones "
        "than a lot would.</p>",
        _table(header, rows),
    ]


def _siblings(scorers: Sequence[Mapping[str, Any]]) -> list[str]:
    rows = [
        [
            "nothing (roots)" if not one["high"] else f"{one['low']:.0%}–{one['high']:.0%}",
            str(one["pairs"]),
            _number(one["right"]),
            _percent(one["agree"]),
            *(_number(_of(scorer["siblings"], one)["score"]) for scorer in scorers),
        ]
        for one in scorers[0]["siblings"]
    ]
    header = ["share in common", "pairs", "correlation: right", "both right or both wrong"]
    header += [f"scores of {scorer['name']}" for scorer in scorers]
    return [
        "<h2>Siblings</h2>",
        "<p>Pairs of traces of one question by the share of their tokens that they have in common: how "
        "their correctness and their final mean scores correlate. The first row is what the question alone "
        "does. The faster the correlation grows, the more of a trace's fate is decided early, and the "
        "fewer independent votes a tree of branches has.</p>",
        _table(header, rows),
    ]


def _of(siblings: Sequence[Mapping[str, Any]], wanted: Mapping[str, Any]) -> Mapping[str, Any]:
    return next(one for one in siblings if (one["low"], one["high"]) == (wanted["low"], wanted["high"]))


def _origin(report: Mapping[str, Any]) -> str:
    data, machine = report["data"], report["machine"]
    rows = [
        ["model", f"{data['model']}, fingerprint {data['model_fingerprint']}"],
        ["boundary rule", data["boundary_rule"]],
        ["sampling", ", ".join(f"{name} {value:g}" for name, value in data["sampling"].items())],
        ["data", ", ".join(data["directories"])],
        ["left out", f"{data['questions_left_out']} questions that a scorer was trained on"],
        ["measured", report["measured"]],
        ["with", ", ".join(f"{name} {value}" for name, value in machine.items())],
    ]
    return "<h2>Where this comes from</h2>" + _table(["", ""], rows)


def _table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    head = "".join(f"<th>{escape(one)}</th>" for one in header)
    body = "".join(
        "<tr>" + "".join(f"<td>{escape(str(cell))}</td>" for cell in row) + "</tr>" for row in rows
    )
    return f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'


def _pairs_ranked(name: str, x: Sequence[float], depths: Sequence[Mapping[str, Any]], colour: int) -> Line:
    """The ranking within questions, with its interval."""
    pairwise, low, high = (_values(depths, key) for key in ("pairwise", "low", "high"))
    return Line(name, x, pairwise, low, high, colour)


def _values(items: Sequence[Mapping[str, Any]], name: str) -> list[float]:
    return [math.nan if one[name] is None else float(one[name]) for one in items]


def _number(value: float | None) -> str:
    return _NOTHING if value is None else f"{value:.3f}"


def _percent(value: float | None) -> str:
    return _NOTHING if value is None else f"{value:.1%}"
