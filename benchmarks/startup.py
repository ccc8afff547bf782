"""Workload "start": how long a user waits for his first row, in pairs with another checkout.

    startup.py other=PATH [runs=5]

Two programs, by turns from this checkout and from the one at `other` (a git worktree of an earlier revision, say), with
the same Python. "hello": a program of three rows that starts a Spark of its own, from its start to its end. "session":
from `execute()` to the first row, in a Spark session that runs already. Prints one line of JSON last: the medians in
seconds, and the ratios of the medians.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

from measuring import parse_arguments, print_result

ROOT = Path(__file__).resolve().parents[1]
DEFAULTS = {"other": "", "runs": "5"}
LIMIT_S = 180
HELLO = """
from penstock.common import Types
from penstock.datastream import StreamExecutionEnvironment
env = StreamExecutionEnvironment.get_execution_environment()
env.from_collection([1, 2, 3], Types.LONG()).map(lambda i: i * 2, Types.LONG()).print()
env.execute("hello")
"""
SESSION = """
import os, sys, time
os.environ["PYSPARK_PYTHON"] = sys.executable
from pyspark.sql import SparkSession
spark = SparkSession.builder.master("local[4]").config("spark.ui.enabled", "false").getOrCreate()
spark.range(3).count()
from penstock.common import Types
from penstock.datastream import StreamExecutionEnvironment
env = StreamExecutionEnvironment.get_execution_environment()
rows = env.from_collection([1, 2, 3], Types.LONG()).map(lambda i: i * 2, Types.LONG())
began = time.monotonic()
with rows.execute_and_collect("first row") as found:
    next(found)
    print("first row after", time.monotonic() - began)
"""


def run(checkout: Path, program: Path) -> tuple[float, str]:
    """Return the seconds that the program took, and its output."""
    environment = {**os.environ, "PYTHONPATH": str(checkout)}
    began = time.monotonic()
    done = subprocess.run(
        [sys.executable, program],
        env=environment,
        cwd=program.parent,
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    took_s = time.monotonic() - began
    if done.returncode:
        raise SystemExit(f"{program.name} of {checkout} failed:\n{done.stderr}")
    return took_s, done.stdout


def main() -> None:
    given = parse_arguments(sys.argv[1:], DEFAULTS)
    other, runs = Path(given.values["other"]).absolute(), given.whole("runs")
    if not given.values["other"] or not (other / "penstock").is_dir():
        raise SystemExit("other=PATH must be a checkout of Penstock: git worktree add PATH REVISION makes one")
    found: dict[str, list[float]] = {name: [] for name in ("hello", "hello_other", "session", "session_other")}
    with tempfile.TemporaryDirectory() as folder:
        hello, session = Path(folder, "hello.py"), Path(folder, "session.py")
        hello.write_text(HELLO, encoding="utf-8")
        session.write_text(SESSION, encoding="utf-8")
        for number in range(runs + 1):
            for checkout, suffix in ((other, "_other"), (ROOT, "")):
                took_s, _ = run(checkout, hello)
                _, printed = run(checkout, session)
                if number:  # the first round fills caches
                    found[f"hello{suffix}"].append(took_s)
                    found[f"session{suffix}"].append(float(printed.split("first row after ")[1].split()[0]))
    medians = {f"{name}_s": round(median(values), 3) for name, values in found.items()}
    ratios = {
        f"{name}_ratio": round(medians[f"{name}_s"] / medians[f"{name}_other_s"], 3) for name in ("hello", "session")
    }
    print_result({"workload": "start", "runs": runs} | medians | ratios)


if __name__ == "__main__":
    main()
