"""Kills the driver by SIGKILL behind each step of a stop with a savepoint, with and without a drain, and of a rescale.

The command that resumes the job finds one of two outcomes, which the step decides: the job continues, or it has ended
with the savepoint, and a new job starts from that. The rows of committed files decide: each key's counts are 1, 2, 3,
and so on, each once.

A run without a kill shows which steps there are, so one that is new has to be named here. Of the long lists, a third is
tested each day: the simulation kills at each step in every run.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import pytest

from penstock.cli.savepoint_disposal import dispose
from penstock.common import Configuration
from penstock.jobmaster.identity import RestoreSourceError, identify
from penstock.protocol.values.log_entries import Ended, stopped_with
from penstock.storage.layout import METADATA_NAME
from penstock.storage.log import read_log
from penstock.storage.opening import open_store
from penstock.storage.store import ObjectStore, StoreError
from tests.chaos.dying_driver import RESCALE
from tests.drawn import of_today
from tests.spark.run_programs import ROOT
from tests.spark.small_jobs import committed

LIMIT_S = 240.0
pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(1800)]
ROWS, KEYS = 18_000, 13

PROGRAM = """
import json, sys, time
from pathlib import Path
from penstock.common import Configuration, Encoder, Types, WatermarkStrategy
from penstock.datastream import StreamExecutionEnvironment
from penstock.datastream.connectors.datagen import DataGeneratorSource
from penstock.datastream.connectors.file_system import FileSink, RollingPolicy
from tests.chaos import dying_driver

folder, rows, keys, parallelism, what, fatal, options = sys.argv[1:]
hurries, keys = Path(folder, "hurries"), int(keys)
# What a drain emits has to be processed before its savepoint, so there the sources are what is slow.
read_s, sum_s = (0.004, 0.001) if Path(folder, "drains").exists() else (0.0, 0.01)

def number(i):
    if read_s and not hurries.exists():
        time.sleep(read_s)
    return (i % keys, 1)

def slowly(a, b):
    if not hurries.exists():
        time.sleep(sum_s)
    return (a[0], a[1] + b[1])

env = StreamExecutionEnvironment.get_execution_environment(Configuration(json.loads(options)))
env.set_parallelism(int(parallelism))
PAIR = Types.TUPLE([Types.LONG(), Types.LONG()])
source = DataGeneratorSource(number, int(rows), type_info=PAIR)
pairs = env.from_source(source, WatermarkStrategy.no_watermarks(), "numbers").rebalance().map(lambda p: p, PAIR)
counts = pairs.key_by(lambda p: p[0], Types.LONG()).reduce(slowly)
sink = FileSink.for_row_format(f"{folder}/out", Encoder.simple_string_encoder())
sink = sink.with_rolling_policy(RollingPolicy.on_checkpoint_rolling_policy()).build()
counts.rebalance().map(lambda p: f"{p[0]}:{p[1]}", Types.STRING()).sink_to(sink)

steps = dying_driver.Steps(fatal)
dying_driver.watch(steps)
client = env.execute_async("counting")
dying_driver.order(client, what, steps, f"{folder}/savepoints")
if what and not fatal:
    hurries.touch()
