"""Shows a running job in a terminal: why a checkpoint was slow, and a live table of its vertices."""

from __future__ import annotations

import json
import sys
import time
from typing import Any

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from penstock.cli.checkpoint_tables import format_bytes, format_seconds
from penstock.cli.control import ControlFailed, asked
from penstock.rest.job_registry import RunningJob
from penstock.rest.rest_client import DriverUnreachable, RequestFailed, RestClient

_RENEW_S = 1.0


def print_why(job: RunningJob, checkpoint: int | None, as_json: bool) -> None:
    """Print the reasons why a job, or one of its checkpoints, is slow, the most important first.

    Args:
        job: A running one.
        checkpoint: The id of a checkpoint; None: whatever is wrong now.
        as_json: Print the driver's answer as it is.

    Raises:
        ControlFailed: The driver does not answer, or does not remember the checkpoint.
    """
    query = "" if checkpoint is None else f"?checkpoint={checkpoint}"
    answer = asked(lambda: RestClient(job).get(f"/diagnosis{query}"))
    if as_json:
        print(json.dumps(answer, indent=2))
        return
    findings = answer["findings"]
    if not findings:
        what = "job" if checkpoint is None else f"checkpoint {checkpoint} of job"
        print(f"Nothing slows {what} {job.job_id} ({job.job_name}) down.")
    for finding in findings:
        print(f"{finding['text']}.")
        if finding["advice"]:
            print(f"    {finding['advice']}.")


def show_top(job: RunningJob, once: bool) -> None:
    """Show a job's vertices and checkpoints, each second, until the job ends or the user interrupts.

    Args:
        job: A running one.
        once: Print one picture, and end. So it is where nobody looks at a terminal.

    Raises:
        ControlFailed: The driver did not answer the first time.
    """
    client, console = RestClient(job), Console(highlight=False, markup=False)
    summary = asked(lambda: client.get("/summary"))
    if once or not sys.stdout.isatty():
        Console(highlight=False, markup=False, width=160).print(_screen(summary))
        return
    with Live(_screen(summary), console=console, screen=True, auto_refresh=False) as live:
        try:
            while True:
                time.sleep(_RENEW_S)
                live.update(_screen(client.get("/summary")), refresh=True)
        except KeyboardInterrupt:  # the user has seen enough
            return
        except (DriverUnreachable, RequestFailed) as error:
            raise ControlFailed(f"{error}; it may have ended: its own terminal says how") from None


def _screen(summary: dict[str, Any]) -> Group:
    job, checkpoints = summary["job"], summary["checkpoints"]
    counts, last = checkpoints["counts"], checkpoints["latest"]["completed"]
    newest = "none yet"
    if last is not None:
        kind = "unaligned" if last["unaligned_checkpoint"] else "aligned"
        age = format_seconds(max(0.0, (job["now"] - last["trigger_timestamp"]) / 1000))
        newest = f"{last['id']} ({kind}) took {last['end_to_end_duration']} ms, {age} ago"
    head = Text(
        f"{job['name']}  {job['state']}  for {format_seconds(job['duration'] / 1000)}  restarts {job['restarts']}\n"
    )
    head.append(
        f"checkpoints: {counts['completed']} completed, {counts['failed']} failed, "
        f"{counts['in_progress']} in progress; newest {newest}\n"
    )
    columns = (
        "vertex",
        "slots",
        "busy",
        "backpressured",
        "rows/s in",
        "rows/s out",
        "queued",
        "behind",
        "watermark (UTC)",
    )
    table = Table(*columns, box=None)
    for vertex, pressure in zip(job["vertices"], summary["pressure"]):
        table.add_row(
            Text(vertex["name"]),
            str(vertex["parallelism"]),
            _bar(pressure["busy"], "red"),
            _bar(pressure["backpressured"], "magenta"),
            f"{pressure['rows-in-per-second']:,.0f}",
            f"{pressure['rows-out-per-second']:,.0f}",
            format_bytes(pressure["queued-bytes"]),
            "" if pressure["lag-rows"] is None else f"{pressure['lag-rows']:,} rows",
            _utc(pressure["watermark"]),
        )
    findings = Text("\n")
    for finding in summary["findings"]:
        findings.append(f"{finding['text']}.\n", "bold")
        if finding["advice"]:
            findings.append(f"    {finding['advice']}.\n")
    return Group(head, table, findings)


def _bar(share: float, colour: str) -> Text:
    filled = round(10 * min(1.0, share))
    return Text.assemble((("█" * filled), colour), "░" * (10 - filled), f" {100 * share:3.0f} %")


def _utc(watermark_ms: int | None) -> str:
    if watermark_ms is None:
        return ""
    try:
        return time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(watermark_ms / 1000))
    except (OverflowError, ValueError, OSError):
        return "at its end"
