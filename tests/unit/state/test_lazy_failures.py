"""An error that is met while state is loaded fails the subtask, whoever catches it; and a stall is no failure."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from penstock.common.types import Types
from penstock.datastream.state import ValueStateDescriptor
from penstock.operators.rows.row_functions import MapOperator
from penstock.protocol.values.reasons import SubtaskFailureReason
from penstock.runtime.process.reason_of import reason_of
from penstock.state.backend import StateError, StateSchemaError, StoredState
from penstock.state.heap.hash_map import HashMapStateBackend
from penstock.state.rocksdb import lazy_state
from penstock.state.rocksdb.database_copies import DatabaseCopies
from penstock.state.stored_keys import OF_WINDOW
from penstock.storage.segments import DamagedRange
from penstock.storage.store import StoreError
from tests.unit.state import copied_jobs
from tests.unit.state.backends import between_rows
from tests.unit.state.stored_checkpoints import Checkpoint, Store
from tests.unit.state.test_lazy_restore import NUMBER, Apart, Job, new_lazy_backend
from tests.unit.state.test_snapshots import KEY_GROUPS


@pytest.fixture(autouse=True)
def small_files(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lazy_state, "_FILE_ENTRIES_MIN", 3)


@pytest.fixture
def job(tmp_path: Path) -> Any:
    job = Job(tmp_path)
    job.checkpoint()
    return job


def away(run: StoredState) -> None:
    raise StoreError("no answer from the store")


def damaged(run: StoredState) -> None:
    raise DamagedRange(run.segment.path, run.offset, run.length_bytes, "keyed state 'number'", "other checksum")


def test_the_state_of_windows_is_restored_lazily(tmp_path: Path) -> None:
    """Its keys are keys and windows. Without this: they are not as key_by() declares keys, and the job ends."""
    backend: Any = new_lazy_backend(tmp_path)
    of_window = ValueStateDescriptor(f"{OF_WINDOW}number", Types.LONG())
    for key in range(1000):
        backend.set_current_key(key, key % KEY_GROUPS)
        backend.state_of_window("op", of_window, 5_000).update(key)
        between_rows(backend)
    apart = Apart(Store(), key_type="LONG")
    checkpoint = Checkpoint(1, backend.snapshot(1, None), {}, None)
    apart.store.write(checkpoint)
    checkpoint.snapshot.on_stored(checkpoint.ranges)
    backend.revoke()
    backend = new_lazy_backend(tmp_path)
    assert apart.restore(checkpoint, backend) > 1
    backend.set_current_key(7, 7 % KEY_GROUPS)
    assert backend.state_of_window("op", of_window, 5_000).value() == 7
    backend.revoke()


@pytest.mark.parametrize("where", ["open", "map"])
def test_damage_that_a_function_meets_is_damage(job: Job, where: str) -> None:
    """Without this: it counts as a failure of the function, and the job restarts for ever."""
    job.restart(asks=where != "open")
    job.apart.before_read = damaged
    operator: Any = object.__new__(MapOperator)
    operator.function = SimpleNamespace(map=job.get, open=lambda context: job.backend.state("op", NUMBER))
    operator.operator = SimpleNamespace(name="Counter")
    operator.context = None
    with pytest.raises(Exception, match="other checksum") as caught:
        operator.open() if where == "open" else list(operator.pipe(iter([999])))
    assert reason_of(caught.value) is SubtaskFailureReason.DAMAGED_RANGE
    job.backend.revoke()


def test_an_error_that_the_users_code_catches_fails_the_subtask(job: Job) -> None:
    """Without this: what it wrote in place of what it could not read is stored, and what was there is lost."""
    job.restart()
    job.apart.before_read = away
    with pytest.raises(StoreError):
        job.get(999)
    job.handle.update(1)
    job.apart.before_read = lambda run: None
    with pytest.raises(StoreError, match="no answer"):
        between_rows(job.backend)
    with pytest.raises(StoreError, match="no answer"):
        job.snapshot()
    job.backend.revoke()


def test_a_state_that_could_not_be_asked_for_fails_the_subtask(job: Job) -> None:
    """Without this: whoever asks again gets an empty one."""
    job.restart(asks=False)
    job.apart.before_read = away
    with pytest.raises(StoreError):
        job.backend.state("op", NUMBER)
    job.apart.before_read = lambda run: None
    job.backend.state("op", NUMBER)
    with pytest.raises(StoreError, match="no answer"):
        job.snapshot()
    job.backend.revoke()


def test_in_memory_too_no_snapshot_follows_a_state_that_was_refused(job: Job) -> None:
    backend = HashMapStateBackend(KEY_GROUPS)
    assert job.newest is not None
    job.store.restore(job.newest, backend)
    with pytest.raises(StateSchemaError):
        backend.state("op", ValueStateDescriptor("number", Types.STRING()))
    with pytest.raises(StateSchemaError):
        backend.snapshot()
    job.backend.revoke()


class Stalled:
    """A RocksDB that refuses so many deletions of ranges, because its compactions do not keep up."""

    def __init__(self, database: Any, times: int) -> None:
        self._database = database
        self.times = times

    def __getattr__(self, name: str) -> Any:
        return getattr(self._database, name)

    def delete_range(self, *arguments: Any, **more: Any) -> None:
        self.times -= 1
        if self.times >= 0:
            raise RuntimeError("Result incomplete: Write stall")
        self._database.delete_range(*arguments, **more)


def test_the_end_of_a_lazy_restore_waits_for_a_stall(job: Job) -> None:
    job.set(range(5), 2)
    job.checkpoint()
    job.restart()
    database = job.backend._database
    database._db = stalled = Stalled(database._db, 3)
    job.apart.finish()
    assert stalled.times < 0 and not job.backend._local.is_loading
    between_rows(job.backend)
    assert job.content() == {key: 2 if key < 5 else 1 for key in range(1000)}
    job.backend.revoke()


def test_a_failure_at_the_end_of_a_lazy_restore_leaves_nothing_loading(job: Job) -> None:
    job.set(range(5), 2)
    job.checkpoint()
    job.restart()
    database = job.backend._database
    database._db = SimpleNamespace(**{name: getattr(database._db, name) for name in ("get", "write", "items")})
    database._db.ingest_external_file = database.get.__self__.ingest_external_file
    job.apart.finish()  # there is no delete_range
    assert not job.backend._local.is_loading
    with pytest.raises(StateError, match="cannot be written"):
        between_rows(job.backend)
    job.backend.revoke()


def test_a_state_that_nobody_asks_for_lets_no_copy_be_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without this: it counts as not copied yet, and each checkpoint takes another copy of the rest."""
    job = copied_jobs.Job(tmp_path, copied_from_bytes=4000)
    other = job.backend.state("op", ValueStateDescriptor("other", Types.LONG()))
    for key in range(1000):
        job.backend.set_current_key(key, key % KEY_GROUPS)
        other.update(1)
        between_rows(job.backend)
    job.set(range(1000), 1)
    job.checkpoint()
    job.slot.backup.delete()
    job.slot.start()
    job.restart(is_killed=False)
    taken: list[object] = []
    take = DatabaseCopies._take

    def counted(copies: DatabaseCopies, *what: Any) -> None:
        taken.append(what)
        take(copies, *what)

    monkeypatch.setattr(DatabaseCopies, "_take", counted)
    for number in range(12):
        job.set(range(1), number)
        job.checkpoint()
    assert 0 < len(taken) < 3
    job.end()
