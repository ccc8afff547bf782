"""`make bench`: our benchmarks beside their peers, in turns, and the newest figures in HISTORY.md and RESULTS.md.

    bench.py [seconds=60] [rounds=1] [only=pressure,throughput,...]

With more rounds than one, the median over the rounds counts. What is measured, and its bounds, stand in measures.py.
The run becomes a section of HISTORY.md, too.
`memory` is a pressure run of eleven minutes; `large-state` has 5 GB of state and takes half an hour.
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from measure import FLINK, MEMORY_SECONDS, OURS, PYFLINK, SPARK, Figures, Row
from measures import rows_of
from measuring import Arguments, parse_arguments
from results import HISTORY, RESULTS
from results_page import write

HERE = Path(__file__).resolve().parent
GROUPS = (
    "pressure", "savepoints", "throughput", "udf", "calls", "neighbours", "dataframe", "latency", "state",
    "keyed-state", "open-state", "storage", "large-state", "rescale", "live-rescale", "recovery", "cluster", "overhead",
    "messages", "in-flight", "long-rows", "restore-memory", "kafka", "kafka-kills", "memory",
)  # fmt: skip
DEFAULTS = {"seconds": "60", "rounds": "1", "only": ",".join(GROUPS)}
UNALIGNED = "execution.checkpointing.unaligned.enabled=true"
DEBLOAT = "taskmanager.network.memory.buffer-debloat.enabled=true"
CASE_LIMIT_S = 1800
# Both sides' rates hold what a job costs at its start: so many rows that it says little.
THROUGHPUT_ROWS = 60_000_000
# Rates in Python are without the job's start, which varies: by a second with PyFlink. Each run has to last far longer.
UDF_ROWS = {"map": ("20000000", "5000000"), "udf": ("2000000", "500000")}
LARGE = ("keys=50000000", "text_keys=true")
# As many as PyFlink gets through in minutes.
PYTHON_STATE = ("2000000", "1000000")

Command = tuple[str, ...]


@dataclass(frozen=True)
class Case:
    """`ours` and `peers` (name -> command) are command lines without the interpreter."""

    name: str
    group: str
    ours: Command
    peers: dict[str, Command] = field(default_factory=dict)


def throughput(workload: str, seconds: str) -> list[Case]:
    call, rows = f"workload={workload}", f"rows={THROUGHPUT_ROWS}"
    peers = {FLINK: ("flink-throughput", call, rows), SPARK: ("spark", workload, "2000000", seconds)}
    python = ("throughput.py", call, "functions=python", "rows=6000000")
    return [
        Case(workload, "throughput", ("throughput.py", call, rows), peers),
        Case(f"{workload} python", "throughput", python),
    ]


def udf(workload: str) -> Case:
    ours, theirs = UDF_ROWS[workload]
    peers: dict[str, Command] = {
        side: ("pyflink", mode, theirs, workload) for side, mode in zip(PYFLINK, ("process", "thread"))
    }
    return Case(workload, "udf", ("udf.py", f"workload={workload}", f"rows={ours}"), peers)


def keyed_state() -> list[Case]:
    rows, keys = PYTHON_STATE
    peers: dict[str, Command] = {
        side: ("pyflink-state", mode, rows, keys) for side, mode in zip(PYFLINK, ("process", "thread"))
    }
    python = ("keyed_state.py", "functions=python", f"rows={rows}", f"keys={keys}")
    return [
        Case("keyed state", "keyed-state", ("keyed_state.py",), {FLINK: ("flink-state",)}),
        Case("keyed state python", "keyed-state", python, peers),
    ]


def cases(seconds: str) -> list[Case]:
    def pressure(name: str, *arguments: str, peer: bool = True) -> Case:
        theirs = {FLINK: ("flink-pressure", f"seconds={seconds}", *arguments)} if peer else {}
        return Case(name, "pressure", ("pressure.py", f"seconds={seconds}", *arguments), theirs)

    return [
        pressure("aligned"),
        pressure("unaligned", UNALIGNED),
        pressure("aligned debloated", DEBLOAT),
        pressure("unaligned debloated", UNALIGNED, DEBLOAT),
        pressure("unaligned busy", UNALIGNED, "busy=true", peer=False),
        pressure("unaligned 10 ms", UNALIGNED, "sleep_us=10000", peer=False),
        pressure("unaligned 100 ms", UNALIGNED, "sleep_us=100000", peer=False),
        Case(
            "savepoints",
            "savepoints",
            ("savepoints.py",),
            {FLINK: ("flink-pressure", "seconds=15", "savepoints=5", UNALIGNED)},
        ),
        *throughput("reduce", seconds),
        *throughput("window", seconds),
        udf("map"),
        udf("udf"),
        Case("calls", "calls", ("batch_calls.py",)),
        Case("async calls", "calls", ("async_calls.py",)),
        Case("neighbours", "neighbours", ("neighbours.py",)),
        Case("dataframe", "dataframe", ("dataframe.py", "rounds=6")),
        Case("latency", "latency", ("latency.py", f"seconds={seconds}")),
        Case("state", "state", ("state.py", f"seconds={seconds}")),
        Case("open state", "open-state", ("open_state.py",)),
        *keyed_state(),
        *[
            Case(f"incremental {kept}", "keyed-state", ("incremental.py", f"seconds={seconds}", *options))
            for kept, options in (("in memory", ()), ("on RocksDB", ("state.backend.type=rocksdb",)))
        ],
        *[
            Case(f"incremental 5 GB {kept}", "large-state", ("incremental.py", *LARGE, f"seconds={seconds}", *options))
            for kept, options in (("in memory", ()), ("on RocksDB", ("state.backend.type=rocksdb",)))
        ],
        Case("large state", "large-state", ("large_state.py",)),
        Case("storage", "storage", ("storage.py", f"seconds={seconds}")),
        Case("rescale", "rescale", ("rescale.py",)),
        Case("live rescale", "live-rescale", ("live_rescale.py",)),
        Case("kafka kills", "kafka-kills", ("kafka_kills.py",)),
        Case("recovery", "recovery", ("recovery.py", UNALIGNED)),
        Case("cluster", "cluster", ("cluster.py", UNALIGNED)),
        Case("overhead", "overhead", ("overhead.py",)),
        Case("messages", "messages", ("micro/driver_messages.py",)),
        Case("in flight", "in-flight", ("micro/in_flight.py",)),
        Case("timers", "long-rows", ("long_rows.py", "workload=timers")),
        Case("generator", "long-rows", ("long_rows.py", "workload=generator")),
        Case("restore memory", "restore-memory", ("restore_memory.py",)),
        Case("kafka", "kafka", ("kafka_throughput.py",)),
        *[
            Case(f"kafka {guarantee}", "kafka", ("kafka_latency.py", f"guarantee={guarantee}", f"seconds={seconds}"))
            for guarantee in ("at-least-once", "exactly-once")
        ],
        Case("memory", "memory", ("pressure.py", f"seconds={MEMORY_SECONDS}", UNALIGNED)),
    ]


def run(command: list[str]) -> dict[str, Any] | None:
    """The last line's JSON, or None with the end of what the program said."""
    print("   ", " ".join(command), flush=True)
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=CASE_LIMIT_S, check=False)
    except subprocess.TimeoutExpired:
        print(f"no result within {CASE_LIMIT_S} s", file=sys.stderr)
        return None
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    if not lines:
        print(done.stdout[-2000:], done.stderr[-4000:], sep="\n", file=sys.stderr)
        return None
    print("       ", lines[-1], flush=True)
    result: dict[str, Any] = json.loads(lines[-1])
    return result


