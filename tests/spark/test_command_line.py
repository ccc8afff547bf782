"""Tests programs as users start them, from another directory than their own: with Python, `penstock run`,
`spark-submit`.
"""

from __future__ import annotations

import os
import pty
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.spark.small_jobs import committed, descendants, is_alive, wait_until

ROOT = Path(__file__).resolve().parents[2]
LIMIT_S = 120
pytestmark = [pytest.mark.spark, pytest.mark.timeout(2 * LIMIT_S + 60)]

BESIDE = """
def double(i):
    return 2 * i
"""
PACKAGE = """
from . import table
def name(i):
    return table.NAMES[i % 2]
"""
PRELUDE = """
import sys
from penstock.common import Encoder, Types, WatermarkStrategy
from penstock.datastream import StreamExecutionEnvironment
from penstock.datastream.connectors.datagen import DataGeneratorSource
from penstock.datastream.connectors.file_system import FileSink

env = StreamExecutionEnvironment.get_execution_environment()

def numbers(count, rows_per_second):
    source = DataGeneratorSource(lambda i: i, count, type_info=Types.LONG(), rows_per_second=rows_per_second)
    return env.from_source(source, WatermarkStrategy.no_watermarks(), "numbers", Types.LONG())
"""
PRINTING = (
    PRELUDE
    + """
import beside
import names

class Telling:
    def __init__(self, word):
        self.word = word

def tell(i):
    import imported_only_in_the_slot
    if i < 4:
        print("thinking of", i, imported_only_in_the_slot.WORD)
        print("wrong:", i, file=sys.stderr)
    return names.name(i) + str(beside.double(i)) + telling.word

telling = Telling("!")
env.set_parallelism(2)
numbers(3000, 1000.0).map(tell, Types.STRING()).filter(lambda line: line in ("odd2!", "even4!")).print()
env.execute("printing")
print("the program goes on")
"""
)
FAILING = (
    PRELUDE
    + """
def parse(text):
    return int(text)

env.from_collection(["1", "x"], Types.STRING()).map(parse, Types.LONG()).name("parse").print()
env.execute("failing")
"""
)
COUNTING = (
    PRELUDE
    + """
rows = numbers(int(sys.argv[2]), float(sys.argv[3]))
pairs = rows.map(lambda i: (i % 7, 1), Types.TUPLE([Types.LONG(), Types.LONG()]))
counts = pairs.key_by(lambda p: p[0], Types.LONG()).reduce(lambda a, b: (a[0], a[1] + b[1]))
sink = FileSink.for_row_format(sys.argv[1], Encoder.simple_string_encoder()).build()
counts.map(lambda p: f"{p[0]}:{p[1]}", Types.STRING()).sink_to(sink)
env.execute("counting")
"""
)


WriteProgram = Callable[[str], Path]


@pytest.fixture
def program(tmp_path: Path) -> WriteProgram:
    """Writes a program, in a folder of its own with modules beside it."""
    folder = tmp_path / "program"
    (folder / "names").mkdir(parents=True)
    (folder / "beside.py").write_text(BESIDE)
    (folder / "imported_only_in_the_slot.py").write_text("WORD = 'slowly'")
    (folder / "names" / "__init__.py").write_text(PACKAGE)
    (folder / "names" / "table.py").write_text("NAMES = ['even', 'odd']")

    def write(text: str) -> Path:
        (folder / "job.py").write_text(text)
        return folder / "job.py"

    return write


def run(*command: str | Path, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(part) for part in command],
        cwd=cwd,
        env=surroundings(),
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )


def surroundings() -> dict[str, str]:
    return {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]),
        "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")]),
        "PYTHONUNBUFFERED": "1",
        "COLUMNS": "200",
    }


def lines(text: str) -> set[str]:
    return set(text.splitlines())


THOUGHTS = re.compile(r"^[12]> thinking of [0-3] slowly$", re.M)


@pytest.fixture
def terminal() -> Iterator[tuple[int, list[bytes]]]:
    """The end of a terminal that a program writes to, and what has arrived at the other."""
    ours, theirs = pty.openpty()
    heard: list[bytes] = []

    def listen() -> None:
        try:
            while data := os.read(ours, 4096):
                heard.append(data)
        except OSError:  # the last writer has gone
            pass

    listening = threading.Thread(target=listen, daemon=True)
    listening.start()
    yield theirs, heard
    os.close(theirs)
    listening.join(30)
    os.close(ours)


