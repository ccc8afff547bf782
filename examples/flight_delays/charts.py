"""Charts as SVG text, for a report that is one file and needs nothing from outside."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

WIDTH, HEIGHT = 860, 300
LEFT, RIGHT, TOP, BOTTOM = 96, 16, 16, 40
# Okabe and Ito's colours, which colour-blind readers can tell apart; shapes say the same a second time.
COLOURS = ("#d55e00", "#e69f00", "#0072b2", "#009e73")
INK, GRID = "#6b7280", "#9ca3af55"


@dataclass(frozen=True)
class Series:
    """Points are (seconds, value); on a logarithmic axis values below 1 are drawn at 1. `marks` are moments worth a
    vertical line (seconds, label)."""

    name: str
    points: Sequence[tuple[float, float]]
    marks: Sequence[tuple[float, str]] = ()


@dataclass(frozen=True)
class Axis:
    low: float
    high: float
    logarithmic: bool
    start: float
    end: float

    def place(self, value: float) -> float:
        if self.logarithmic:
            share = (math.log10(max(value, 1)) - math.log10(self.low)) / (math.log10(self.high) - math.log10(self.low))
        else:
            share = (value - self.low) / (self.high - self.low)
        return self.start + share * (self.end - self.start)

    def ticks(self) -> list[float]:
        if self.logarithmic:
            return [10.0**e for e in range(round(math.log10(self.low)), round(math.log10(self.high)) + 1)]
        step = nice_step((self.high - self.low) / 6)
        return [self.low + step * i for i in range(int((self.high - self.low) / step + 1e-9) + 1)]


def nice_step(rough: float) -> float:
    """1, 2 or 5 times a power of ten, not below `rough`."""
    power = 10.0 ** math.floor(math.log10(rough))
    return next(power * m for m in (1, 2, 5, 10) if power * m >= rough * 0.999)


def value_axis(series: Sequence[Series], logarithmic: bool) -> Axis:
    highest = max((value for s in series for _, value in s.points), default=1.0)
    if logarithmic:
        high = 10.0 ** max(1, math.ceil(math.log10(max(highest, 1.0)) - 1e-9))
        return Axis(1.0, high, True, HEIGHT - BOTTOM, TOP)
    step = nice_step(max(highest, 1e-9) / 4)
    return Axis(0.0, math.ceil(max(highest, 1e-9) / step) * step, False, HEIGHT - BOTTOM, TOP)


def time_axis(series: Sequence[Series]) -> Axis:
    last = max((t for s in series for t, _ in s.points), default=1.0)
    return Axis(0.0, max(last, 1.0) * 1.02, False, LEFT, WIDTH - RIGHT)


def marker(shape: int, x: float, y: float, colour: str) -> str:
    if shape == 0:
        return f'<rect x="{x - 3.5:.1f}" y="{y - 3.5:.1f}" width="7" height="7" fill="{colour}"/>'
    if shape == 1:
        return f'<path d="M{x:.1f} {y - 4.5:.1f}l4.5 8h-9z" fill="{colour}"/>'
    if shape == 2:
        return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3.5" fill="{colour}"/>'
    return f'<path d="M{x:.1f} {y - 4.5:.1f}l4.5 4.5l-4.5 4.5l-4.5 -4.5z" fill="{colour}"/>'


def label(number: float, unit: str) -> str:
    if unit == "bytes":
        for suffix in ("B", "KB", "MB"):
            if number < 1000:
                return f"{number:g} {suffix}"
            number /= 1000
        return f"{number:g} GB"
    if unit == "ms" and number >= 1000:
        return f"{number / 1000:g} s"
    return f"{number:g} {unit}".strip()


def chart(title: str, series: Sequence[Series], unit: str, logarithmic: bool = False) -> str:
    """An `<svg>` element that stands alone, too. `unit` ("ms", "bytes", "rows/s", …) labels the value axis."""
    across, up = time_axis(series), value_axis(series, logarithmic)
    legend_height = 22
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT + legend_height}" role="img" '
        f'aria-label="{escape(title, quote=True)}" font-family="system-ui, sans-serif" font-size="12" fill="{INK}">',
        f"<title>{escape(title)}</title>",
    ]
    for tick in up.ticks():
        y = up.place(tick)
        parts.append(f'<line x1="{LEFT}" y1="{y:.1f}" x2="{WIDTH - RIGHT}" y2="{y:.1f}" stroke="{GRID}"/>')
        parts.append(f'<text x="{LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{label(tick, unit)}</text>')
    for tick in across.ticks():
        x = across.place(tick)
        parts.append(f'<line x1="{x:.1f}" y1="{TOP}" x2="{x:.1f}" y2="{HEIGHT - BOTTOM}" stroke="{GRID}"/>')
        parts.append(f'<text x="{x:.1f}" y="{HEIGHT - BOTTOM + 18}" text-anchor="middle">{tick:g} s</text>')
    for number, one in enumerate(series):
        colour = COLOURS[number % len(COLOURS)]
        places = [(across.place(t), up.place(v)) for t, v in one.points]
        if len(places) > 1:
            line = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
            parts.append(f'<polyline points="{line}" fill="none" stroke="{colour}" stroke-width="1.2" opacity="0.55"/>')
        parts += [marker(number % 4, x, y, colour) for x, y in places]
        for moment, text in one.marks:
            x = across.place(moment)
            parts.append(
                f'<line x1="{x:.1f}" y1="{TOP}" x2="{x:.1f}" y2="{HEIGHT - BOTTOM}" stroke="{colour}" '
                f'stroke-dasharray="4 3"/><text x="{x + 4:.1f}" y="{TOP + 10}" fill="{colour}">{escape(text)}</text>'
            )
    parts.append(legend(series, HEIGHT + 8))
    return "".join(parts) + "</svg>"


def legend(series: Sequence[Series], y: float) -> str:
    parts, x = [], float(LEFT)
    for number, one in enumerate(series):
        parts.append(marker(number % 4, x + 4, y, COLOURS[number % len(COLOURS)]))
        parts.append(f'<text x="{x + 14:.0f}" y="{y + 4:.0f}">{escape(one.name)}</text>')
        x += 34 + 7.0 * len(one.name)
    return "".join(parts)
