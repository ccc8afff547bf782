"""Copies of segments on the local disk: who finds them, what is believed, and when they are deleted."""

from __future__ import annotations

import os
import subprocess
import sys
import zlib
from pathlib import Path
from random import Random

import pytest

from penstock.protocol.values.elements import Generation
from penstock.storage.backed_up import BackedUpStore
from penstock.storage.layout import segment_path
from penstock.storage.local_backup import PREFIX, SEGMENTS_FOLDER, UNUSED_FOR_S, LocalBackup
from penstock.storage.memory import MemoryStore
from penstock.storage.segments import DamagedRange, SegmentWriter, read_range
from penstock.storage.store import StoreError

JOB = "ab" * 16
DATA = b"the state of a slot"
CRC = zlib.crc32(DATA)


def path_of(checkpoint_id: int, random: str = "r", codec: str = "none") -> str:
    return segment_path(Generation(1, 0), "inc", 0, checkpoint_id, random, codec)


class Warnings(list[str]):
    """Collects warnings."""

    def __call__(self, text: str) -> None:
        self.append(text)


def backup_in(parent: Path, warnings: Warnings | None = None, job: str = JOB) -> LocalBackup:
    return LocalBackup([str(parent)], job, warn=Warnings() if warnings is None else warnings)


def store_segment(backup: LocalBackup, checkpoint_id: int, store: MemoryStore, *earlier: str) -> str:
    path = path_of(checkpoint_id)
    BackedUpStore(store, backup).put(path, [DATA])
    backup.on_stored(checkpoint_id, [path, *earlier])
    return path


def copies_in(backup: LocalBackup) -> list[str]:
    return sorted(os.listdir(backup.path / SEGMENTS_FOLDER))


def read(store: MemoryStore, backup: LocalBackup, path: str) -> bytes:
    return read_range(store, path, 4, 5, zlib.crc32(DATA[4:9]), "a range", backup)


def test_a_copy_is_read_in_place_of_the_stored_segment(tmp_path: Path) -> None:
    store, backup = MemoryStore(), backup_in(tmp_path)
    path = store_segment(backup, 1, store)
    store.delete(path)
    backup.begin_generation()
    assert read(store, backup, path) == DATA[4:9]
    assert (backup.local_bytes, backup.remote_bytes) == (5, 0)


@pytest.mark.parametrize("codec", ["none", "lz4", "zstd"])
def test_a_segment_that_grows_is_copied_as_it_is_written(tmp_path: Path, codec: str) -> None:
    store, backup = MemoryStore(), backup_in(tmp_path)
    path = path_of(1, codec=codec)
    writer = SegmentWriter(BackedUpStore(store, backup), lambda: path, collected_bytes_max=100, codec=codec)
    pieces = [Random(n).randbytes(300) for n in range(3)]  # so that they stay large
    ranges = [writer.add([piece]) for piece in pieces]
    assert copies_in(backup) == [f".{path.rpartition('/')[2]}"], "not to be found before it is complete"
    writer.finish()
    assert (backup.path / SEGMENTS_FOLDER / path.rpartition("/")[2]).read_bytes() == store.get(path)
    store.delete(path)
    for piece, (offset, length_bytes, crc) in zip(pieces, ranges):
        assert read_range(store, path, offset, length_bytes, crc, "a range", backup) == piece


def test_a_segment_that_is_given_up_leaves_no_copy(tmp_path: Path) -> None:
    backup = backup_in(tmp_path)
    writer = SegmentWriter(BackedUpStore(MemoryStore(), backup), lambda: path_of(1), collected_bytes_max=1)
    writer.add([DATA])
    writer.abort()
    assert copies_in(backup) == []


@pytest.mark.parametrize("grows", [False, True])
def test_a_segment_that_cannot_be_stored_fails_and_leaves_no_copy(tmp_path: Path, grows: bool) -> None:
    backup = backup_in(tmp_path)
    writer = SegmentWriter(
        BackedUpStore(MemoryStore(bytes_max=3), backup), lambda: path_of(1), collected_bytes_max=1 if grows else 99
    )
    writer.add([DATA])
    with pytest.raises(StoreError, match="at most 3 bytes"):
        writer.finish()
    writer.abort()
    assert copies_in(backup) == []


