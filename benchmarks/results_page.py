"""RESULTS.md and its chart: ten of the figures, in words for somebody who wants to know what to expect. They are made
of the table in HISTORY.md whenever a run renews it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Literal

from measure import Row
from results import COLUMNS, HERE, HISTORY, RESULTS, Cells, Table, insert

Better = Literal["less", "more"]

CHART = "results.svg"
LABEL_PX, AXIS_PX, ROW_PX, TOP_PX = 330, 420, 26, 30


@dataclass(frozen=True)
class Headline:
    """A row of the page. `measure` names the row of the table in HISTORY.md, `says` tells it in the user's words."""

    measure: str
    says: str
    better: Better


HEADLINES = (
    Headline("pressure, unaligned: duration p50", "Unaligned checkpoint under backpressure", "less"),
    Headline("pressure, aligned: duration p50", "Aligned checkpoint under backpressure", "less"),
    Headline("pressure, unaligned: persisted p50", "In-flight data that such a checkpoint stores", "less"),
    Headline("savepoint under pressure: duration p50", "Savepoint under backpressure", "less"),
    Headline("reduce, columnar, rows/s, against Structured Streaming", "Sum per key, columns, rows/s", "more"),
    Headline("window, columnar, rows/s, against Structured Streaming", "Windows, columns, rows/s", "more"),
    Headline("map and reduce in Python, rows/s", "Python function and sum per key, rows/s", "more"),
    Headline(
        "read-modify-write of 1 M keys on RocksDB, value state in Python, rows/s",
        "Python state in RocksDB, rows/s",
        "more",
    ),
    Headline(
        "topic → columnar count per key and second → topic, 10 M records, beside Flink, rows/s",
        "Kafka to Kafka, exactly once, rows/s",
        "more",
    ),
    Headline("SIGKILL of a slot → first new row, p50", "SIGKILL of a process to the first new row", "less"),
)

PAGE = """\
# Results

On the same work, in one run by turns, with the defaults of both sides: how much better than the peer Penstock is.

![{alt}]({chart})

| | Penstock | peer | times better | date |
|---|---|---|---|---|
{rows}

- The peers are Apache Flink, PyFlink and Spark Structured Streaming; [peers/](peers/README.md) has the workloads, one
  command each.
- The machine had 2 cores, shared with others: ratios hold, absolute figures of one day mean nothing on another.
- A checkpoint's duration is from the trigger to the last acknowledgement, as both coordinators see it.
- All figures, each with its bound that was fixed before it was measured, its revision and the runs behind it, are in
  [HISTORY.md](HISTORY.md); also those that miss their bound. `make bench` measures again, and renews both pages.
"""


def write(measured: Sequence[Row], section: str, when: str, revision: str) -> None:
    """Renews both pages, and the chart."""
    table = Table.of(HISTORY.read_text(encoding="utf-8")).renewed(measured, when, revision)
    HISTORY.write_text(insert(str(table), section), encoding="utf-8")
    RESULTS.write_text(page(table.rows), encoding="utf-8")
    (HERE / CHART).write_text(chart(table.rows), encoding="utf-8")


def number(cell: str) -> float:
    """Return the number that a cell begins with."""
    return float(cell.split()[0].replace(",", ""))


def times_better(ours: str, peer: str, better: Better) -> float | None:
    """Return the advantage over the peer as a factor: 2 is twice as good, 0.5 half as good. None without a peer."""
    if peer == "-":
        return None
    factor = number(ours) / number(peer)
    return factor if better == "more" else 1 / factor


def page(table: Mapping[str, Cells]) -> str:
    """Return RESULTS.md. Raises KeyError for a headline whose measure the table lacks."""
    rows = []
    for headline in HEADLINES:
        row = dict(zip(COLUMNS, table[headline.measure], strict=True))
        factor = times_better(row["ours"], row["peer"], headline.better)
        cells = (headline.says, row["ours"], row["peer"], "-" if factor is None else f"{_shown(factor)} ×", row["date"])
        rows.append("| " + " | ".join(cells) + " |")
    alt = "; ".join(f"{says}: {_shown(factor)} times" for says, _, factor in _bars(table))
    return PAGE.format(alt=f"How many times better than the peer. {alt}", chart=CHART, rows="\n".join(rows))


def chart(table: Mapping[str, Cells]) -> str:
    """Return the chart as SVG: a bar per headline that has a peer, on a logarithmic axis that begins at the peer."""
    bars = _bars(table)
    decades = max(1, math.ceil(math.log10(max(factor for _, _, factor in bars))))
    height = TOP_PX + ROW_PX * len(bars) + 10
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {LABEL_PX + AXIS_PX + 110} {height}" role="img" '
        'font-family="system-ui, sans-serif" font-size="12" fill="#6b7280">',
        "<title>How many times better than the peer</title>",
    ]
    for decade in range(decades + 1):
        x = LABEL_PX + AXIS_PX * decade / decades
        lines.append(f'<path d="M{x:.0f} {TOP_PX - 8}V{height - 8}" stroke="#6b7280" stroke-opacity="0.3"/>')
        said = "the peer" if decade == 0 else f"{10**decade:,} ×"
        lines.append(f'<text x="{x:.0f}" y="{TOP_PX - 14}" text-anchor="middle">{said}</text>')
    for number_of_row, (says, peer, factor) in enumerate(bars):
        y = TOP_PX + ROW_PX * number_of_row
        end = LABEL_PX + AXIS_PX * math.log10(factor) / decades
        start, width = min(LABEL_PX, end), abs(end - LABEL_PX)
        lines += [
            f'<text x="{LABEL_PX - 10}" y="{y + 13}" text-anchor="end">{escape(says)}</text>',
            f'<rect x="{start:.1f}" y="{y + 2}" width="{width:.1f}" height="15" rx="2" fill="#2a78d6"/>',
            f'<text x="{max(LABEL_PX, end) + 6:.1f}" y="{y + 13}">{_shown(factor)} × {escape(peer)}</text>',
        ]
    return "\n".join([*lines, "</svg>"]) + "\n"


def _bars(table: Mapping[str, Cells]) -> list[tuple[str, str, float]]:
    """Return text, peer and factor of the headlines that have a peer."""
    bars = []
    for headline in HEADLINES:
        row = dict(zip(COLUMNS, table[headline.measure], strict=True))
        if (factor := times_better(row["ours"], row["peer"], headline.better)) is not None:
            peer = row["peer"].partition("(")[2].rstrip(")").partition(",")[0]
            bars.append((headline.says, peer, factor))
    return bars


def _shown(factor: float) -> str:
    return f"{factor:,.0f}" if factor >= 10 else f"{factor:.2g}"
