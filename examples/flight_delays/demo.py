"""The story of an overload, on real data: one job, four ways to take its checkpoints, one of them under SIGKILL.

Run by `make demo`. Exits with 1 if any result differs from Spark's batch, 130 on Ctrl-C.
"""

from __future__ import annotations

import argparse
import os
import platform
import shutil
import signal
import sys
import time
from pathlib import Path
from typing import Any

import pyspark
from pyspark.sql import SparkSession
from rich.console import Console

import job
import penstock
from flights import FlightFiles, prepare
from live_view import LiveView
from penstock.common import Configuration
from penstock.datastream import JobClient, StreamExecutionEnvironment
from penstock.monitoring.report import JobReport
from penstock.spark.session import open_session
from recording import Recording, RunPlan
from report import duration_chart, terminal_table, write_html, write_json
from verify import verify

CHECKPOINT_INTERVAL_MS = 500
ALIGNED_TIMEOUT_MS = 200
POLL_S = 0.1
LINE_WIDTH = 130  # where there is no terminal to ask
START_LIMIT_S = 120
RUN_LIMIT_S = 600
END_LIMIT_MS = 30_000.0
ENDED = ("FINISHED", "FAILED", "CANCELED")

UNALIGNED = {"execution.checkpointing.unaligned.enabled": "true"}
TIMEOUT = {"execution.checkpointing.aligned-checkpoint-timeout": f"{ALIGNED_TIMEOUT_MS} ms"}
PLANS = (
    RunPlan("aligned", "aligned barriers wait in every queue", {}),
    RunPlan("aligned, timeout", f"aligned, unaligned after {ALIGNED_TIMEOUT_MS} ms", {**UNALIGNED, **TIMEOUT}),
    RunPlan("unaligned", "barriers overtake the queues", UNALIGNED),
    RunPlan("unaligned, killed", "unaligned, SIGKILL of a slot half-way", UNALIGNED, kill_after_share=0.5),
)


class DemoFailure(Exception):
    """Says what went wrong, in a sentence for the terminal."""


def parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make demo", description=__doc__)
    parser.add_argument("--dir", type=Path, default=Path("build/demo"), help="where everything is written")
    parser.add_argument("--rows", type=int, default=50_000, help="how many of the 336,776 flights, the earliest first")
    parser.add_argument("--pause-us", type=int, default=1000, help="how much slower each row is made, in microseconds")
    parser.add_argument("--parallelism", type=int, default=2)
    parser.add_argument("--only", action="append", help="the name of a run; may be given again (default: all four)")
    return parser.parse_args(arguments)


def configuration(plan: RunPlan, home: Path, parallelism: int) -> Configuration:
    settings = {
        "parallelism.default": str(parallelism),
        "execution.checkpointing.interval": f"{CHECKPOINT_INTERVAL_MS} ms",
        "execution.checkpointing.dir": (home / "checkpoints").resolve().as_uri(),
        "web.checkpoints.history": "1000",
        "penstock.progress.enabled": "false",
        **plan.options,
    }
    result = Configuration()
    for key, value in settings.items():
        result.set_string(key, value)
    return result


def run(plan: RunPlan, files: FlightFiles, args: argparse.Namespace, console: Console) -> tuple[Recording, Path]:
    home = args.dir / plan.name.replace(", ", "-")
    shutil.rmtree(home, ignore_errors=True)
    output = (home / "output").resolve()
    env = StreamExecutionEnvironment.get_execution_environment(configuration(plan, home, args.parallelism))
    job.declare(env, files, output, args.pause_us)
    recording = Recording(plan)
    with LiveView(console, recording, files.rows) as view:
        client = env.execute_async(f"flight delays, {plan.name}")
        try:
            follow(client, recording, view, files.rows)
        except BaseException:
            client.cancel().result(END_LIMIT_MS / 1000)
            raise
    return recording, output


