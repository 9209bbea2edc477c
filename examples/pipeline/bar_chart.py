"""`bar_chart`: stacked bars over time as SVG. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from html import escape
from typing import Final

_WIDTH: Final = 900
_HEIGHT: Final = 300
_LEFT, _TOP, _BOTTOM, _RIGHT = 60, 50, 40, 10
_COLORS: Final = ("#3465a4", "#f57900", "#73d216", "#75507b")


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """A vertical line at a time, with a label."""

    at_ms: int
    label: str


def bar_chart(
    title: str,
    series: Mapping[str, Mapping[int, int]],
    *,
    step_ms: int,
    marks: Sequence[Mark] = (),
) -> str:
    """Return a chart: `series` are numbers by the start of each bar, in ms since 1970."""
    starts = sorted({start for values in series.values() for start in values})
    if not starts:
        return ""
    first, last = starts[0], starts[-1] + step_ms
    highest = max(sum(values.get(start, 0) for values in series.values()) for start in starts)
    plot = _Plot(first_ms=first, last_ms=last, highest=nice_maximum(highest))
    parts = [f'<text x="{_LEFT}" y="18" class="title">{escape(title)}</text>', *plot.grid()]
    for start in starts:
        below = 0
        for (name, values), color in zip(series.items(), _COLORS, strict=False):
            number = values.get(start, 0)
            parts.append(plot.bar(start, step_ms, below, number, color, name))
            below += number
    for mark in marks:
        parts += plot.mark(mark)
    for number, name in enumerate(series):
        x = _LEFT + 100 * number
        parts.append(f'<rect x="{x}" y="28" width="10" height="10" fill="{_COLORS[number]}"/>')
        parts.append(f'<text x="{x + 15}" y="37">{escape(name)}</text>')
    body = "\n".join(parts)
    return f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img">\n{body}\n</svg>'


def nice_maximum(highest: int) -> int:
    """Return the end of an axis that contains a number.

    >>> [nice_maximum(number) for number in (0, 3, 10, 11, 1234)]
    [5, 5, 10, 20, 2000]
    """
    size = 1
    while True:
        for factor in (5, 10, 20):
            if highest <= factor * size:
                return factor * size
        size *= 10


@dataclass(frozen=True, slots=True, kw_only=True)
class _Plot:
    """The position of times and numbers in the picture."""

    first_ms: int
    last_ms: int
    highest: int

    def x(self, at_ms: int) -> float:
        width = _WIDTH - _LEFT - _RIGHT
        return _LEFT + width * (at_ms - self.first_ms) / (self.last_ms - self.first_ms)

    def y(self, number: int) -> float:
        return _HEIGHT - _BOTTOM - (_HEIGHT - _TOP - _BOTTOM) * number / self.highest

    def bar(self, start: int, step_ms: int, below: int, number: int, color: str, name: str) -> str:
        x, width = self.x(start), self.x(start + step_ms) - self.x(start)
        top, height = self.y(below + number), self.y(below) - self.y(below + number)
        label = f"{_time_of(start)} {escape(name)}: {number:,}"
        return (
            f'<rect x="{x:.1f}" y="{top:.1f}" width="{width - 1:.1f}" height="{height:.1f}"'
            f' fill="{color}"><title>{label}</title></rect>'
        )

    def grid(self) -> list[str]:
        parts = []
        for part in range(6):
            number = self.highest * part // 5
            y = self.y(number)
            parts.append(
                f'<line x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{y:.1f}" y2="{y:.1f}"'
                ' class="grid"/>'
            )
            parts.append(
                f'<text x="{_LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{number:,}</text>'
            )
        for part in range(7):
            at_ms = self.first_ms + (self.last_ms - self.first_ms) * part // 6
            anchor = "end" if part == 6 else "middle" if part else "start"
            parts.append(
                f'<text x="{self.x(at_ms):.1f}" y="{_HEIGHT - _BOTTOM + 18}"'
                f' text-anchor="{anchor}">{_time_of(at_ms)}</text>'
            )
        return parts

    def mark(self, mark: Mark) -> list[str]:
        x = self.x(mark.at_ms)
        # The label is above the bars, and on the side of the line with more space.
        anchor, offset = ("start", 4) if x < _WIDTH / 2 else ("end", -4)
        return [
            f'<line x1="{x:.1f}" x2="{x:.1f}" y1="28" y2="{_HEIGHT - _BOTTOM}" class="mark"/>',
            f'<text x="{x + offset:.1f}" y="37" text-anchor="{anchor}" class="mark">'
            f"{escape(mark.label)}</text>",
        ]


def _time_of(at_ms: int) -> str:
    return datetime.fromtimestamp(at_ms / 1000, UTC).strftime("%H:%M")
