"""Tests the way from captures to a segment and one acknowledgement per slot, and what is reported when that does not
work."""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from penstock.common.configuration import Configuration
from penstock.common.types import Types
from penstock.datastream import KeyedProcessFunction, RuntimeContext, StreamExecutionEnvironment
from penstock.datastream.columnar import sum_
from penstock.datastream.state import ValueStateDescriptor
from penstock.protocol.values.elements import SnapshotKind, SubtaskId
from penstock.protocol.values.messages import SlotAck
from penstock.protocol.values.metadata import SubtaskSnapshot
from penstock.protocol.values.reasons import FailureReason
from penstock.runtime.checkpoint import snapshot_writer
from penstock.runtime.checkpoint.snapshot_writer import SavepointTarget
from penstock.runtime.subtask.subtask_runner import WriterRunner
from penstock.state.backend import EncodedState, StoredState
from penstock.state.heap.hash_map_snapshot import HashMapSnapshot
from penstock.storage import local_files, segments
from penstock.storage.local import LocalStore
from penstock.storage.memory import MemoryStore
from penstock.storage.segments import DamagedRange, read_range
from penstock.storage.store import ObjectStore, StoreError
from tests.unit.runtime.jobs.small_job import CommittedRows, SmallJob, graph_of

SMALL = {
    "penstock.network.window-bytes": "6 kb",
    "penstock.network.output-queue-bytes": "6 kb",
    "penstock.network.bound-bytes-min": "6 kb",
    "penstock.parking.enabled": "false",
}


class Remember(KeyedProcessFunction):
    """Keeps `value_of(row)` per key."""

    def __init__(self, value_of: Any) -> None:
        self.value_of = value_of

    def open(self, runtime_context: RuntimeContext) -> None:
        self.last = runtime_context.get_state(ValueStateDescriptor("last", Types.PICKLED_BYTE_ARRAY()))

    def process_element(self, value: int, ctx: Any) -> Any:
        self.last.update(self.value_of(value))
        yield value


def job_with_state(value_of: Any, store: ObjectStore | None = None) -> SmallJob:
    def build(env: StreamExecutionEnvironment) -> None:
        env.disable_operator_chaining()
        stream = env.from_collection(list(range(3_000)), Types.LONG())
        stream.key_by(lambda x: x % 50, Types.LONG()).process(Remember(value_of), Types.LONG()).sink_to(CommittedRows())

    return SmallJob(graph_of(build), Configuration(SMALL), store=store or MemoryStore())


def checkpoint(job: SmallJob, checkpoint_id: int, timeout_ms: int | None) -> None:
    job.trigger(checkpoint_id, timeout_ms)
    job.run(until=lambda: job.is_acknowledged(checkpoint_id) or bool(job.declines))


def part_of(ack: SlotAck, vertex: int) -> SubtaskSnapshot:
    return next(s for s in ack.subtasks if s.vertex == vertex)


def test_one_segment_and_one_acknowledgement_per_slot_with_every_range_sound() -> None:
    job = job_with_state(lambda row: row)
    job.run(turns=25)
    checkpoint(job, 1, 0)
    (ack,) = [m for m in job.messages if isinstance(m, SlotAck)]
    assert ack.segment is not None and job.store.list("") == [ack.segment.path]
    assert job.store.size(ack.segment.path) == ack.segment.length_bytes
    assert [s.vertex for s in ack.subtasks] == [0, 1, 2]
    ranges = []
    for part in ack.subtasks:
        ranges += [(k.offset, k.length_bytes, k.crc) for k in part.keyed]
        captures = [c for i in part.inputs for c in i.captures] + [c for o in part.outputs for c in o.captures]
        ranges += [(p.offset, p.length_bytes, p.crc) for c in captures for p in c.pieces]
    for offset, length_bytes, crc in ranges:
        assert len(read_range(job.store, ack.segment.path, offset, length_bytes, crc, "a range")) == length_bytes
    at = 0
    for offset, length_bytes, _ in sorted(ranges):
        assert offset == at, "ranges fill the segment without gaps"
        at += length_bytes
    assert at == ack.segment.length_bytes
    with pytest.raises(DamagedRange, match="a range is damaged: its checksum"):
        read_range(job.store, ack.segment.path, *ranges[0][:2], ranges[0][2] ^ 1, "a range")


def test_bytes_of_state_and_of_rows_in_flight_are_told_apart_and_for_each_subtask() -> None:
    job = job_with_state(lambda row: "x" * 100)
    job.run(turns=25)
    checkpoint(job, 1, 0)
    ack = job.acks[1][0]
    source, keyed, sink = (part_of(ack, v) for v in range(3))
    assert ack.segment is not None
    assert keyed.state_bytes == sum(k.length_bytes for k in keyed.keyed) > 100
    assert source.state_bytes == sink.state_bytes == 0, "the segment's other bytes are not theirs"
    persisted = source.persisted_bytes + keyed.persisted_bytes + sink.persisted_bytes
    assert persisted + keyed.state_bytes == ack.segment.length_bytes
    assert all(s.unaligned for s in (source, keyed, sink))


