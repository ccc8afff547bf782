"""Java for tests on a real Spark. It lives for seconds: it optimizes little, and finds Spark's classes in an archive.

Together that takes two thirds off the CPU of a session's start, which is what most of these tests spend their time on.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import subprocess
import sys
import tempfile
from pathlib import Path

FLAGS = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
BUILD = Path(__file__).resolve().parents[1] / "build" / "test-java"
DUMP_LIMIT_S = 100

# No SQL: its classes would take longer to archive than they take to load in the few programs that use it.
PROGRAM = """
from pyspark.sql import SparkSession
spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
assert spark.sparkContext.parallelize([1, 2], 2).map(lambda x: x * 2).collect() == [2, 4]
spark.stop()
"""


def use_quick_java() -> None:
    """Every Spark that is started from this process on has it. The archive is made once for a Java and a Spark; where
    that does not work, as on a Java without an archive of its own classes, all goes on without."""
    from penstock.spark.java import ensure_java

    os.environ["SPARK_LAUNCHER_OPTS"] = FLAGS
    archive = BUILD / f"{_kind(ensure_java())}.jsa"
    BUILD.mkdir(parents=True, exist_ok=True)
    with (BUILD / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not archive.exists():
            _make(archive)
    # Without the last flag Java would tell on standard output about an archive that does not fit.
    os.environ["SPARK_SUBMIT_OPTS"] = f"{FLAGS} -XX:SharedArchiveFile={archive} -Xlog:disable"


def _kind(java_home: Path | None) -> str:
    """A name for this Java with this Spark: an archive fits no other."""
    import pyspark

    found = subprocess.run(
        [java_home / "bin" / "java" if java_home else "java", "-version"], capture_output=True, text=True, check=True
    )
    named = "\n".join([found.stderr, pyspark.__file__, pyspark.__version__])
    return hashlib.sha256(named.encode()).hexdigest()[:16]


def _make(archive: Path) -> None:
    """An empty file stands for an archive that cannot be made: it is not tried again, and Java passes over it."""
    with tempfile.TemporaryDirectory(dir=BUILD) as folder:
        made = Path(folder, "made.jsa")
        settings = {
            "SPARK_SUBMIT_OPTS": f"{FLAGS} -XX:ArchiveClassesAtExit={made} -Xlog:disable",
            "SPARK_LOCAL_IP": "127.0.0.1",
            "PYSPARK_PYTHON": sys.executable,
        }
        # Java, which writes the archive as it ends, outlives the program; this waits until both have closed the pipe.
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM],
            env={**os.environ, **settings}, cwd=folder, check=False, timeout=DUMP_LIMIT_S,
            stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        if not made.exists():
            made.touch()
        made.rename(archive)
