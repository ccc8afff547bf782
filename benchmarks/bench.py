"""`make bench`: our benchmarks beside their peers, in turns, and a dated table of ratios in RESULTS.md.

    bench.py [seconds=60] [rounds=1] [only=pressure,overhead,recovery,memory]

With more rounds than one, the median over the rounds counts. `memory` is a pressure run of eleven minutes.
"""

from __future__ import annotations

import json
import os
import platform
import statistics
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from measuring import Arguments, parse_arguments

HERE = Path(__file__).resolve().parent
RESULTS = HERE / "RESULTS.md"
NEWEST_BELOW = "<!-- the newest run comes first, below this line -->"
DEFAULTS = {"seconds": "60", "rounds": "1", "only": "pressure,overhead,recovery,memory"}
UNALIGNED = "execution.checkpointing.unaligned.enabled=true"
MEMORY_SECONDS = 660
CASE_LIMIT_S = 1800

Result = dict[str, Any]


@dataclass(frozen=True)
class Case:
    """`ours` and `peer` are command lines without the interpreter; a case without a peer stands alone."""

    name: str
    group: str
    ours: tuple[str, ...]
    peer: tuple[str, ...] | None = None


@dataclass(frozen=True)
class Row:
    measure: str
    ours: str
    peer: str
    ratio: float | None
    must: str
    aim: str
    met: bool | None


def cases(seconds: str) -> list[Case]:
    def pressure(name: str, *arguments: str, peer: bool = True) -> Case:
        theirs = ("flink-pressure", f"seconds={seconds}", *arguments) if peer else None
        return Case(name, "pressure", ("pressure.py", f"seconds={seconds}", *arguments), theirs)

    return [
        pressure("aligned"),
        pressure("unaligned", UNALIGNED),
        pressure("unaligned busy", UNALIGNED, "busy=true", peer=False),
        pressure("unaligned 10 ms", UNALIGNED, "sleep_us=10000", peer=False),
        pressure("unaligned 100 ms", UNALIGNED, "sleep_us=100000", peer=False),
        Case("overhead", "overhead", ("overhead.py",)),
        Case("recovery", "recovery", ("recovery.py", UNALIGNED)),
        Case("memory", "memory", ("pressure.py", f"seconds={MEMORY_SECONDS}", UNALIGNED)),
    ]


def run(command: list[str]) -> Result | None:
    """The last line's JSON, or None with the end of what the program said."""
    print("   ", " ".join(command), flush=True)
    done = subprocess.run(command, capture_output=True, text=True, timeout=CASE_LIMIT_S, check=False)
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    if not lines:
        print(done.stdout[-2000:], done.stderr[-4000:], sep="\n", file=sys.stderr)
        return None
    print("       ", lines[-1], flush=True)
    return json.loads(lines[-1])


def run_in_turns(chosen: list[Case], rounds: int) -> dict[str, dict[str, list[Result]]]:
    """case name -> "ours"/"peer" -> one result per round. The order is turned round each time."""
    results: dict[str, dict[str, list[Result]]] = {c.name: {"ours": [], "peer": []} for c in chosen}
    for number in range(rounds):
        for case in chosen:
            sides = [("ours", [sys.executable, str(HERE / case.ours[0]), *case.ours[1:]])]
            if case.peer:
                sides.append(("peer", [str(HERE / "peers" / "peer"), *case.peer]))
            for side, command in sides if number % 2 else reversed(sides):
                print(f"== {case.name}, {side}, round {number + 1} of {rounds}", flush=True)
                result = run(command)
                if result is not None:
                    results[case.name][side].append(result)
    return results


class Figures:
    """Medians over rounds, by case and field."""

    def __init__(self, results: dict[str, dict[str, list[Result]]]) -> None:
        self._results = results

    def of(self, case: str, field: str, side: str = "ours") -> float | None:
        found = [r[field] for r in self._results.get(case, {}).get(side, []) if r.get(field) is not None]
        return statistics.median(found) if found else None

    def growth(self, case: str, process: str) -> float | None:
        """Resident memory at the end against that after a minute; of several slots the worst."""
        worst = None
        for result in self._results.get(case, {}).get("ours", []):
            early, late = (result.get(f"{process}_rss_bytes_{when}") for when in ("1min", "end"))
            if not early or not late:
                continue
            pairs = zip(early, late, strict=False) if isinstance(early, list) else [(early, late)]
            for before, after in pairs:
                if before and after:
                    worst = max(worst or 0.0, after / before)
        return worst


def at_most(value: float | None, limit: float) -> bool | None:
    return None if value is None else value <= limit


def ratio(ours: float | None, theirs: float | None) -> float | None:
    return None if ours is None or not theirs else ours / theirs


def shown(value: float | None, unit: str = "") -> str:
    if value is None:
        return "–"
    return f"{value:,.0f}{unit}" if abs(value) >= 100 else f"{value:.3g}{unit}"


