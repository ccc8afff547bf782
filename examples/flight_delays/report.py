"""The demo's two reports: `report.json` for programs, `report.html` for people (one file, nothing from outside)."""

from __future__ import annotations

import json
from datetime import datetime
from html import escape
from pathlib import Path
from typing import Any

from rich.table import Table

from charts import Series, chart
from live_view import human_bytes, human_ms
from recording import Recording

STYLE = """
:root { color-scheme: light dark; }
body { font: 15px/1.5 system-ui, sans-serif; max-width: 900px; margin: 2rem auto; padding: 0 1rem; }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
th, td { text-align: right; padding: .3rem .6rem; border-bottom: 1px solid #9ca3af55; }
th:first-child, td:first-child { text-align: left; }
td, th { white-space: nowrap; }
h2 { margin-top: 2.2rem; font-size: 1.1rem; }
p.note { color: #6b7280; }
.bad { color: #dc2626; font-weight: 600; }
"""


def cells_of(run: dict[str, Any]) -> list[str]:
    """One run as the row of a table, in the order of `HEADINGS`."""
    failed = f" ({run['checkpoints_failed']} failed)" if run["checkpoints_failed"] else ""
    return [
        run["name"],
        f"{run['checkpoints_completed']}{failed}",
        human_ms(run["duration_ms_p50"]),
        human_ms(run["duration_ms_p90"]),
        "–" if run["inflight_bytes_p50"] is None else human_bytes(run["inflight_bytes_p50"]),
        str(run["restarts"]),
        human_ms(run["recovery_ms"]),
        f"{run['rows']:,}",
        f"{run['seconds']:.0f} s",
        "yes" if run["exact"] else "NO",
    ]


HEADINGS = ("run", "checkpoints", "p50", "p90", "in flight p50", "restarts", "recovery", "rows", "time", "exact")


def terminal_table(runs: list[dict[str, Any]]) -> Table:
    table = Table(title="the same rows each time", title_justify="left")
    for heading in HEADINGS:
        table.add_column(heading, justify="left" if heading == "run" else "right")
    for run in runs:
        table.add_row(*cells_of(run), style=None if run["exact"] else "bold red")
    return table


def duration_chart(recordings: list[Recording]) -> str:
    series = [
        Series(
            r.plan.name,
            [(r.seconds_of(c), c.duration_ms) for c in r.completed if c.duration_ms is not None],
            [((r.killed_wall_ms - r.started_wall_ms) / 1000, "SIGKILL")] if r.killed_wall_ms else [],
        )
        for r in recordings
    ]
    return chart("duration of each checkpoint", series, "ms", logarithmic=True)


def inflight_chart(recordings: list[Recording]) -> str:
    series = [Series(r.plan.name, [(r.seconds_of(c), c.inflight_bytes) for c in r.completed]) for r in recordings]
    return chart("in-flight data in each checkpoint", series, "bytes")


def throughput_chart(recordings: list[Recording]) -> str:
    series = [Series(r.plan.name, thinned(r.throughput)) for r in recordings]
    return chart("rows reaching the slow operator", series, "rows/s")


def thinned(points: list[tuple[float, float]], most: int = 80) -> list[tuple[float, float]]:
    step = max(1, -(-len(points) // most))
    return points[::step]


def write_json(path: Path, runs: list[dict[str, Any]], about: dict[str, Any]) -> None:
    path.write_text(json.dumps({**about, "runs": runs}, indent=2) + "\n", encoding="utf-8")


def html_row(run: dict[str, Any]) -> str:
    cells = "".join(f"<td>{escape(cell)}</td>" for cell in cells_of(run))
    return f"<tr{'' if run['exact'] else ' class=bad'}>{cells}</tr>"


def drained(run: dict[str, Any]) -> str:
    """Describe a run that was restored at another parallelism: what was in flight before it went first."""
    if not run["layers_drained"]:
        return ""
    return f"; drained {run['layers_drained']} layers of recovered rows in {human_ms(run['draining_ms'])}"


def write_html(path: Path, runs: list[dict[str, Any]], recordings: list[Recording], about: dict[str, Any]) -> None:
    header = "".join(f"<th>{escape(h)}</th>" for h in HEADINGS)
    rows = "".join(html_row(run) for run in runs)
    modes = "".join(f"<li><b>{escape(run['name'])}</b>: {escape(run['mode'] + drained(run))}</li>" for run in runs)
    facts = ", ".join(f"{escape(str(k))} {escape(str(v))}" for k, v in about.items())
    path.write_text(
        f"""<!doctype html>
<html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>Penstock: an overload, four times</title><style>{STYLE}</style>
<h1>An overload, four times</h1>
<p>The flights of 2013 run through an operator that is slower than their source, so every queue between the two is
full all the time. A checkpoint that waits for the queues takes as long as they are; one that stores what is in them
does not. The results of each run were compared with the same statistics computed by Spark in one batch.</p>
<ul>{modes}</ul>
<table><tr>{header}</tr>{rows}</table>
<h2>How long each checkpoint took</h2><p class="note">From trigger to last acknowledgement; logarithmic.</p>
{duration_chart(recordings)}
<h2>What was in flight in it</h2><p class="note">Bytes of queued rows that the checkpoint holds.</p>
{inflight_chart(recordings)}
<h2>Rows per second at the slow operator</h2>
{throughput_chart(recordings)}
<p class="note">{facts}; written {datetime.now().astimezone().isoformat(timespec="seconds")}</p>
</html>
""",
        encoding="utf-8",
    )