def follow(client: JobClient, recording: Recording, view: LiveView, rows: int) -> None:
    """Follow the job until it has finished. Kills a slot on the way, if the plan says so."""
    deadline = time.monotonic() + START_LIMIT_S
    running = False
    while True:
        report = client.report()
        if report is not None:
            if report.state == "RUNNING" and not running:
                running = True
                recording.begin()
                deadline = time.monotonic() + RUN_LIMIT_S
            recording.take(report)
            view.show(report)
            if report.state in ENDED:
                break
            if is_due_for_kill(recording, report, rows):
                recording.killed_wall_ms = time.time() * 1000
                os.kill(report.slot_pids[-1], signal.SIGKILL)
                view.note(f"[bold red]SIGKILL[/] of slot {len(report.slot_pids) - 1}'s process {report.slot_pids[-1]}")
        if time.monotonic() > deadline:
            raise DemoFailure(f"{recording.plan.name}: the job is {report.state if report else 'not there'}, too late")
        time.sleep(POLL_S)
    client.wait(END_LIMIT_MS)


def is_due_for_kill(recording: Recording, report: JobReport, rows: int) -> bool:
    share = recording.plan.kill_after_share
    if share is None or recording.killed_wall_ms is not None or not report.vertices or not report.completed:
        return False
    return report.vertices[-1].rows_in >= share * rows


def tell_of_kill(recording: Recording, summary: dict[str, Any]) -> list[str]:
    """A run that should have been killed and was not proves nothing, so it fails, too."""
    if recording.plan.kill_after_share is None:
        return []
    if recording.killed_wall_ms is None:
        return ["no slot was killed: the job was over first"]
    return [] if summary["restarts"] else ["a slot was killed, but the job counts no restart"]


def main(arguments: list[str]) -> int:
    args = parse(arguments)
    console = Console(highlight=False)
    if not console.is_terminal:
        console = Console(width=LINE_WIDTH, highlight=False)
    plans = [p for p in PLANS if not args.only or p.name in args.only]
    if not plans:
        raise DemoFailure(f"no such run; there are: {'; '.join(p.name for p in PLANS)}")
    args.dir.mkdir(parents=True, exist_ok=True)
    console.print("preparing the flights of 2013 …")
    files = prepare((args.dir / "data").resolve(), args.rows)
    console.print(f"{files.rows:,} flights in event-time order, each joined with its plane and the weather")
    console.print("starting Spark …")
    open_session("penstock demo", args.parallelism)
    spark = SparkSession.builder.getOrCreate()
    recordings: list[Recording] = []
    runs: list[dict[str, Any]] = []
    failures: list[str] = []
    try:
        for plan in plans:
            recording, output = run(plan, files, args, console)
            verdict = verify(spark, files, output)
            summary = recording.summary(verdict.rows, verdict.exact)
            problems = [*verdict.differences, *tell_of_kill(recording, summary)]
            failures += [f"{plan.name}: {problem}" for problem in problems]
            recordings.append(recording)
            runs.append(summary)
            result = "[green]exact[/]" if verdict.exact else "[bold red]not exact[/]"
            console.print(f"{verdict.rows:,} rows, {summary['seconds']:.0f} s, compared with Spark's batch: {result}")
    finally:
        spark.stop()
    about = {
        "penstock": penstock.__version__,
        "pyspark": pyspark.__version__,
        "python": platform.python_version(),
        "cores": os.cpu_count(),
        "rows": files.rows,
        "pause_us": args.pause_us,
        "parallelism": args.parallelism,
        "checkpoint_interval_ms": CHECKPOINT_INTERVAL_MS,
    }
    write_json(args.dir / "report.json", runs, about)
    write_html(args.dir / "report.html", runs, recordings, about)
    (args.dir / "durations.svg").write_text(duration_chart(recordings), encoding="utf-8")
    console.print(terminal_table(runs))
    console.print(f"report: {args.dir / 'report.html'}, {args.dir / 'report.json'}")
    for failure in failures:
        console.print(f"[bold red]difference[/] {failure}")
    return 1 if failures else 0


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except DemoFailure as failure:
        sys.exit(f"error: {failure}")
    except KeyboardInterrupt:
        sys.exit(130)
