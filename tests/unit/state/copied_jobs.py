"""Provides a slot whose backends keep copies of their databases, for tests."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from penstock.common.types import Types
from penstock.datastream.state import ValueStateDescriptor
from penstock.state.backend import RestoringSubtask, StoredState
from penstock.storage.local_backup import DATABASES_FOLDER, LocalBackup
from tests.unit.state.backends import between_rows
from tests.unit.state.stored_checkpoints import Checkpoint, Store, new_backend
from tests.unit.state.test_snapshots import KEY_GROUPS

JOB = "ab" * 16
NUMBER = ValueStateDescriptor("number", Types.LONG())


class Warnings(list[str]):
    def __call__(self, text: str) -> None:
        self.append(text)


class Slot:
    """A slot with a directory for copies, and subtasks that are restored from it. `read`: the runs that were read."""

    def __init__(self, directory: Path, copied_from_bytes: int = 1) -> None:
        self.directory = directory
        self.copied_from_bytes = copied_from_bytes
        self.warnings = Warnings()
        self.read: list[StoredState] = []
        self.start()

    def start(self) -> None:
        """Start another process, which finds what the one before has left."""
        self.backup = LocalBackup([str(self.directory)], JOB, self.warnings)
        self.backup.database_copied_from_bytes = self.copied_from_bytes

    def restore(self, backend: Any, store: Store, checkpoint: Checkpoint | None, key_type: str = "LONG") -> int:
        """Restore a checkpoint; return how many of its runs a copy had."""
        self.backup.begin_generation()
        runs = () if checkpoint is None else tuple(checkpoint.ranges)
        if checkpoint is not None:
            backend.on_restored(checkpoint.number, checkpoint.ranges)
        reads = self._reads(store)
        restored = backend.restore_copy(RestoringSubtask(self.backup, range(KEY_GROUPS), key_type, runs, reads))
        if checkpoint is not None:
            for schema in checkpoint.snapshot.schemas:
                backend.restore_schema(schema)
            for run in runs:
                if run not in restored:
                    backend.restore(run.operator, run.name, reads(run), range(KEY_GROUPS))
        return len(restored)

    def _reads(self, store: Store) -> Callable[[StoredState], bytes]:
        def read(run: StoredState) -> bytes:
            self.read.append(run)
            return store.data[run.segment.path][run.offset : run.offset + run.length_bytes]

        return read

    def complete(self, checkpoint_id: int) -> None:
        self.backup.on_stored(checkpoint_id, [])
        self.backup.on_ended(checkpoint_id, aborted=False)

    def copies(self) -> list[Path]:
        return sorted((self.backup.path / DATABASES_FOLDER).iterdir())


class Job:
    """A subtask with numbers, its slot, and its store."""

    def __init__(self, directory: Path, copied_from_bytes: int = 1) -> None:
        self.directory = directory
        self.slot = Slot(directory / "copies", copied_from_bytes)
        self.store = Store()
        self.newest: Checkpoint | None = None
        self.descriptor = NUMBER
        self.start()

    def start(self, key_type: str = "LONG") -> int:
        """Start a generation; return how many runs came from a copy."""
        self.backend = new_backend("rocksdb", self.directory)
        found = self.slot.restore(self.backend, self.store, self.newest, key_type)
        self.handle = self.backend.state("op", self.descriptor)
        return found

    def restart(self, is_killed: bool = True, key_type: str = "LONG") -> int:
        self.backend.revoke()
        if is_killed:
            self.slot.backup.leave()
            self.slot.start()
        return self.start(key_type)

    def set(self, keys: range, value: int | None) -> None:
        for key in keys:
            self.backend.set_current_key(key, key % KEY_GROUPS)
            self.handle.update(value)
            between_rows(self.backend)

    def checkpoint(self, meanwhile: Callable[[], None] = lambda: None) -> None:
        """Take a checkpoint; `meanwhile` happens before the slot hears that it has completed."""
        before = self.newest
        number = 1 if before is None else before.number + 1
        taken = self.backend.snapshot(number, None if before is None else before.number)
        self.newest = Checkpoint(number, taken, {}, before)
        self.store.write(self.newest)
        taken.on_stored(self.newest.ranges)
        meanwhile()
        self.slot.complete(number)

    def sealed(self) -> Job:
        """Store 1000 numbers, and take a copy of them, to be used from now on."""
        self.set(range(1000), 1)
        self.checkpoint()
        self.set(range(10), 2)
        self.checkpoint()
        return self

    def content(self) -> dict[int, int]:
        return {key: value for key, _, value in self.backend.entries("op", "number")}

    def end(self) -> None:
        self.backend.revoke()
        self.slot.backup.delete()