def run_in_turns(chosen: list[Case], rounds: int) -> dict[str, dict[str, list[dict[str, Any]]]]:
    """case name -> side -> one result per round. The order is turned round each time."""
    results: dict[str, dict[str, list[dict[str, Any]]]] = {c.name: {} for c in chosen}
    for number in range(rounds):
        for case in chosen:
            sides = [(OURS, [sys.executable, str(HERE / case.ours[0]), *case.ours[1:]])]
            sides += [(name, [str(HERE / "peers" / "peer"), *command]) for name, command in case.peers.items()]
            for side, command in sides if number % 2 else reversed(sides):
                print(f"== {case.name}, {side}, round {number + 1} of {rounds}", flush=True)
                result = run(command)
                if result is not None:
                    results[case.name].setdefault(side, []).append(result)
    return results


def section(rows: list[Row], args: Arguments, when: str, revision: str) -> str:
    machine = f"{os.cpu_count()} cores, {platform.system()} {platform.machine()}, Python {platform.python_version()}"
    only = args.values.get("only", DEFAULTS["only"])
    about = f"`bench.py only={only}`, {args.values['rounds']} round(s) of {args.values['seconds']} s"
    lines = [
        f"## {when}, revision {revision}",
        "",
        f"{machine}; {about}. Only the ratios can be compared with those of another day.",
        "",
        "| measure | Penstock | beside it | ratio | must | aim | the must is |",
        "|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        share = "" if row.ratio is None else f"{row.ratio:.2f}×"
        verdict = {True: "met", False: "**missed**", None: ""}[row.met]
        cells = (row.measure, row.ours, row.beside, share, row.must, row.aim, verdict)
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def described_revision() -> str:
    found = subprocess.run(
        ["git", "describe", "--always", "--dirty"], cwd=HERE, capture_output=True, text=True, check=False
    )
    return found.stdout.strip() or "unknown"


def main() -> int:
    args = parse_arguments(sys.argv[1:], DEFAULTS)
    groups = set(args.values["only"].split(","))
    if unknown := groups - set(GROUPS):
        sys.exit(f"only={','.join(sorted(unknown))}: there are {', '.join(GROUPS)}")
    chosen = [c for c in cases(args.values["seconds"]) if c.group in groups]
    results = run_in_turns(chosen, args.whole("rounds"))
    rows, revision = rows_of(Figures(results)), described_revision()
    when = datetime.now().astimezone().strftime("%Y-%m-%d %H:%M")
    new = section(rows, args, when, revision)
    write(rows, new, when, revision)
    print(f"\n{new}\nwritten to {RESULTS} and {HISTORY}")
    failed = [c.name for c in chosen if not results[c.name].get(OURS)]
    if failed:
        print(f"without a result: {', '.join(failed)}", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
