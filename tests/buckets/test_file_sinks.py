"""Tests file sinks in buckets: exactly once through kills and removed objects, and nothing left over."""

from __future__ import annotations

import io
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from penstock.common import Configuration, Encoder, Types
from penstock.connectors.files.stored_parts import StoredParts
from penstock.connectors.testing import Kill, SinkRun, verify_sink
from penstock.datastream.connectors.base import OutputGone
from penstock.datastream.connectors.file_system import (
    BucketAssigner,
    FileCompactor,
    FileCompactStrategy,
    FileSink,
    ParquetBulkWriters,
    RollingPolicy,
)
from penstock.storage import bucket
from penstock.storage.opening import open_store
from penstock.storage.store import BrowsableStore
from penstock.storage.store_settings import StoreSettings
from tests.buckets.servers import BUCKET
from tools.object_stores import Server

NUMBER = Types.LONG()
PAIR = Types.ROW_NAMED(["day", "n"], [Types.STRING(), Types.LONG()])
HOUR_MS = 3_600_000


def batch(*numbers: int) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays(NUMBER.encode(numbers), schema=NUMBER.schema)


def pairs(day: str, *numbers: int) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays(PAIR.encode([(day, n) for n in numbers]), schema=PAIR.schema)


class Folder:
    """A sink's folder in a server's bucket."""

    def __init__(self, server: Server, **options: str) -> None:
        self.uri = f"{server.uri(BUCKET)}/{uuid.uuid4().hex}/out"
        self.configuration = Configuration({**server.options, **options})

    @property
    def store(self) -> BrowsableStore:
        return open_store(self.uri, StoreSettings.of(self.configuration), create_root=True)

    def visible(self) -> list[str]:
        return [name for name in self.store.list("") if not name.startswith("_penstock/")]

    def hidden(self) -> list[str]:
        return self.store.list("_penstock")

    def lines(self) -> list[int]:
        return [int(line) for name in self.visible() for line in self.store.get(name).split()]

    def parquet(self) -> list[int]:
        files = [io.BytesIO(self.store.get(name)) for name in self.visible()]
        return [n for file in files for n in pq.read_table(file).column(0).to_pylist()]

    def text(self, interval_ms: int = HOUR_MS, part_size: int = 1 << 20) -> FileSink:
        policy = RollingPolicy.default_rolling_policy(part_size, interval_ms, interval_ms)
        builder = FileSink.for_row_format(self.uri, Encoder.simple_string_encoder())
        return self._configured(builder.with_rolling_policy(policy).build())

    def bulk(self) -> FileSink:
        return self._configured(FileSink.for_parquet(self.uri))

    def compacted(self, kind: str, checkpoints: int = 2) -> FileSink:
        strategy = FileCompactStrategy.builder().enable_compaction_on_checkpoint(checkpoints).build()
        if kind == "parquet":
            builder = FileSink.for_bulk_format(self.uri, ParquetBulkWriters.for_row_type())
            return self._configured(builder.enable_compact(strategy, FileCompactor.parquet_file_compactor()).build())
        builder = FileSink.for_row_format(self.uri, Encoder.simple_string_encoder())
        compactor = {
            "text": FileCompactor.concat_file_compactor(),
            "together": FileCompactor.identical_file_compactor(),
        }[kind]
        return self._configured(builder.enable_compact(strategy, compactor).build())

    def _configured(self, sink: FileSink) -> FileSink:
        sink.configure(self.configuration)
        return sink