def rows_of(figures: Figures, seconds: str) -> list[Row]:
    rows = []

    def against_flink(title: str, case: str, field: str, unit: str, must: float | None, aim: str) -> None:
        ours, theirs = figures.of(case, field), figures.of(case, field, "peer")
        share = ratio(ours, theirs)
        met = at_most(share, must) if must is not None else None
        limit = "" if must is None else f"≤ {must:g}×"
        rows.append(Row(title, shown(ours, unit), shown(theirs, unit), share, limit, aim, met))

    def alone(title: str, value: float | None, unit: str, must: str, aim: str, met: Callable[[float], bool]) -> None:
        rows.append(Row(title, shown(value, unit), "", None, must, aim, None if value is None else met(value)))

    against_flink("pressure, aligned: duration p50", "aligned", "duration_ms_p50", " ms", None, "")
    against_flink("pressure, unaligned: duration p50", "unaligned", "duration_ms_p50", " ms", 0.5, "≤ 0.25×")
    against_flink("pressure, unaligned: duration p90", "unaligned", "duration_ms_p90", " ms", None, "")
    against_flink("pressure, unaligned: persisted p50", "unaligned", "persisted_bytes_p50", " B", 1.0, "≤ 0.2×")
    asleep = figures.of("unaligned", "duration_ms_p50")
    busy = figures.of("unaligned busy", "duration_ms_p50")
    share = ratio(busy, asleep)
    rows.append(
        Row(
            "busy in pure Python against sleeping: duration p50",
            shown(busy, " ms"),
            f"{shown(asleep, ' ms')} (ours, asleep)",
            share,
            "≤ 2×",
            "≤ 1.5×",
            at_most(share, 2.0),
        )
    )
    for record_ms in (10, 100):
        value = figures.of(f"unaligned {record_ms} ms", "duration_ms_p50")
        limit = None if asleep is None else asleep + record_ms
        met = None if value is None or limit is None else value <= limit
        title = f"pressure, unaligned, {record_ms} ms per record: duration p50"
        rows.append(Row(title, shown(value, " ms"), "", None, f"≤ {shown(limit, ' ms')}", "", met))
    alone(
        "objects written per checkpoint, 2 slots", figures.of("unaligned", "objects_written_max"), "", "≤ 4", "",
        lambda v: v <= 4,
    )  # fmt: skip
    alone("pressure, unaligned: publication p50", figures.of("unaligned", "publication_ms_p50"), " ms", "", "", bool)
    low, high = figures.of("overhead", "ratio_low"), figures.of("overhead", "ratio_high")
    alone(
        f"throughput with a checkpoint each second / none (95 %: {shown(low)}–{shown(high)})",
        figures.of("overhead", "ratio"), "", "≥ 0.97", "≥ 0.99", lambda v: v >= 0.97,
    )  # fmt: skip
    alone(
        "SIGKILL of a slot → first new row, p50", figures.of("recovery", "recovery_ms_p50"), " ms", "≤ 3,000 ms",
        "≤ 1,500 ms", lambda v: v <= 3000,
    )  # fmt: skip
    alone(
        "SIGKILL of a slot → first new row, max", figures.of("recovery", "recovery_ms_max"), " ms", "≤ 3,000 ms",
        "≤ 1,500 ms", lambda v: v <= 3000,
    )  # fmt: skip
    alone("SIGKILL of a slot → committed, p50", figures.of("recovery", "committed_ms_p50"), " ms", "", "", bool)
    alone("results after the kills are exact (1 = yes)", figures.of("recovery", "exact"), "", "1", "", bool)
    for process in ("driver", "slots", "jvm"):
        must = "" if process == "jvm" else "≤ 1.1"
        growth = figures.growth("memory", process)
        title = f"resident memory after {MEMORY_SECONDS // 60} min / after 1 min, {process}"
        met = None if process == "jvm" else at_most(growth, 1.1)
        rows.append(Row(title, shown(growth), "", None, must, "", met))
    return [row for row in rows if row.ours != "–"]


def section(rows: list[Row], args: Arguments) -> str:
    when = datetime.now().astimezone().strftime("%Y-%m-%d %H:%M")
    machine = f"{os.cpu_count()} cores, {platform.system()} {platform.machine()}, Python {platform.python_version()}"
    only = args.values.get("only", DEFAULTS["only"])
    about = f"`bench.py only={only}`, {args.values['rounds']} round(s) of {args.values['seconds']} s"
    lines = [
        f"## {when}, revision {revision()}",
        "",
        f"{machine}; {about}. Only the ratios can be compared with those of another day.",
        "",
        "| measure | Penstock | beside it | ratio | must | aim | the must is |",
        "|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        share = "" if row.ratio is None else f"{row.ratio:.2f}×"
        verdict = {True: "met", False: "**missed**", None: ""}[row.met if row.must else None]
        beside = f"{row.peer} (Flink)" if row.peer and "ours" not in row.peer else row.peer
        cells = (row.measure, row.ours, beside, share, row.must, row.aim, verdict)
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def revision() -> str:
    found = subprocess.run(
        ["git", "describe", "--always", "--dirty"], cwd=HERE, capture_output=True, text=True, check=False
    )
    return found.stdout.strip() or "unknown"


def insert(text: str, new: str) -> str:
    """Puts a section first below the line that marks the place. Older ones stay."""
    head, marker, older = text.partition(NEWEST_BELOW)
    if not marker:
        raise ValueError(f"RESULTS.md has lost its line {NEWEST_BELOW!r}")
    return f"{head}{marker}\n\n{new}\n{older.lstrip()}"


def main() -> int:
    args = parse_arguments(sys.argv[1:], DEFAULTS)
    groups = set(args.values["only"].split(","))
    every = cases(args.values["seconds"])
    unknown = groups - {c.group for c in every}
    if unknown:
        sys.exit(f"only={','.join(sorted(unknown))}: there are {', '.join(sorted({c.group for c in every}))}")
    chosen = [c for c in every if c.group in groups]
    results = run_in_turns(chosen, args.whole("rounds"))
    rows = rows_of(Figures(results), args.values["seconds"])
    new = section(rows, args)
    RESULTS.write_text(insert(RESULTS.read_text(encoding="utf-8"), new), encoding="utf-8")
    print(f"\n{new}\nwritten to {RESULTS}")
    failed = [c.name for c in chosen if not results[c.name]["ours"]]
    if failed:
        print(f"without a result: {', '.join(failed)}", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