def test_a_damaged_copy_is_deleted_and_the_stored_segment_read(tmp_path: Path) -> None:
    warnings = Warnings()
    store, backup = MemoryStore(), backup_in(tmp_path, warnings)
    path = store_segment(backup, 1, store)
    copy = backup.path / SEGMENTS_FOLDER / path.rpartition("/")[2]
    copy.write_bytes(DATA.replace(b"state", b"stale"))
    assert read(store, backup, path) == DATA[4:9]
    assert f"the local copy {copy} is damaged" in warnings[0] and "checkpoint storage" in warnings[0]
    assert copies_in(backup) == []
    backup.log_restored(7)
    assert warnings[1].startswith("slot 7 read 5 bytes from checkpoint storage")


def test_a_truncated_copy_is_not_believed(tmp_path: Path) -> None:
    store, backup = MemoryStore(), backup_in(tmp_path)
    path = store_segment(backup, 1, store)
    (backup.path / SEGMENTS_FOLDER / path.rpartition("/")[2]).write_bytes(DATA[:6])
    assert read(store, backup, path) == DATA[4:9]
    assert backup.remote_bytes == 5


def test_damage_of_both_is_told_of_the_stored_segment(tmp_path: Path) -> None:
    store, backup = MemoryStore(), backup_in(tmp_path)
    path = store_segment(backup, 1, store)
    with pytest.raises(DamagedRange, match="its checksum does not match"):
        read_range(store, path, 0, 5, 4711, "a range", backup)


def test_a_full_disk_is_said_once_and_the_segment_is_stored(tmp_path: Path) -> None:
    warnings = Warnings()
    store, backup = MemoryStore(), backup_in(tmp_path, warnings)
    folder = backup.path / SEGMENTS_FOLDER
    folder.rmdir()  # as root, no permission could be taken away
    first, second = store_segment(backup, 1, store), store_segment(backup, 2, store)
    assert store.list("") == sorted([first, second])
    assert len(warnings) == 1 and "no local copy of segment" in warnings[0]
    assert "execution.checkpointing.local-backup.dirs" in warnings[0]
    folder.mkdir()
    store_segment(backup, 3, store)
    folder.rename(folder.with_name("gone"))
    store_segment(backup, 4, store)
    assert len(warnings) == 2


# ---- when copies are deleted ----------------------------------------------------------------------------------------


def names(*paths: str) -> list[str]:
    return sorted(path.rpartition("/")[2] for path in paths)


def test_a_completed_checkpoint_ends_the_copies_that_it_does_not_name(tmp_path: Path) -> None:
    store, backup = MemoryStore(), backup_in(tmp_path)
    first = store_segment(backup, 1, store)
    second = store_segment(backup, 2, store, first)
    backup.on_ended(2, aborted=False)
    assert copies_in(backup) == names(first, second), "the newest checkpoint is incremental, and names the first one"
    third, fourth = store_segment(backup, 3, store), store_segment(backup, 4, store, second)
    backup.on_ended(3, aborted=False)
    assert copies_in(backup) == names(second, third, fourth), "the fourth is in progress, and names the second"
    backup.on_ended(4, aborted=True)
    assert copies_in(backup) == names(second, third), "what it named lies there until the next one completes"
    fifth = store_segment(backup, 5, store)
    backup.on_ended(5, aborted=False)
    assert copies_in(backup) == names(fifth)


def test_a_segment_that_is_being_written_is_not_deleted(tmp_path: Path) -> None:
    store, backup = MemoryStore(), backup_in(tmp_path)
    store_segment(backup, 1, store)
    BackedUpStore(store, backup).put(path_of(2), [DATA])  # stored, not acknowledged yet
    backup.on_ended(1, aborted=False)
    assert copies_in(backup) == names(path_of(1), path_of(2))


def test_the_end_of_a_savepoint_says_nothing_of_copies(tmp_path: Path) -> None:
    store, backup = MemoryStore(), backup_in(tmp_path)
    path = store_segment(backup, 1, store)
    backup.on_ended(1, aborted=False)
    backup.on_ended(2, aborted=False)
    assert copies_in(backup) == names(path)