def assert_only_the_users_own_lines(stderr: str, file: Path) -> None:
    """Check what is told of a program `FAILING`."""
    told = stderr[stderr.index("Traceback") :].splitlines()
    assert re.fullmatch(rf'  File "{file}", line \d+, in parse', told[1])
    assert "ValueError: invalid literal for int() with base 10: 'x'" in told
    assert any(line.startswith("operator 'parse': ValueError") for line in told)
    assert "penstock/" not in stderr, "no frame of ours"


def test_python_runs_a_program_with_a_line_of_progress_what_user_code_prints_and_its_error(
    program: WriteProgram, tmp_path: Path, terminal: tuple[int, list[bytes]]
) -> None:
    theirs, heard = terminal
    file = program(PRINTING + FAILING)
    done = subprocess.run(
        [sys.executable, str(file)],
        cwd=tmp_path,
        env=surroundings(),
        stdout=subprocess.PIPE,
        stderr=theirs,
        text=True,
        timeout=LIMIT_S,
    )
    shown = b"".join(heard).decode()
    assert done.returncode == 1, shown
    assert len(THOUGHTS.findall(done.stdout)) == 4
    printed = [line.partition("> ")[2] for line in done.stdout.splitlines()]
    assert sorted(line for line in printed if "!" in line) == ["even4!", "odd2!"]
    assert done.stdout.endswith("the program goes on\n1\n")
    assert len(re.findall(r"[12]> wrong: [0-3]", shown)) == 4
    assert re.search(r"\[printing\] RUNNING  [\d,]+ rows/s", shown)
    assert shown.count("Traceback") == 1, "the end's"
    assert_only_the_users_own_lines(shown, file)


def test_a_failed_program_ends_with_the_users_traceback_and_exit_code_1(program: WriteProgram, tmp_path: Path) -> None:
    file = program(FAILING)
    done = run(sys.executable, "-m", "penstock.cli.main", "run", file, cwd=tmp_path)
    assert done.returncode == 1
    assert_only_the_users_own_lines(done.stderr, file)
    assert done.stdout == "1\n"