client.wait()
print(json.dumps({"ended": client.get_job_status().result(60).name, "steps": list(steps.seen)}), flush=True)
"""
"""A sum takes 10 ms until the test is done with its kills, so rows are in flight on every edge."""


WRITTEN = "write the savepoint"
STOP = {
    "make the savepoint's directory": False,
    "send TriggerCheckpoint": False,
    "send TriggerCheckpoint > handle SlotAck": False,
    WRITTEN: False,
    f"{WRITTEN} > log: CreateMetadata": False,
    f"{WRITTEN} > log: AppendEntry": True,
    f"{WRITTEN} > log: ListLog": True,
    f"{WRITTEN} > send CheckpointEnded": True,
    f"{WRITTEN} > commit": True,
    f"{WRITTEN} > send Leave": True,
    f"{WRITTEN} > delete": True,
    f"{WRITTEN} > send Leave > handle Left": True,
    f"{WRITTEN} > send Leave > log: AppendEntry": True,
    f"{WRITTEN} > sweep": True,
    f"{WRITTEN} > end": True,
}
"""By step behind which the driver is killed: whether the job has ended by then."""
DRAIN = {
    "send EndSources": False,
    "handle ReachedEndOfData": False,
    "handle ReachedEndOfData > send TriggerCheckpoint": False,
    "handle ReachedEndOfData > handle SlotAck": False,
    WRITTEN: False,
    f"{WRITTEN} > log: AppendEntry": True,
    f"{WRITTEN} > commit": True,
}
"""The same for a stop that drains: where it differs, and on both sides of the entry that decides."""
GROWS = (
    "handle Register",
    "send BecomeSpare",
    RESCALE,
    f"{RESCALE} > send TriggerCheckpoint",
    f"{RESCALE} > handle SlotAck",
    f"{RESCALE} > log: CreateMetadata",
    f"{RESCALE} > log: AppendEntry",
    f"{RESCALE} > send CheckpointEnded",
    "send Cancel",
    "send Cancel > handle Left",
    "send Cancel > check the checkpoint",
    "send Deploy",
    "send Deploy > handle Connected",
    "send Restore",
    "send Restore > handle Restored",
    "send StartRun",
    "send StartRun > send ReleaseVertices",
    "send StartRun > handle DrainReport",
)
"""The steps of a rescale from two slots to three."""
SHRINKS = (
    f"{RESCALE} > log: ListLog",
    "send Cancel > send Leave",
    "send Cancel > handle Left",
    "send Deploy",
    "send StartRun",
)
"""Steps of a rescale from three slots to two."""
NOT_OF_THE_ORDER = {"handle SlotStatus", "handle SplitsRequested", "send SplitsAssigned", "handle PeerLost"}
"""Steps that a job takes all the time, whatever is ordered from it, or by chance: of slots that are cancelled for a
restart one may notice first that another has closed its connections. The rest of a rescale's checkpoint, "delete" and
"commit", is that of a stop."""


def parts(*steps: Iterable[str]) -> set[str]:
    """Return the single steps of some that are named with those before them."""
    return {part for each in steps for step in each for part in step.split(" > ")}


class Job:
    """Starts drivers of a job, and of those that follow it, one after the other."""

    def __init__(self, folder: Path, drains: bool = False) -> None:
        self._folder = folder
        self._program = folder / "counting.py"
        folder.mkdir(exist_ok=True)
        self._program.write_text(PROGRAM, encoding="utf-8")
        if drains:
            (folder / "drains").touch()
        self._number = 0
        self._from: str | None = None
        self._errors = folder / "errors"

    @property
    def _job_id(self) -> str:
        return f"{self._number:032x}"

    def run(
        self, what: str = "", fatal: str = "", parallelism: int = 2, more: dict[str, str] | None = None
    ) -> tuple[int, str]:
        """Run a driver to its end. Return its exit code, and what it has printed, or written to standard error."""
        options = {
            "execution.checkpointing.interval": "500 ms",
            "execution.checkpointing.dir": str(self._folder / "checkpoints"),
            "execution.checkpointing.unaligned.enabled": "true",
            "pipeline.job-id": self._job_id,
            "penstock.progress.enabled": "false",
        }
        if self._from is not None:
            options["execution.state-recovery.path"] = self._from
        options = {key: value for key, value in {**options, **(more or {})}.items() if value}
        given = [str(self._folder), str(ROWS), str(KEYS), str(parallelism), what, fatal]
        with self._errors.open("w", encoding="utf-8") as errors:
            ended = subprocess.run(
                [sys.executable, str(self._program), *given, json.dumps(options)],
                env={**os.environ, "PYTHONPATH": str(ROOT)}, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                stderr=errors, text=True, timeout=LIMIT_S, check=False,
            )  # fmt: skip
        self._from = "latest"
        return ended.returncode, ended.stdout + self._errors.read_text(encoding="utf-8")[-4000:]

    def kill_at(self, what: str, fatal: str, parallelism: int = 2) -> None:
        """Run a driver that orders something, and is killed behind that step."""
        code, told = self.run(what, fatal, parallelism)
        if code == 0 and fatal.endswith("commit"):
            # No row had reached the sinks since the checkpoint before, so there was nothing to commit.
            self.follow(json.loads(told.partition("\n")[0])["savepoint"])
            code, told = self.run(what, fatal, parallelism)
        assert code == -signal.SIGKILL, f"{what}, killed behind {fatal!r}: the driver ended with {code}:\n{told}"

    def steps_of(self, what: str, parallelism: int = 2) -> set[str]:
        """Run a driver that orders something, and is not killed. Return the steps that it has taken until that was
        done."""
        code, told = self.run(what, parallelism=parallelism)
        assert code == 0, told
        shown = json.loads(told.partition("\n")[0])
        assert shown.keys() & {"savepoint", "rescaled"}, f"the job ended before {what!r} was done:\n{told}"
        return set(shown["steps"])

    def follow(self, savepoint: str) -> None:
        """Let the next driver start another job, from a savepoint."""
        self._number += 1
        self._from = savepoint

    @property
    def _store(self) -> ObjectStore:
        return open_store(str(self._folder / "checkpoints" / self._job_id))

    def has_ended(self) -> bool:
        """Return whether the newest job has ended, as its log says."""
        return isinstance(read_log(self._store)[-1], Ended)

    def stopped_with(self) -> str | None:
        """Return the savepoint that stopped the newest job, as its log says; None: it continues."""
        return stopped_with(read_log(self._store))

    def assert_exact(self) -> None:
        """Let the job process the rest of its rows, and compare all that was committed."""
        (self._folder / "hurries").touch()
        code, told = self.run()
        assert code == 0, told
        each = {key: len(range(key, ROWS, KEYS)) for key in range(KEYS)}
        assert committed(self._folder / "out") == {f"{key}:{n}": 1 for key in each for n in range(1, each[key] + 1)}


@pytest.mark.parametrize("what", ["stop", "drain"])
def test_the_driver_is_killed_at_each_step_of_a_stop_with_a_savepoint(what: str, tmp_path: Path) -> None:
    seen = Job(tmp_path / "without a kill", drains=what == "drain").steps_of(what)
    missed = seen - parts(STOP, DRAIN if what == "drain" else (), NOT_OF_THE_ORDER)
    assert not missed, f"the driver is killed behind none of these steps of a {what}"
    job, unfinished = Job(tmp_path, drains=what == "drain"), 0
    steps = DRAIN if what == "drain" else dict(of_today(list(STOP.items())))
    for fatal, stops in steps.items():
        job.kill_at(what, fatal)
        savepoint = job.stopped_with()
        assert (savepoint is not None) == stops, f"{what}, killed behind {fatal!r}"
        if savepoint is None:
            continue  # the next driver resumes the job, which has to complete checkpoints before it is stopped again
        if not job.has_ended():
            code, told = job.run()
            assert code == 0 and '"ended": "FINISHED"' in told and job.has_ended(), told
            assert f"was stopped with the savepoint {savepoint}" in told, told
        else:
            code, told = job.run()
            assert code == 1 and f"was stopped with the savepoint {savepoint}" in told, told
        code, told = job.run(more={"high-availability.type": "filesystem", "execution.state-recovery.path": ""})
        assert code == 0 and f"was stopped before, with the savepoint {savepoint}" in told, told
        assert sum(committed(tmp_path / "out").values()) < ROWS
        job.follow(savepoint)
    for left in (tmp_path / "savepoints").iterdir():
        if any(left.glob("s[01]_c*")) and not (left / METADATA_NAME).exists():
            unfinished += 1
            options = {"execution.state-recovery.path": str(left)}
            with pytest.raises(RestoreSourceError, match=f"{left} is an unfinished savepoint"):
                identify(Configuration(options), "counting", lambda: "f" * 32, lambda path, _: open_store(path))
            with pytest.raises(StoreError, match=f"{left} is an unfinished savepoint"):
                dispose(str(left))
    assert unfinished or WRITTEN not in steps, "a driver that was killed while slots wrote a savepoint left their files"
    job.assert_exact()


@pytest.mark.parametrize(("before", "after", "steps"), [(2, 3, GROWS), (3, 2, SHRINKS)])
def test_the_driver_is_killed_at_each_step_of_a_rescale(
    before: int, after: int, steps: tuple[str, ...], tmp_path: Path
) -> None:
    seen = Job(tmp_path / "without a kill").steps_of(f"rescale {after}", before)
    missed = seen - parts(GROWS, SHRINKS, STOP, NOT_OF_THE_ORDER)
    assert not missed, "the driver is killed behind none of these steps of a rescale"
    job = Job(tmp_path)
    for fatal in of_today(steps):
        job.kill_at(f"rescale {after}", fatal, before)
        assert job.stopped_with() is None and not job.has_ended(), "the job continues"
    job.assert_exact()
