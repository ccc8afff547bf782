"""Shows a job in a notebook: its state, its vertices, the durations of its checkpoints. No script runs there."""

from __future__ import annotations

from html import escape

from penstock.monitoring.report import CheckpointReport, JobReport

_BARS_MAX = 60
_HEIGHT, _WIDTH = 60, 8


def job_html(report: JobReport, dashboard: str | None) -> str:
    """Return HTML that shows a job as it is now.

    Args:
        report: Of the job.
        dashboard: The address of its dashboard, which the text links to; None: it has none any more.
    """
    link = "" if dashboard is None else f' (<a href="{escape(dashboard)}" target="_blank">dashboard</a>)'
    head = (
        f"<p><b>{escape(report.job_name)}</b>: {escape(report.state)}, {report.completed} checkpoints, "
        f"{report.failed} failed, {report.restarts} restarts{link}</p>"
    )
    return f"<div>{head}{_vertices(report)}{_checkpoints(report.checkpoints)}</div>"


def _vertices(report: JobReport) -> str:
    names = ("vertex", "slots", "rows in", "rows out", "rows/s", "busy", "backpressured")
    head = "".join(f"<th>{name}</th>" for name in names)
    rows = "".join(
        f'<tr><td style="text-align:left">{escape(v.name)}</td><td>{v.parallelism}</td><td>{v.rows_in:,}</td>'
        f"<td>{v.rows_out:,}</td><td>{max(v.rows_in_per_s, v.rows_out_per_s):,.0f}</td>"
        f"<td>{100 * v.busy_share:.0f} %</td><td>{100 * v.backpressured_share:.0f} %</td></tr>"
        for v in report.vertices
    )
    return f"<table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>"


def _checkpoints(checkpoints: tuple[CheckpointReport, ...]) -> str:
    shown = [c for c in checkpoints if c.duration_ms is not None][-_BARS_MAX:]
    if not shown:
        return ""
    longest = max(max(c.duration_ms or 0.0 for c in shown), 1.0)
    bars = "".join(_bar(checkpoint, place, longest) for place, checkpoint in enumerate(shown))
    size = f'width="{_WIDTH * len(shown)}" height="{_HEIGHT}"'
    return f'<p>Durations of checkpoints, at most {longest:,.0f} ms</p><svg role="img" {size}>{bars}</svg>'


def _bar(checkpoint: CheckpointReport, place: int, longest_ms: float) -> str:
    took_ms = checkpoint.duration_ms or 0.0
    height = max(2, round(_HEIGHT * took_ms / longest_ms))
    colour = "#b3261e" if checkpoint.status == "failed" else "#0f8a6c"
    where = f'x="{_WIDTH * place}" y="{_HEIGHT - height}" width="{_WIDTH - 2}" height="{height}"'
    return (
        f'<rect {where} fill="{colour}"><title>checkpoint {checkpoint.checkpoint_id}: {took_ms:.0f} ms</title></rect>'
    )
