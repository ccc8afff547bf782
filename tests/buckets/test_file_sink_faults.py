"""Tests file sinks in buckets that fail: lost answers, refusals, a slow store, no room on the slot's disk."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from penstock.common import Configuration
from penstock.connectors.testing import SinkRun
from penstock.datastream.connectors.base import OutputGone, SinkError
from penstock.datastream.connectors.file_system import BucketAssigner, FileSink, ParquetBulkWriters
from tests.buckets.faulty_proxy import PASSED, Fault, FaultyProxy
from tests.buckets.test_file_sinks import NUMBER, PAIR, Folder, batch, pairs
from tools.object_stores import Server


def behind(proxy: FaultyProxy, server: Server, retry: str = "5 s") -> Folder:
    return Folder(server, **{"s3.endpoint": proxy.url, "penstock.checkpoint-storage.retry-timeout": retry})


@pytest.mark.parametrize("executed", [True, False])
@pytest.mark.parametrize(("method", "mark"), [("PUT", "pending"), ("PUT", "/part-"), ("DELETE", "pending")])
def test_an_answer_that_is_lost_at_any_step_changes_nothing(
    proxy: FaultyProxy, moto: Server, method: str, mark: str, executed: bool
) -> None:
    folder = behind(proxy, moto)
    run = SinkRun(folder.bulk(), [batch(1, 2), batch(3)], NUMBER)
    proxy.fail_once(method, mark, Fault(executed=executed), times=2)
    run.finish()
    assert folder.parquet() == [1, 2, 3] and folder.hidden() == []


def test_a_commit_that_is_cut_off_between_copy_and_delete_is_repeated(proxy: FaultyProxy, moto: Server) -> None:
    folder = behind(proxy, moto, retry="300 ms")
    sink = folder.bulk()
    run = SinkRun(sink, [], NUMBER)
    run._write(batch(1, 2))
    committables = run._writers[0].prepare_commit(1)
    proxy.fail_once("DELETE", "pending", Fault(), times=1000)
    with pytest.raises(SinkError, match="answers 503 SlowDown"):
        sink.create_committer().commit(1, committables)
    assert folder.parquet() == [1, 2] and len(folder.hidden()) == 1
    proxy.fail_once("DELETE", "none", Fault())
    sink.create_committer().commit(1, committables)
    assert folder.parquet() == [1, 2] and folder.hidden() == []


@pytest.mark.parametrize(
    ("fault", "says"),
    [
        (Fault(403, "AccessDenied"), r"refuses access to s3://penstock-tests.*s3\.access-key"),
        (Fault(400, "ExpiredToken"), "the credentials for s3://penstock-tests have expired.*renew s3.access-key"),
        (Fault(503, "SlowDown"), "answers 503"),
    ],
)
def test_a_store_that_refuses_is_named_at_every_step(proxy: FaultyProxy, moto: Server, fault: Fault, says: str) -> None:
    """Refuses before the job starts, at a barrier, and at a commit; when it has passed, the same commit succeeds."""
    folder = behind(proxy, moto, retry="300 ms")
    sink = folder.bulk()
    proxy.fault = lambda method, path: fault
    with pytest.raises(SinkError, match=says):
        sink.validate(NUMBER)
    proxy.fail_once("GET", "nothing", fault)
    run = SinkRun(sink, [], NUMBER)
    run._write(batch(1))
    committables = run._writers[0].prepare_commit(1)
    run._write(batch(2))
    proxy.fault = lambda method, path: fault
    with pytest.raises(SinkError, match=says):
        run._writers[0].prepare_commit(2)
    committer = sink.create_committer()
    with pytest.raises(SinkError, match=says) as raised:
        committer.commit(1, committables)
    assert not isinstance(raised.value, OutputGone)
    proxy.fail_once("GET", "nothing", fault)
    committer.commit(1, committables)
    assert folder.parquet() == [1]


def test_a_bucket_that_is_missing_is_named_before_the_job_starts(moto: Server) -> None:
    sink = FileSink.for_parquet("s3://no-such-bucket/out")
    sink.configure(Configuration(moto.options))
    with pytest.raises(SinkError, match="bucket s3://no-such-bucket does not exist at .*create it"):
        sink.validate(NUMBER)


def test_a_large_part_is_uploaded_in_parts_and_given_up_whole(proxy: FaultyProxy, moto: Server) -> None:
    folder = behind(proxy, moto)
    run = SinkRun(folder.text(1, part_size=64 << 20), [batch(*range(2_000_000))], NUMBER)
    run.finish()
    assert sum(method == "PUT" and "partNumber" in path for method, path in proxy.requests) > 1
    assert folder.lines() == list(range(2_000_000)) and folder.hidden() == []


def test_a_writer_that_is_closed_leaves_no_local_files(
    moto: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = Folder(moto, **{"io.tmp.dirs": str(tmp_path)})
    run = SinkRun(folder.text(), [batch(1), batch(2)], NUMBER)
    run.checkpoint()
    assert len(list(tmp_path.iterdir())) == 1
    for writer in run._writers:
        writer.close()
    assert list(tmp_path.iterdir()) == []


def test_a_slot_without_room_for_files_on_their_way_says_where_and_what_to_do(moto: Server, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    taken = SinkRun(Folder(moto, **{"io.tmp.dirs": str(tmp_path / "file")}).bulk(), [], NUMBER)
    with pytest.raises(SinkError, match=r"no directory for files on their way to s3://.*/file: .*io\.tmp\.dirs"):
        taken._write(batch(1))
    run = SinkRun(Folder(moto, **{"io.tmp.dirs": str(tmp_path / "disk")}).bulk(), [], NUMBER)
    run._write(batch(1))
    run._writers[0].prepare_commit(1)
    shutil.rmtree(tmp_path / "disk")
    with pytest.raises(SinkError, match=r"/disk/.* cannot be written.*on their way to s3://.*io\.tmp\.dirs"):
        run._write(batch(2))


def test_a_slow_store_is_only_slow(proxy: FaultyProxy, moto: Server) -> None:
    """Files of a checkpoint are uploaded and committed some at a time."""
    folder = behind(proxy, moto)
    builder = FileSink.for_bulk_format(folder.uri, ParquetBulkWriters.for_row_type())
    sink = folder._configured(builder.with_bucket_assigner(BucketAssigner.column_bucket_assigner("day")).build())
    run = SinkRun(sink, [], PAIR)
    for day in range(8):
        run._write(pairs(f"2026-11-{day:02}", day))
    proxy.fault = lambda method, path: Fault(status=0, delay_s=0.5)
    proxy.most_at_once = 0
    committables = run._writers[0].prepare_commit(1)
    assert 2 <= proxy.most_at_once <= 16
    proxy.most_at_once = 0
    sink.create_committer().commit(1, committables)
    assert 2 <= proxy.most_at_once <= 16
    proxy.fault = lambda method, path: PASSED
    assert sorted(folder.parquet()) == list(range(8)) and folder.hidden() == []
