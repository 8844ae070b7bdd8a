"""Line charts as SVG text: small, without a script, readable on light and dark pages."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape

WIDTH, HEIGHT = 460, 280
_LEFT, _RIGHT, _TOP, _BOTTOM = 46, 12, 10, 40
_Place = Callable[[float, float], tuple[float, float]]  # from values to the picture

COLOURS = 6  # the page's style has so many


@dataclass(frozen=True, slots=True)
class Line:
    """A line, with a band around it where low and high are given. NaN: a gap. dashed: for what is no
    result."""

    name: str
    x: Sequence[float]
    y: Sequence[float]
    low: Sequence[float] = ()
    high: Sequence[float] = ()
    colour: int = 0
    dashed: bool = False


@dataclass(frozen=True, slots=True)
class Axis:
    """What is on an axis, and from where to where."""

    label: str
    start: float
    end: float

    def ticks(self) -> list[float]:
        """About five round numbers."""
        step = 10 ** math.floor(math.log10((self.end - self.start) / 4))
        step *= next(factor for factor in (1, 2, 5, 10) if (self.end - self.start) / (step * factor) <= 7)
        first = math.ceil(self.start / step - 1e-9)
        last = math.floor(self.end / step + 1e-9)
        return [number * step for number in range(first, last + 1)]


def chart(title: str, x: Axis, y: Axis, lines: Sequence[Line]) -> str:
    """One chart with a legend below it, as an HTML figure."""

    def at(px: float, py: float) -> tuple[float, float]:
        across = (px - x.start) / (x.end - x.start) * (WIDTH - _LEFT - _RIGHT)
        down = (y.end - min(max(py, y.start), y.end)) / (y.end - y.start) * (HEIGHT - _TOP - _BOTTOM)
        return _LEFT + across, _TOP + down

    parts = [*_grid(x, y, at)]
    for line in lines:
        parts += _drawn(line, at)
    legend = "".join(f'<span><i class="{_class(line)}"></i>{escape(line.name)}</span>' for line in lines)
    return (
        f'<figure><figcaption>{escape(title)}</figcaption><svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" '
        f'aria-label="{escape(title)}">{"".join(parts)}</svg><div class="legend">{legend}</div></figure>'
    )


def _grid(x: Axis, y: Axis, at: _Place) -> list[str]:
    parts = []
    for tick in x.ticks():
        px, _ = at(tick, y.start)
        parts.append(f'<line class="grid" x1="{px:.1f}" x2="{px:.1f}" y1="{_TOP}" y2="{HEIGHT - _BOTTOM}"/>')
        parts.append(f'<text x="{px:.1f}" y="{HEIGHT - _BOTTOM + 14}" text-anchor="middle">{tick:g}</text>')
    for tick in y.ticks():
        _, py = at(x.start, tick)
        parts.append(f'<line class="grid" x1="{_LEFT}" x2="{WIDTH - _RIGHT}" y1="{py:.1f}" y2="{py:.1f}"/>')
        parts.append(f'<text x="{_LEFT - 6}" y="{py + 4:.1f}" text-anchor="end">{round(tick, 6):g}</text>')
    middle = (_LEFT + WIDTH - _RIGHT) / 2
    parts.append(f'<text x="{middle:.0f}" y="{HEIGHT - 6}" text-anchor="middle">{escape(x.label)}</text>')
    half = (_TOP + HEIGHT - _BOTTOM) / 2
    parts.append(
        f'<text text-anchor="middle" transform="translate(12 {half:.0f}) rotate(-90)">'
        f"{escape(y.label)}</text>"
    )
    return parts


def _drawn(line: Line, at: _Place) -> list[str]:
    parts = []
    for run in _runs(line):
        if line.low:
            edge = [at(line.x[index], line.high[index]) for index in run]
            edge += [at(line.x[index], line.low[index]) for index in reversed(run)]
            parts.append(f'<polygon class="band {_class(line)}" points="{_points(edge)}"/>')
        path = _points([at(line.x[index], line.y[index]) for index in run])
        parts.append(f'<polyline class="line {_class(line)}" points="{path}"/>')
    return parts


def _class(line: Line) -> str:
    return f"c{line.colour % COLOURS}" + (" dash" if line.dashed else "")


def _runs(line: Line) -> list[list[int]]:
    """Stretches without a gap."""
    runs: list[list[int]] = [[]]
    for index, value in enumerate(line.y):
        if math.isnan(value):
            runs.append([])
        else:
            runs[-1].append(index)
    return [run for run in runs if run]


def _points(points: Sequence[tuple[float, float]]) -> str:
    return " ".join(f"{px:.1f},{py:.1f}" for px, py in points)