# ---- several processes ----------------------------------------------------------------------------------------------

KILLED = """
import os, sys
from penstock.storage.backed_up import BackedUpStore
from penstock.storage.local_backup import LocalBackup
from penstock.storage.memory import MemoryStore
backup = LocalBackup([sys.argv[1]], sys.argv[2])
BackedUpStore(MemoryStore(), backup).put(sys.argv[3], [sys.argv[4].encode()])
backup.on_stored(1, [sys.argv[3]])
print(backup.path, flush=True)
os.kill(os.getpid(), 9)
"""


def kill_one(parent: Path, job: str = JOB, path: str | None = None) -> Path:
    """Let a process make a copy, and kill it. Returns its directory."""
    arguments = [str(parent), job, path or path_of(1), DATA.decode()]
    ended = subprocess.run([sys.executable, "-c", KILLED, *arguments], capture_output=True, text=True, check=False)
    assert ended.returncode == -9, ended.stderr
    return Path(ended.stdout.strip())


def test_what_a_killed_process_leaves_is_restored_from_and_deleted_with_the_next_checkpoint(tmp_path: Path) -> None:
    left = kill_one(tmp_path)
    store, backup = MemoryStore(), backup_in(tmp_path)
    backup.begin_generation()
    assert read(store, backup, path_of(1)) == DATA[4:9]
    assert copies_in(backup) == names(path_of(1)), "taken over"
    assert left.exists(), "another slot may still be restoring from it"
    second = store_segment(backup, 2, store, path_of(1))
    backup.on_ended(2, aborted=False)
    assert not left.exists()
    assert copies_in(backup) == names(path_of(1), second)
    (backup.path / SEGMENTS_FOLDER / names(second)[0]).unlink()
    assert read(store, backup, path_of(1)) == DATA[4:9]


def test_a_process_that_is_killed_later_is_left_to_its_successor(tmp_path: Path) -> None:
    store, backup = MemoryStore(), backup_in(tmp_path)
    backup.begin_generation()
    left = kill_one(tmp_path)
    store_segment(backup, 2, store)
    backup.on_ended(2, aborted=False)
    assert left.exists(), "its slot has not been restored yet"


def test_another_living_slot_has_what_a_rescaled_subtask_needs(tmp_path: Path) -> None:
    store, one, other = MemoryStore(), backup_in(tmp_path), backup_in(tmp_path)
    path = store_segment(one, 1, store)
    store.delete(path)
    other.begin_generation()
    assert read(store, other, path) == DATA[4:9]
    one.delete()
    assert read(store, other, path) == DATA[4:9], "a link of its own"
    other.delete()
    assert list(tmp_path.iterdir()) == []


def test_two_jobs_share_a_directory(tmp_path: Path) -> None:
    theirs = kill_one(tmp_path, "cd" * 16)
    store, backup = MemoryStore(), backup_in(tmp_path)
    backup.begin_generation()
    store.put(path_of(1), [DATA.upper()])
    assert read_range(store, path_of(1), 0, 3, zlib.crc32(b"THE"), "a range", backup) == b"THE"
    store_segment(backup, 2, store)
    backup.on_ended(2, aborted=False)
    assert theirs.exists(), "that job may be restarting"
    long_ago = theirs.stat().st_mtime - UNUSED_FOR_S - 1
    os.utime(theirs / "owner", (long_ago, long_ago))
    third = backup_in(tmp_path, job="ef" * 16)
    store_segment(third, 2, MemoryStore())
    third.on_ended(2, aborted=False)
    assert not theirs.exists()
    assert backup.path.exists(), "its process lives"


def test_a_slot_takes_the_disk_that_its_predecessor_had(tmp_path: Path) -> None:
    first, second = tmp_path / "a", tmp_path / "b"
    left = kill_one(second)
    for _ in range(8):
        backup = LocalBackup([str(first), str(second)], JOB)
        assert backup.path.parent == left.parent
        backup.delete()


def test_a_directory_that_cannot_be_made_is_an_os_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError):
        LocalBackup([str(tmp_path / "file" / "below")], JOB)
    assert PREFIX.startswith("penstock-")