def test_an_aligned_checkpoint_without_state_writes_nothing() -> None:
    def build(env: StreamExecutionEnvironment) -> None:
        env.disable_operator_chaining()
        env.from_collection(list(range(300)), Types.LONG()).map(lambda x: x, Types.LONG()).sink_to(CommittedRows())

    job = SmallJob(graph_of(build), Configuration(SMALL))
    job.run(turns=10)
    checkpoint(job, 1, None)
    ack = job.acks[1][0]
    assert ack.segment is None and job.store.list("") == []
    assert not any(s.unaligned or s.persisted_bytes for s in ack.subtasks)


@pytest.mark.parametrize("timeout_ms", [None, 0])
def test_a_store_that_is_full_declines_by_name_and_the_job_goes_on(timeout_ms: int | None) -> None:
    job = job_with_state(lambda row: "x" * 100, MemoryStore(bytes_max=50))
    job.run(turns=25)
    checkpoint(job, 1, timeout_ms)
    (decline,) = job.declines
    assert decline.reason == FailureReason.IO_EXCEPTION and "of at most 50 bytes" in decline.detail
    job.end(1, aborted=True)
    job.rest()
    assert job.all_at_end and not job.is_acknowledged(1)
    assert not job.writers[0]._checkpoints


@pytest.mark.parametrize("number", [errno.EROFS, errno.EACCES, None])
def test_a_savepoint_that_a_slot_cannot_write_is_declined_by_name_and_the_job_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int | None
) -> None:
    """The driver may write where an executor may not. None: the executor does not even see the directory."""
    directory = tmp_path / "savepoint-1"
    if number is not None:
        directory.mkdir()
        monkeypatch.setattr(local_files, "_write_all", refusal(number))
    job = job_with_state(lambda row: row)
    job.run(turns=25)
    for writer in job.writers:
        writer.mailbox.post(SavepointTarget(1, str(directory)))
    job.trigger(1, 0, SnapshotKind.SAVEPOINT)
    job.run(until=lambda: job.is_acknowledged(1) or bool(job.declines))
    decline, *_ = job.declines
    assert decline.reason == FailureReason.IO_EXCEPTION and str(directory) in decline.detail
    assert ("does not exist here" if number is None else os.strerror(number)) in decline.detail
    job.end(1, aborted=True)
    assert number is None or list(directory.iterdir()) == []
    job.declines.clear()
    checkpoint(job, 2, 0)
    assert job.is_acknowledged(2) and not job.declines
    job.end(2, aborted=False)
    job.rest()
    assert job.all_at_end


def refusal(number: int) -> Any:
    def write_all(descriptor: int, parts: Any) -> None:
        raise OSError(number, os.strerror(number))

    return write_all


class Unpicklable:
    def __init__(self) -> None:
        self.lock = threading.Lock()


def test_a_value_that_cannot_be_written_declines_with_operator_and_state() -> None:
    job = job_with_state(lambda row: Unpicklable() if row % 50 == 7 else row)
    job.run(turns=28)
    checkpoint(job, 1, None)
    decline = job.declines[0]
    assert decline.reason == FailureReason.ASYNC_EXCEPTION
    assert "'last'" in decline.detail and "lock" in decline.detail
    assert len(job.declines) == 1


def test_what_is_over_is_dropped_once_and_wakes_nobody_for_nothing() -> None:
    """Every subtask of a slot says that a checkpoint is over; each of these posted to each subtask again."""
    written: list[int] = []
    job = job_with_state(lambda row: row)
    job.writers[0]._unpark = written.append
    job.run(turns=25)
    checkpoint(job, 1, None)
    job.complete(1)
    job.run(turns=10)
    assert written == [1]
    job.trigger(2, 0)
    job.run(turns=1)
    job.end(2, aborted=True)
    job.run(turns=10)
    assert written == [1, 2]
    assert not job.writers[0]._checkpoints


def test_rows_in_flight_are_encoded_while_the_barriers_of_other_subtasks_are_on_their_way() -> None:
    job = job_with_state(lambda row: row)
    job.run(turns=25)
    job.trigger(1, 0)
    job.run(until=lambda: bool(job.writers[0]._checkpoints) and len(job.writers[0]._checkpoints[1].closed) == 2)
    (checkpoint,) = job.writers[0]._checkpoints.values()
    persisted_bytes = sum(snapshot.persisted_bytes for _, snapshot in checkpoint.closed.values())
    assert 0 < persisted_bytes <= checkpoint.segment.length_bytes
    assert not job.acks


def test_what_comes_after_the_end_of_its_checkpoint_is_let_go() -> None:
    job = job_with_state(lambda row: row)
    job.run(turns=25)
    job.writers[0].on_ended(1)
    job.trigger(1, 0)
    job.run(turns=30)
    assert not job.acks and not job.writers[0]._checkpoints