class FileSinks:
    """Tests file sinks in a store. Every server passes these."""

    @pytest.fixture
    def folder(self, server: Server) -> Folder:
        return Folder(server)

    @pytest.mark.parametrize("kind", ["hour", "at once", "small", "bulk", "text", "parquet", "together"])
    def test_rows_are_visible_once_through_every_kill(
        self, server: Server, kind: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        # A killed process uploads nothing; the threads of this one would do so after its successor has swept.
        send_ahead = StoredParts.send_ahead

        def at_once(self: StoredParts, name: str, pending: str) -> None:
            send_ahead(self, name, pending)
            self._ahead[name][1].result()

        monkeypatch.setattr(StoredParts, "send_ahead", at_once)
        made: list[Folder] = []

        def make_sink() -> tuple[FileSink, Any]:
            folder = Folder(server)
            made.append(folder)
            makers: dict[str, Callable[[], FileSink]] = {
                "hour": folder.text,
                "at once": lambda: folder.text(1),
                "small": lambda: folder.text(part_size=1),
                "bulk": folder.bulk,
                "text": lambda: folder.compacted("text"),
                "parquet": lambda: folder.compacted("parquet"),
                "together": lambda: folder.compacted("together"),
            }
            return makers[kind](), folder.parquet if kind in ("bulk", "parquet") else folder.lines

        verify_sink(make_sink, [[1, 2, 3], [4, 5], [6, 7, 8]], NUMBER, parallelism=2 if kind == "hour" else 1)
        assert made
        for folder in made:
            assert folder.hidden() == []

    def test_a_part_grows_over_checkpoints_and_is_one_object(self, folder: Folder) -> None:
        run = SinkRun(folder.text(), [batch(n) for n in range(6)], NUMBER)
        for n in range(6):
            run.checkpoint()
            assert len(folder.hidden()) == n + 1, "what a part has gained is a piece"
        assert folder.visible() == []
        run.checkpoint(Kill.WRITING)
        run.finish()
        assert len(folder.visible()) == 1
        assert folder.lines() == list(range(6)) and folder.hidden() == []

    def test_buckets_are_folders(self, folder: Folder) -> None:
        builder = FileSink.for_bulk_format(folder.uri, ParquetBulkWriters.for_row_type())
        sink = folder._configured(builder.with_bucket_assigner(BucketAssigner.column_bucket_assigner("day")).build())
        days = ("2026-11-23", "a/b:c é", "")
        run = SinkRun(sink, [pairs(day, 1, 2) for day in days], PAIR)
        run.finish()
        found = {name.rpartition("/")[0] for name in folder.visible()}
        assert found == {"day=2026-11-23", "day=a%2Fb%3Ac é", "day=__HIVE_DEFAULT_PARTITION__"}
        assert folder.parquet() == [1, 2] * 3 and folder.hidden() == []

    def test_what_is_pending_is_not_visible_and_a_commit_may_be_repeated(self, folder: Folder) -> None:
        sink = folder.bulk()
        run = SinkRun(sink, [], NUMBER)
        run._write(batch(1, 2))
        committables = run._writers[0].prepare_commit(1)
        assert folder.visible() == [] and len(folder.hidden()) == 1
        for _ in range(3):
            sink.create_committer().commit(1, committables)
            assert folder.parquet() == [1, 2] and folder.hidden() == []

    def test_a_pending_object_that_is_gone_ends_the_job(self, folder: Folder) -> None:
        sink = folder.bulk()
        run = SinkRun(sink, [], NUMBER)
        run._write(batch(1, 2))
        committables = run._writers[0].prepare_commit(1)
        (pending,) = folder.hidden()
        folder.store.delete(pending)
        with pytest.raises(
            OutputGone, match=r"neither \S+/_penstock/\S+\.pending, .*nor \S+/part-\S+\.parquet.*exists"
        ):
            sink.create_committer().commit(1, committables)
        folder.store.put(pending, [b"others"])
        with pytest.raises(OutputGone, match=r"\.pending has 6 bytes, but \d+ were written"):
            sink.create_committer().commit(1, committables)
        assert folder.visible() == []

    def test_a_visible_object_that_was_changed_is_not_taken_for_committed(self, folder: Folder) -> None:
        sink = folder.bulk()
        run = SinkRun(sink, [], NUMBER)
        run._write(batch(1, 2))
        committables = run._writers[0].prepare_commit(1)
        sink.create_committer().commit(1, committables)
        (name,) = folder.visible()
        folder.store.delete(name)
        folder.store.put(name, [b"others"])
        with pytest.raises(OutputGone, match=r"part-\S+ has 6 bytes, but \d+ were written"):
            sink.create_committer().commit(1, committables)

    def test_a_piece_that_is_gone_ends_the_job(self, folder: Folder) -> None:
        run = SinkRun(folder.text(), [batch(1), batch(2)], NUMBER)
        run.checkpoint()
        run.checkpoint()
        folder.store.delete(folder.hidden()[1])
        with pytest.raises(OutputGone, match=r"_penstock/\S+inprogress has 2 bytes, and its checkpoint says 4"):
            run._restart()
        folder.store.delete(folder.hidden()[0])
        with pytest.raises(OutputGone, match="rows of a completed checkpoint are lost"):
            run._restart()

    def test_an_older_checkpoint_finds_the_rows_of_a_part_that_is_visible_now(self, folder: Folder) -> None:
        run = SinkRun(folder.text(), [batch(1), batch(2)], NUMBER)
        run.checkpoint()
        states = run._writer_states
        run.finish()
        assert folder.lines() == [1, 2]
        (name,) = folder.visible()
        run._writer_states, run._newest = states, []
        run._start()
        run.finish()
        assert [folder.store.get(n) for n in folder.visible() if n != name] == [b"1\n"]

    @pytest.mark.parametrize("parallelism", [1, 2])
    def test_what_was_prepared_in_vain_is_swept(self, folder: Folder, parallelism: int) -> None:
        """Sweeps at once, and even without any checkpoint: the restored checkpoint names what is still to be
        committed."""
        run = SinkRun(folder.bulk(), [batch(n, n) for n in range(4)], NUMBER, parallelism)
        run.checkpoint(Kill.PREPARED)
        assert folder.hidden() == []
        run.checkpoint()
        run.checkpoint(Kill.PREPARED)
        assert folder.hidden() == []
        run.finish()
        assert sorted(folder.parquet()) == [0, 0, 1, 1, 2, 2, 3, 3]

    def test_another_job_in_the_same_folder_is_left_alone(self, folder: Folder) -> None:
        other = SinkRun(folder.bulk(), [], NUMBER, job_id="other")
        other._write(batch(1))
        committables = other._writers[0].prepare_commit(1)
        run = SinkRun(folder.bulk(), [batch(2)], NUMBER)
        run.checkpoint(Kill.PREPARED)
        run.finish()
        assert folder.parquet() == [2] and len(folder.hidden()) == 1
        folder.bulk().create_committer().commit(1, committables)
        assert sorted(folder.parquet()) == [1, 2]

    def test_the_state_of_a_writer_stays_small(self, folder: Folder) -> None:
        run = SinkRun(folder.bulk(), [batch(n) for n in range(10)], NUMBER)
        sizes = set()
        for _ in range(10):
            run.checkpoint()
            sizes.add(len(run._writers[0].snapshot()[0]))
        assert len(sizes) == 1

    def test_a_sink_that_moves_takes_its_rows_along(self, server: Server, tmp_path: Path) -> None:
        """Moves a sink from one folder to another, and from a file system to a store."""
        first, second = Folder(server), Folder(server)
        policy = RollingPolicy.default_rolling_policy(1 << 20, HOUR_MS, HOUR_MS)
        builder = FileSink.for_row_format(str(tmp_path), Encoder.simple_string_encoder())
        run = SinkRun(builder.with_rolling_policy(policy).build(), [batch(1), batch(2), batch(3)], NUMBER)
        run.checkpoint()
        run.sink = first.text()
        run._restart()
        run.checkpoint()
        run.sink = second.text()
        run._restart()
        run.finish()
        assert sorted(first.lines() + second.lines()) == [1, 2, 3]
        assert first.hidden() == second.hidden() == [] and list(tmp_path.iterdir()) == []


class TestFileSinks(FileSinks):
    def test_what_a_copy_request_refuses_is_read_and_written(
        self, folder: Folder, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(bucket, "COPIED_BYTES_MAX", 10)
        monkeypatch.setattr(bucket, "_COPY_STEP_BYTES", 7)
        sink = folder.text(part_size=1)
        run = SinkRun(sink, [], NUMBER)
        run._write(batch(*range(100)))
        committables = run._writers[0].prepare_commit(1)
        (pending,) = folder.hidden()
        data = folder.store.get(pending)
        sink.create_committer().commit(1, committables)
        folder.store.put(pending, [data])  # cut off after the copy
        sink.create_committer().commit(1, committables)
        assert folder.lines() == list(range(100)) and folder.hidden() == []
