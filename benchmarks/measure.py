"""Says what a measure is: a figure, what it is held against, and its bounds.

A figure is found by case, field and side; a ratio is ours over theirs. `must` and `aim` bound the ratio where there is
one, else our value itself.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

OURS = "ours"
FLINK = "Flink"
SPARK = "Structured Streaming"
PYFLINK = ("PyFlink, process", "PyFlink, thread")

MEMORY_SECONDS = 660

Result = Mapping[str, Any]
Results = Mapping[str, Mapping[str, Sequence[Result]]]
"""case -> side -> one result per round"""

Bound = Callable[["Figures"], float | None]


@dataclass(frozen=True)
class Figures:
    """Medians over rounds."""

    results: Results

    def of(self, case: str, field: str, side: str = OURS) -> float | None:
        found = [r[field] for r in self.results.get(case, {}).get(side, []) if r.get(field) is not None]
        return statistics.median(found) if found else None

    def best(self, case: str, field: str, sides: Sequence[str]) -> tuple[str, float] | None:
        """The side with the greatest figure."""
        found = [(side, value) for side in sides if (value := self.of(case, field, side)) is not None]
        return max(found, key=lambda pair: pair[1], default=None)

    def growth(self, case: str, process: str) -> float | None:
        """Resident memory at the end against that after a minute; of several slots the worst."""
        worst = None
        for result in self.results.get(case, {}).get(OURS, []):
            early, late = (result.get(f"{process}_rss_bytes_{when}") for when in ("1min", "end"))
            if not early or not late:
                continue
            pairs = zip(early, late, strict=False) if isinstance(early, list) else [(early, late)]
            for before, after in pairs:
                if before and after:
                    worst = max(worst or 0.0, after / before)
        return worst


@dataclass(frozen=True)
class Row:
    """A line of the table. `met`: of the must; None where there is none, or nothing to judge."""

    measure: str
    ours: str
    beside: str
    ratio: float | None
    must: str
    aim: str
    met: bool | None


@dataclass(frozen=True)
class Measure:
    """`sides`: the peers, of which the one with the greatest figure counts; or `beside`: a case of ours. `growth`: the
    process whose memory is meant, in place of a field. `bound_by`: a must that another figure gives."""

    title: str
    case: str
    field: str
    unit: str = ""
    must: float | None = None
    aim: float | None = None
    better: Literal["less", "more"] = "less"
    sides: tuple[str, ...] = ()
    beside: str | None = None
    beside_field: str | None = None
    beside_name: str = ""
    growth: str | None = None
    bound_by: Bound | None = None

    def row(self, figures: Figures) -> Row | None:
        """None where it was not measured."""
        ours = figures.growth(self.case, self.growth) if self.growth else figures.of(self.case, self.field)
        if ours is None:
            return None
        name, theirs = self._beside(figures)
        is_ratio = bool(self.sides or self.beside)
        ratio = ours / theirs if theirs else None
        must = self.bound_by(figures) if self.bound_by else self.must
        judged = ratio if is_ratio else ours
        met = None if must is None or judged is None else self._within(judged, must)
        beside = "" if theirs is None else f"{shown(theirs, self.unit)} ({name})"
        unit = "×" if is_ratio else self.unit
        must_text, aim_text = self._bound(must, unit), self._bound(self.aim, unit)
        return Row(self.title, shown(ours, self.unit), beside, ratio, must_text, aim_text, met)

    def _beside(self, figures: Figures) -> tuple[str, float | None]:
        if self.beside is not None:
            return self.beside_name, figures.of(self.beside, self.beside_field or self.field)
        return figures.best(self.case, self.field, self.sides) or ("", None)

    def _within(self, value: float, bound: float) -> bool:
        return value <= bound if self.better == "less" else value >= bound

    def _bound(self, bound: float | None, unit: str) -> str:
        if bound is None:
            return ""
        return f"{'≤' if self.better == 'less' else '≥'} {shown(bound, unit)}"


def shown(value: float, unit: str = "") -> str:
    return f"{value:,.0f}{unit}" if abs(value) >= 100 else f"{value:.3g}{unit}"


def one_record_longer(record_ms: float) -> Bound:
    """An unaligned checkpoint may wait for one record, and no more."""

    def bound(figures: Figures) -> float | None:
        asleep = figures.of("unaligned", "duration_ms_p50")
        return None if asleep is None else asleep + record_ms

    return bound


def exact(case: str, title: str) -> Measure:
    return Measure(f"{title}: results are exact (1 = yes)", case, "exact", must=1, better="more")