def test_what_comes_long_after_the_end_of_its_checkpoint_is_let_go() -> None:
    """A subtask that is hundreds of checkpoints behind hands it in. Without this: it is kept for ever."""
    job = job_with_state(lambda row: row)
    job.run(turns=25)
    for checkpoint_id in range(1, 1_000):
        job.writers[0].on_ended(checkpoint_id)
    job.trigger(1, 0)
    job.run(turns=1_100)
    assert not job.acks and not job.writers[0]._checkpoints


# ---- state that is too large to be collected -------------------------------------------------------------------------


@pytest.fixture
def nothing_is_collected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(segments, "COLLECTED_BYTES_MAX", 1)


def files_of(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]


@pytest.mark.usefixtures("nothing_is_collected")
def test_state_is_in_the_segment_while_windows_are_open_and_rows_in_flight_follow(tmp_path: Path) -> None:
    job = job_with_state(lambda row: row, LocalStore(tmp_path))
    job.run(turns=25)
    job.trigger(1, 0)
    job.run(until=lambda: bool(files_of(tmp_path)))
    assert not job.acks, "the state is written before the checkpoint can be acknowledged"
    job.run(until=lambda: job.is_acknowledged(1))
    (ack,) = [m for m in job.messages if isinstance(m, SlotAck)]
    assert ack.segment is not None and job.store.list("") == [ack.segment.path]
    assert job.store.size(ack.segment.path) == ack.segment.length_bytes
    found = [k for part in ack.subtasks for k in part.keyed]
    assert found and sum(k.entries for k in found) <= 50
    for k in found:
        assert len(read_range(job.store, ack.segment.path, k.offset, k.length_bytes, k.crc, "state")) == k.length_bytes


@pytest.mark.usefixtures("nothing_is_collected")
def test_nothing_of_a_checkpoint_stays_that_its_generation_did_not_finish(tmp_path: Path) -> None:
    job = job_with_state(lambda row: row, LocalStore(tmp_path))
    job.run(turns=25)
    job.trigger(1, 0)
    job.run(until=lambda: bool(files_of(tmp_path)))
    job.writers[0].close()
    assert not files_of(tmp_path) and not job.acks


@pytest.mark.usefixtures("nothing_is_collected")
def test_who_lets_go_does_not_write_large_state_to_its_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """[A slot is lost while its neighbours write: they would not restart before all of their state is in a file that
    nobody wants.]"""
    encode, made = HashMapSnapshot.encode, []

    def large(snapshot: HashMapSnapshot) -> Iterator[EncodedState | StoredState]:
        for encoded in list(encode(snapshot)) * 100:
            made.append(encoded)
            yield encoded

    monkeypatch.setattr(HashMapSnapshot, "encode", large)
    job = job_with_state(lambda row: row, LocalStore(tmp_path))
    runner = WriterRunner(job.writers[0], lambda error: pytest.fail(str(error)))
    job.run(turns=25)
    job.trigger(1, 0)
    job.run(until=lambda: bool(made))
    assert len(made) == 1 and files_of(tmp_path)
    runner.revoke()
    runner.step()
    assert len(made) == 1
    assert runner.done and not files_of(tmp_path) and not job.acks


class FullStore(MemoryStore):
    """Takes nothing that grows."""

    def put(self, path: str, parts: Sequence[bytes | memoryview]) -> None:
        raise StoreError(f"cannot write {path}: the disk is full")


@pytest.mark.usefixtures("nothing_is_collected")
def test_a_store_that_is_full_fails_the_checkpoint_and_not_the_job() -> None:
    store = FullStore()
    job = job_with_state(lambda row: row, store)
    job.run(turns=25)
    checkpoint(job, 1, 0)
    assert job.declines[0].reason == FailureReason.IO_EXCEPTION and "disk is full" in job.declines[0].detail
    job.end(1, aborted=True)
    job.run(turns=10)
    assert not store.list("") and not job.writers[0]._checkpoints
    job.run(turns=100)
    assert job.subtasks[SubtaskId(2, 0)].rows_in == 3_000, "the job has gone on"


@pytest.mark.parametrize(("bytes_max", "ends_at_once"), [(0, True), (1 << 30, False)])
def test_nobody_rests_for_state_that_takes_longer(
    monkeypatch: pytest.MonkeyPatch, bytes_max: int, ends_at_once: bool
) -> None:
    def build(env: StreamExecutionEnvironment) -> None:
        env.disable_operator_chaining()
        source = env.from_collection([(i % 50, i) for i in range(3_000)], Types.TUPLE([Types.LONG(), Types.LONG()]))
        source.key_by("f0").aggregate(total=sum_("f1")).sink_to(CommittedRows())

    monkeypatch.setattr(snapshot_writer, "_RESTED_FOR_BYTES_MAX", bytes_max)
    job = SmallJob(graph_of(build), Configuration(SMALL))
    unparked: list[int] = []
    job.writers[0]._unpark = unparked.append
    job.run(turns=25)
    job.trigger(1, 0)
    job.run(until=lambda: bool(job.writers[0]._checkpoints) and len(job.writers[0]._checkpoints[1].taken) > 1)
    assert bool(unparked) == ends_at_once and not job.acks
