"""Provides a Spark for tests. It lives for seconds: Java optimizes little and finds Spark's classes in an archive,
Python finds PySpark compiled, and queries are interpreted.

Together that takes two thirds off the CPU of a session's start, which is what most of these tests spend their time on.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

BUILD = Path(__file__).resolve().parents[1] / "build" / "test-spark"
DUMP_LIMIT_S = 300

FLAGS = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
# A query over a few rows is over before Java has compiled the code that Spark would write for it.
QUERIES = (
    "-Dspark.sql.codegen.wholeStage=false -Dspark.sql.codegen.factoryMode=NO_CODEGEN "
    "-Dspark.sql.files.minPartitionNum=1"
)

# No SQL: its classes would take longer to archive than they take to load in the few programs that use it.
PROGRAM = """
from pyspark.sql import SparkSession
spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
assert spark.sparkContext.parallelize([1, 2], 2).map(lambda x: x * 2).collect() == [2, 4]
spark.stop()
"""

java_options = FLAGS
"""For a Java that Spark starts by itself: a cluster's. With the archive, inside of `quick_spark`."""


@contextmanager
def quick_spark() -> Iterator[None]:
    """Every Spark that is started from this process on is quick. The first time a Java and a Spark meet here, their
    archive is made meanwhile, and those that start later find it. Where an archive does not work, as on a Java without
    one of its own classes, all goes on without."""
    global java_options
    from penstock.spark.cluster.java import ensure_java

    made = BUILD / _kind(ensure_java())
    made.mkdir(parents=True, exist_ok=True)
    home, archive = made / "home", made / "classes.jsa"
    if not home.exists():
        _lay_out(home)
    # Without the last flag Java would tell on standard output about an archive that does not fit.
    java_options = f"{FLAGS} -XX:SharedArchiveFile={archive} -Xlog:disable"
    os.environ["SPARK_HOME"] = str(home)
    os.environ["SPARK_LAUNCHER_OPTS"] = FLAGS
    os.environ["SPARK_SUBMIT_OPTS"] = f"{java_options} {QUERIES}"
    dump = threading.Thread(target=_dump_once, args=(archive,), name="archive")
    dump.start()
    try:
        yield
    finally:
        dump.join()


def _kind(java_home: Path | None) -> str:
    """A name for this Java with this Spark in this place: what is made for them fits no others."""
    import pyspark

    found = subprocess.run(
        [java_home / "bin" / "java" if java_home else "java", "-version"], capture_output=True, text=True, check=True
    )
    named = "\n".join([found.stderr, pyspark.__file__, pyspark.__version__, str(BUILD)])
    return hashlib.sha256(named.encode()).hexdigest()[:16]


def _lay_out(home: Path) -> None:
    """The installed Spark as links. Executors import PySpark from `python/lib/pyspark.zip`, and so would compile its
    source each time, most of a worker's start; here a folder of that name has the installed package."""
    import py4j
    import pyspark

    installed = Path(pyspark.__file__).parent
    with tempfile.TemporaryDirectory(dir=home.parent) as folder:
        made = Path(folder, "home")
        made.mkdir()
        for part in ("bin", "data", "jars", "sbin"):
            (made / part).symlink_to(installed / part)
        for archive in (installed / "python" / "lib").glob("*.zip"):
            package = Path(str((pyspark if archive.name == "pyspark.zip" else py4j).__file__)).parent
            path = made / "python" / "lib" / archive.name
            path.mkdir(parents=True)
            (path / package.name).symlink_to(package)
        try:
            made.rename(home)
        except OSError:
            if not home.exists():  # another process has been quicker
                raise


def _dump_once(archive: Path) -> None:
    with archive.with_name("lock").open("w") as lock, suppress(BlockingIOError):
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if not archive.exists():
            _dump(archive)


def _dump(archive: Path) -> None:
    """An empty file stands for an archive that cannot be made: it is not tried again, and Java passes over it."""
    with tempfile.TemporaryDirectory(dir=archive.parent) as folder:
        made = Path(folder, "made.jsa")
        settings = {
            "SPARK_SUBMIT_OPTS": f"{FLAGS} -XX:ArchiveClassesAtExit={made} -Xlog:disable",
            "SPARK_LOCAL_IP": "127.0.0.1",
            "PYSPARK_PYTHON": sys.executable,
        }
        # Java, which writes the archive as it ends, outlives the program; this waits until both have closed the pipe.
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM],
            env={**os.environ, **settings},
            cwd=folder,
            check=False,
            timeout=DUMP_LIMIT_S,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert done.returncode == 0, done.stderr
        if not made.exists():
            made.touch()
        made.rename(archive)