def in_an_open_part(out: Path, checkpoints: Path) -> bool:
    """Return whether rows wait in a part that is open for a minute, and a checkpoint after the first has completed."""
    numbers = [int(folder.parent.name.removeprefix("chk-")) for folder in checkpoints.glob("*/chk-*/_metadata")]
    return max(numbers, default=0) > 1 and any(part.stat().st_size for part in out.glob(".*.inprogress"))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_penstock_run_is_interrupted_and_goes_on_from_latest(
    program: WriteProgram, tmp_path: Path, number: signal.Signals
) -> None:
    file, out, checkpoints = program(COUNTING), tmp_path / "out", tmp_path / "checkpoints"
    command = [
        sys.executable, "-m", "penstock.cli.main", "run", "-p", "2",
        "-D", "execution.checkpointing.interval=100 ms", "-D", f"execution.checkpointing.dir={checkpoints}",
        "-D", "execution.checkpointing.externalized-checkpoint-retention=RETAIN_ON_CANCELLATION",
    ]  # fmt: skip
    job, slow, fast = [str(file), str(out), "8000"], "1000", "100000"
    first = subprocess.Popen(
        [*command, *job, slow],
        cwd=tmp_path,
        env=surroundings(),
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        wait_until(lambda: in_an_open_part(out, checkpoints) or first.poll() is not None, "a checkpoint", LIMIT_S)
        processes = descendants(first.pid)
        assert len(processes) >= 5  # the program, its JVM, PySpark's daemon, two slots
        if number == signal.SIGINT:
            os.killpg(first.pid, number)  # as a terminal does: to the program and its JVM
        else:
            first.send_signal(number)
        _, told = first.communicate(timeout=LIMIT_S)
    finally:
        if first.poll() is None:
            first.kill()
    assert first.returncode == 128 + number, told
    (directory,) = checkpoints.iterdir()
    assert f"penstock: resume it with -s {directory}\n" in told
    assert "Traceback" not in told
    left = processes | set(session(first.pid))
    wait_until(lambda: not any(map(is_alive, left)), f"the end of {left}", 15.0)

    done = run(*command, "-s", "latest", *job, fast, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    expected = {f"{key}:{n}": 1 for key in range(7) for n in range(1, len(range(key, 8000, 7)) + 1)}
    assert committed(out) == expected
    assert re.search(rf"penstock: resuming job {directory.name} \(counting\) in {directory}, chk-\d+\n", done.stderr)
    again = run(*command, "-s", "latest", *job, fast, cwd=tmp_path)
    assert again.returncode == 2
    assert f"{directory}: it has ended (FINISHED) and kept no checkpoint" in again.stderr
    assert [folder.name for folder in checkpoints.iterdir()] == [directory.name]


def test_ctrl_c_while_spark_starts_leaves_no_java_behind(program: WriteProgram, tmp_path: Path) -> None:
    started = subprocess.Popen(
        [sys.executable, str(program(FAILING))],
        cwd=tmp_path,
        env=surroundings(),
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        wait_until(lambda: len(session(started.pid)) > 1, "PySpark starts Java", LIMIT_S)
        os.killpg(started.pid, signal.SIGINT)
        _, told = started.communicate(timeout=LIMIT_S)
    finally:
        if started.poll() is None:
            started.kill()
    assert started.returncode == 130, told
    assert "ending as soon as Spark has started" in told and "Traceback" not in told
    wait_until(lambda: not any(map(is_alive, session(started.pid))), "all its processes are gone")


def session(leader: int) -> list[int]:
    """The processes of a session."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[3]) == leader:
            found.append(int(stat.parent.name))
    return found


HOSTILE = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "true",
    "spark.task.maxFailures": "1",
    "spark.stage.maxConsecutiveAttempts": "1",
    "spark.speculation": "true",
    "spark.speculation.interval": "100ms",
    "spark.speculation.multiplier": "0.1",
    "spark.speculation.quantile": "0.01",
    "spark.python.worker.reuse": "false",
    "spark.python.worker.idleTimeoutSeconds": "1",
    "spark.python.worker.killOnIdleTimeout": "true",
    "spark.scheduler.mode": "FAIR",
}


def test_spark_submit_runs_a_program_in_its_session_whatever_its_settings(
    program: WriteProgram, tmp_path: Path
) -> None:
    """Runs with as many cores as slots, and no others."""
    submit = Path(sys.executable).with_name("spark-submit")
    if not submit.exists():
        pytest.skip("there is no spark-submit beside this Python")
    settings = [part for key, value in HOSTILE.items() for part in ("--conf", f"{key}={value}")]
    from penstock.spark.cluster.java import ensure_java

    ensure_java()
    done = run(submit, "--master", "local[2]", *settings, program(PRINTING), cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert len(THOUGHTS.findall(done.stdout)) == 4
    assert done.stdout.endswith("the program goes on\n")
    assert {line.partition("> ")[2] for line in lines(done.stdout)} >= {"even4!", "odd2!"}
    assert "[Stage" not in done.stderr, "Spark draws no bar for the stage of a slot"


def test_a_detached_job_survives_its_terminal_and_is_cancelled_from_another(
    program: WriteProgram, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PENSTOCK_REGISTRY_DIR", str(tmp_path / "registry" / "jobs"))
    file = program(PRELUDE + 'numbers(10**9, 50.0).print()\nenv.execute("endless")\n')
    command = [sys.executable, "-m", "penstock.cli.main"]
    # A session of its own, as a terminal has: what is left of it is ended with the terminal.
    shell = subprocess.Popen(
        [*command, "run", "-d", str(file)], cwd=tmp_path, env=surroundings(), text=True, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, start_new_session=True,
    )  # fmt: skip
    printed, told = shell.communicate(timeout=LIMIT_S)
    assert shell.returncode == 0, told
    job_id = printed.strip()
    assert f"job {job_id} (endless) has started. See it: penstock top {job_id}" in told
    with suppress(ProcessLookupError):
        os.killpg(shell.pid, signal.SIGHUP)
    log = Path(re.search(r"its log is (\S+)", told)[1])  # type: ignore[index]
    wait_until(lambda: re.search(r"^(\d> )?\d+$", log.read_text(), re.M), "rows in the log", LIMIT_S)
    done = run(*command, "cancel", job_id, cwd=tmp_path)
    assert done.returncode == 0 and f"job {job_id} (endless) is cancelled" in done.stderr
    wait_until(lambda: "the job is CANCELED after" in log.read_text(), "the end in the log", LIMIT_S)
