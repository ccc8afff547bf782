"""Tests a standalone cluster of one Master and two Workers: slots, executors and a Worker are killed, and an executor
is decommissioned, while every edge stays exact. Executors have our code from the driver, and nothing else of it.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
import venv
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))
import every_edge  # as slots import it: `add_python_file` sends them the file

from penstock.common import Types
from penstock.common.job_execution import JobExecutionError
from penstock.datastream import StreamExecutionEnvironment
from tests.chaos.standalone import StandaloneCluster, decommission, executor_of, session_on, standalone_cluster
from tests.chaos.test_kills import options

pytestmark = [pytest.mark.spark, pytest.mark.timeout(240)]

ROWS, ROWS_PER_SECOND, PARALLELISM = 4000, 400.0, 2
WAIT_S = 90.0


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StandaloneCluster]:
    with standalone_cluster(tmp_path_factory.mktemp("standalone"), workers=2, cores=2) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def session(cluster: StandaloneCluster) -> Iterator[Any]:
    with session_on(cluster, {"spark.executor.cores": "2", "spark.decommission.enabled": "true"}) as session:
        yield session


class Running:
    """The job with every edge, and what is done to it."""

    def __init__(self, folder: Path, rows: int = ROWS, broadcasts: bool = True, /, **more: str) -> None:
        configuration = options(folder)
        for key, value in more.items():
            configuration.set_string(key, value)
        configuration.set_string("execution.checkpointing.unaligned.enabled", "true")
        env = StreamExecutionEnvironment.get_execution_environment(configuration)
        env.add_python_file(every_edge.__file__)
        self._output, self._rows = str(folder / "output"), rows
        self._broadcasts_to = PARALLELISM if broadcasts else 0
        every_edge.build(env, self._output, rows, ROWS_PER_SECOND, PARALLELISM, broadcasts)
        self.client = env.execute_async("every edge")

    def until(self, condition: Callable[[Any], Any], what: str) -> Any:
        """The report for which the condition holds."""
        deadline = time.monotonic() + WAIT_S
        while True:
            report = self.client.report()
            with contextlib.suppress(FileNotFoundError):  # a process has gone since the report
                if condition(report):
                    return report
            assert time.monotonic() < deadline, f"{what}: {report}"
            if self.client.get_job_execution_result().done():
                pytest.fail(f"{what}: the job has ended: {self.client.wait(0)}")
            time.sleep(0.02)

    def until_runs(self, generation: int = 0, checkpoints: int = 1) -> Any:
        """A later generation runs, and has completed checkpoints."""
        completed = self.client.report().completed
        return self.until(
            lambda r: (
                r.state == "RUNNING"
                and r.generation > generation
                and r.completed >= completed + checkpoints
                and all(r.slot_pids)
            ),
            f"generation {generation + 1}",
        )

    def assert_exact(self) -> Any:
        self.client.wait(timeout_ms=WAIT_S * 1000)
        assert every_edge.violations(self._output, self._rows, self._broadcasts_to) == []
        return self.client.report()


def test_with_a_spare_one_executor_is_decommissioned_and_slots_and_executors_are_killed(
    session: Any, tmp_path: Path
) -> None:
    job = Running(tmp_path, 12_000, **{"slotmanager.redundant-taskmanager-num": "1"})
    before = job.until_runs()
    leaving = executor_of(before.slot_pids[0])
    decommission(session, leaving)
    report = job.until(
        lambda r: (
            r.state == "RUNNING"
            and all(r.slot_pids)
            and r.generation > before.generation
            and leaving not in {executor_of(pid) for pid in r.slot_pids}
        ),
        "slots have left the executor",
    )
    assert any("decommissioned" in recovery.cause for recovery in report.recoveries)

    killed = executor_of(report.slot_pids[0])
    os.kill(killed, signal.SIGKILL)
    job.until_runs(report.generation)
    before = job.until(lambda r: r.spare_pids and all(r.slot_pids) and r.state == "RUNNING", "a spare")
    assert killed not in {executor_of(pid) for pid in before.slot_pids}

    os.kill(before.slot_pids[0], signal.SIGKILL)
    report = job.until(lambda r: r.generation > before.generation and r.state == "RUNNING", "a restart")
    assert set(report.slot_pids) & set(before.spare_pids), "the spare has taken the slot's place"
    job.assert_exact()


def test_an_executor_without_our_dependencies_is_named_with_what_it_lacks(
    session: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    venv.EnvBuilder(with_pip=False).create(tmp_path / "bare")
    bare = tmp_path / "bare" / "bin" / "python"
    monkeypatch.setattr(session.sparkContext, "pythonExec", str(bare))
    env = StreamExecutionEnvironment.get_execution_environment(options(tmp_path))
    env.from_collection([1, 2], Types.LONG()).print()
    with pytest.raises(JobExecutionError) as raised:
        env.execute_async("bare").wait(timeout_ms=WAIT_S * 1000)
    said = str(raised.value)
    assert f"at {bare} on this executor lacks cloudpickle, msgspec, numpy, pyarrow, xxhash" in said
    assert "on 127.0.0.1)" in said and "--archives" in said


def test_a_worker_and_all_that_it_has_started_are_killed(
    session: Any, cluster: StandaloneCluster, tmp_path: Path
) -> None:
    """The last test: what is left has a place for both slots."""
    job = Running(tmp_path)
    report = job.until_runs()
    lost = executor_of(report.slot_pids[0])
    cluster.kill_worker_of(lost)
    report = job.until_runs(report.generation)
    assert lost not in {executor_of(pid) for pid in report.slot_pids}
    assert job.assert_exact().restarts >= 1
