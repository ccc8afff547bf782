"""Tests which job it is: its id and directory, resuming it, starting another from its checkpoints, and who owns it."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from penstock.common import Types
from penstock.common.job_execution import JobExecutionError
from penstock.common.options import OptionError
from penstock.datastream import StreamExecutionEnvironment
from penstock.jobmaster.identity import RestoreSourceError
from penstock.protocol.values.log_entries import Ended
from penstock.storage.log import Entry, read_log
from penstock.storage.opening import open_store
from tests.spark.small_jobs import (
    KEPT,
    WAIT_S,
    checkpoints,
    committed,
    descendants,
    environment,
    execute,
    failure,
    file_sink,
    is_alive,
    numbers,
    wait_until,
)

pytestmark = [pytest.mark.spark, pytest.mark.timeout(200), pytest.mark.usefixtures("quick_session")]

PAIR = Types.TUPLE([Types.LONG(), Types.LONG()])
ID = "00000000000000000000000000c0ffee"
ROWS = 4000
FAST = 200_000.0


def counting(
    env: StreamExecutionEnvironment, out: Path, count: int = ROWS, rows_per_second: float = 1000.0
) -> StreamExecutionEnvironment:
    """The n-th line of key k is `k:n`, so a row that is lost or counts twice shows."""
    keyed = numbers(env, count, rows_per_second).map(lambda i: (i % 7, 1), PAIR).key_by(lambda p: p[0], Types.LONG())
    counted = keyed.reduce(lambda a, b: (a[0], a[1] + b[1]))
    counted.map(lambda p: f"{p[0]}:{p[1]}", Types.STRING()).sink_to(file_sink(out))
    return env


def expected(count: int = ROWS) -> dict[str, int]:
    return {f"{key}:{n}": 1 for key in range(7) for n in range(1, len(range(key, count, 7)) + 1)}


def cancelled(root: Path, out: Path, name: str = "counting", **options: str) -> Path:
    """The directory of a job that was cancelled after some checkpoints, and kept the newest."""
    env = counting(environment(**checkpoints(root), **KEPT, **options), out)
    client = env.execute_async(name)
    wait_until(lambda: client.report().completed >= 2, "two checkpoints")
    client.cancel().result(60)
    with pytest.raises(JobExecutionError) as ended:
        client.wait(timeout_ms=1000)
    directory = root / str(client.get_job_id())
    assert ended.value.checkpoint_path == str(directory)
    return directory


def newest_of(job: Path) -> Path:
    return max((path.parent for path in job.glob("chk-*/_metadata")), key=lambda path: int(path.name[4:]))


def content(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def last_entry(job: Path) -> Entry:
    return read_log(open_store(str(job)))[-1]


def assert_log_went_on(job: Path, before: Entry) -> None:
    """Older entries, the first fence among them, may be gone by now."""
    newest = last_entry(job)
    assert newest.sequence > before.sequence and newest.incarnation != before.incarnation


def test_a_job_has_the_given_id_and_flinks_layout_and_its_directory_resumes_it(tmp_path: Path) -> None:
    root, out = tmp_path / "checkpoints", tmp_path / "out"
    job = cancelled(root, out, pipeline_job__id=ID)
    assert job == root / ID
    before = last_entry(job)
    assert newest_of(job).is_dir() and any((job / "shared").iterdir()) and (job / "log").is_dir()
    env = counting(environment(execution_state__recovery_path=str(job), **checkpoints(root)), out, rows_per_second=FAST)
    result = execute(env, "counting")
    assert str(result.get_job_id()) == ID
    assert committed(out) == expected()
    assert_log_went_on(job, before)
    assert [folder.name for folder in root.iterdir()] == [ID]


def test_latest_finds_the_only_job_of_this_name_and_the_one_of_a_given_id(tmp_path: Path) -> None:
    root = tmp_path / "checkpoints"
    first = cancelled(root, tmp_path / "first", "first")
    second = cancelled(root, tmp_path / "second", "second")

    def latest(out: str, **options: str) -> StreamExecutionEnvironment:
        options |= checkpoints(root)
        return counting(environment(execution_state__recovery_path="latest", **options), tmp_path / out)

    with pytest.raises(RestoreSourceError, match=r"no job called 'third' has a completed checkpoint below"):
        latest("third").execute("third")
    client = latest("second").execute_async("second")
    assert str(client.get_job_id()) == second.name
    client.wait(timeout_ms=WAIT_S * 1000)
    assert committed(tmp_path / "second") == expected()
    client = latest("first", pipeline_job__id=first.name).execute_async("whatever")
    assert str(client.get_job_id()) == first.name
    client.wait(timeout_ms=WAIT_S * 1000)
    assert committed(tmp_path / "first") == expected()


def test_latest_among_jobs_of_one_name_lists_them(tmp_path: Path) -> None:
    root = tmp_path / "checkpoints"
    jobs = [cancelled(root, tmp_path / str(n)) for n in range(2)]
    with pytest.raises(RestoreSourceError) as refused:
        env = environment(execution_state__recovery_path="latest", **checkpoints(root))
        counting(env, tmp_path / "out").execute("counting")
    assert "2 jobs are called 'counting'" in str(refused.value)
    assert all(str(job) in str(refused.value) for job in jobs)


@pytest.mark.parametrize("mode", ["NO_CLAIM", "CLAIM"])
def test_a_new_job_starts_from_a_checkpoint_and_leaves_it_alone_or_takes_it(tmp_path: Path, mode: str) -> None:
    old = cancelled(tmp_path / "checkpoints", tmp_path / "out")
    checkpoint, before = newest_of(old), content(old)
    env = environment(
        execution_state__recovery_path=str(checkpoint),
        execution_state__recovery_claim__mode=mode,
        **checkpoints(tmp_path / "checkpoints", **KEPT),
    )
    client = counting(env, tmp_path / "out").execute_async("counting")
    new = tmp_path / "checkpoints" / str(client.get_job_id())
    assert new != old
    wait_until(lambda: client.report().completed >= 3, "checkpoints of its own")
    client.wait(timeout_ms=WAIT_S * 1000)
    assert committed(tmp_path / "out") == expected()
    if mode == "NO_CLAIM":
        assert content(old) == before
    else:
        assert not checkpoint.exists()
        assert content(old).keys() <= before.keys()


def test_a_fresh_start_into_a_directory_with_a_log_is_refused(tmp_path: Path) -> None:
    job = cancelled(tmp_path / "checkpoints", tmp_path / "out", pipeline_job__id=ID)
    before = content(job)
    env = counting(environment(pipeline_job__id=ID, **checkpoints(tmp_path / "checkpoints")), tmp_path / "other")
    message = failure(lambda: execute(env))
    assert "has a log already" in message and "-s" in message and "pipeline.job-id" in message
    assert content(job) == before
    assert not committed(tmp_path / "other")


@pytest.mark.parametrize(
    ("options", "error", "says"),
    [
        ({"path": "/nowhere/at/all"}, RestoreSourceError, "cannot be read as a savepoint"),
        ({"path": f"/nowhere/{ID}"}, RestoreSourceError, f"/nowhere/{ID}"),
        ({"path": f"/nowhere/{ID}", "id": "ab" * 16}, RestoreSourceError, "leave that out"),
        ({"id": "mine"}, OptionError, "pipeline.job-id"),
        ({"path": f"ftp://host/{ID}"}, Exception, "files cannot be stored at ftp://"),
    ],
)
def test_what_cannot_be_resumed_is_told_before_the_job_starts(
    tmp_path: Path, options: dict[str, str], error: type[Exception], says: str
) -> None:
    named = {"path": "execution_state__recovery_path", "id": "pipeline_job__id"}
    chosen = {named[key]: value for key, value in options.items()}
    with pytest.raises(error) as refused:
        counting(environment(**chosen, **checkpoints(tmp_path / "c")), tmp_path / "out").execute("never")
    assert says in str(refused.value)


def test_a_second_driver_that_resumes_fences_the_first_and_nothing_is_committed_twice(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root, out = tmp_path / "checkpoints", tmp_path / "out"
    first = counting(environment(pipeline_job__id=ID, **checkpoints(root)), out).execute_async("counting")
    wait_until(lambda: first.report().completed >= 2, "checkpoints of the first driver")
    options = checkpoints(root)
    env = environment(execution_state__recovery_path=str(root / ID), **options)
    second = counting(env, out).execute_async("counting")
    message = failure(lambda: first.wait(timeout_ms=WAIT_S * 1000))
    assert "this job was taken over by the driver of process" in message
    assert "has published and committed nothing since" in message
    second.wait(timeout_ms=WAIT_S * 1000)
    assert committed(out) == expected()
    ended = read_log(open_store(str(root / ID)))[-1]
    assert isinstance(ended, Ended) and ended.state == "FINISHED", "the second driver's word is the last"


PROGRAM = """
import sys
from pathlib import Path
sys.path[:0] = {paths!r}
from test_identity import ID, checkpoints, counting, environment
env = environment(pipeline_job__id=ID, **checkpoints(Path(sys.argv[1])))
counting(env, Path(sys.argv[2]), {rows}).execute_async("counting").wait()
"""


def test_a_killed_driver_leaves_no_process_and_is_resumed_by_its_directory_exactly(tmp_path: Path) -> None:
    root, out, rows = tmp_path / "checkpoints", tmp_path / "out", 1_000_000
    program = tmp_path / "job.py"
    here = Path(__file__).parent
    program.write_text(PROGRAM.format(paths=[str(here), str(here.parents[1])], rows=rows))
    driver = subprocess.Popen([sys.executable, str(program), str(root), str(out)])
    try:
        wait_until(lambda: committed(out), "the first output is committed")
        processes = descendants(driver.pid)
    finally:
        driver.send_signal(signal.SIGKILL)
        driver.wait(60)
    assert len(processes) >= 5  # the program, its JVM, PySpark's daemon, two slots
    wait_until(lambda: not any(map(is_alive, processes)), f"the end of {processes}", 15.0)
    before = last_entry(root / ID)
    env = environment(execution_state__recovery_path=str(root / ID), **checkpoints(root))
    client = counting(env, out, rows, 3000.0).execute_async("counting")
    wait_until(lambda: client.report().completed >= 3, "checkpoints of the second driver")
    client.cancel().result(60)
    lines = committed(out)
    assert set(lines.values()) == {1}
    for key in range(7):
        counted = sorted(int(line.split(":")[1]) for line in lines if line.startswith(f"{key}:"))
        assert counted == list(range(1, len(counted) + 1)), "neither a gap nor a line twice"
    assert_log_went_on(root / ID, before)


def test_a_job_without_checkpoints_cannot_be_resumed_by_mistake(tmp_path: Path) -> None:
    job = cancelled(tmp_path / "checkpoints", tmp_path / "out")
    env = environment(execution_state__recovery_path=str(job))
    started = time.monotonic()
    with pytest.raises(OptionError, match=r"execution\.checkpointing\.interval"):
        counting(env, tmp_path / "out").execute("counting")
    assert time.monotonic() - started < WAIT_S
