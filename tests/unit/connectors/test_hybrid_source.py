"""A hybrid source keeps side outputs, times and positions of its sources, and refuses what cannot be read together."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from penstock.common import Row, Types, WatermarkStrategy
from penstock.common.typeinfo import TIMESTAMP_COLUMN
from penstock.connectors.base import decode_split
from penstock.connectors.memory.collection import CollectionSource
from penstock.connectors.testing import SourceRun, verify_source
from penstock.datastream import OutputTag, StreamExecutionEnvironment
from penstock.datastream._streams.strategy_checks import EventTimeWarning
from penstock.datastream.connectors.base import (
    NotReady,
    ReaderContext,
    SourceError,
    SourceReader,
)
from penstock.datastream.connectors.datagen import DataGeneratorSource
from penstock.datastream.connectors.file_system import FileSource, MalformedRows, StreamFormat
from penstock.datastream.connectors.hybrid_source import HybridSource, HybridSourceBuilder
from penstock.datastream.formats.json import JsonLinesFormat
from tests.unit.connectors.hybrid_parts import Binary, BinaryReader, Discovered, hybrid, numbers

# ---- files, side outputs, times, positions outside ------------------------------------------------------------------

TAG = OutputTag("malformed")
ITEM = Types.ROW_NAMED(["n"], [Types.LONG()])


def json_files(path: Path, lines: list[str], malformed: MalformedRows) -> FileSource:
    path.write_text("\n".join(lines), encoding="utf-8")
    return FileSource.for_record_stream_format(JsonLinesFormat(ITEM, malformed_rows=malformed), str(path)).build()


def test_files_come_before_what_is_new_and_rows_that_cannot_be_read_are_not_lost(tmp_path: Path) -> None:
    files = json_files(tmp_path / "a.json", ['{"n": 0}', "no", '{"n": 1}', "nor this"], MalformedRows.side_output(TAG))
    more = json_files(tmp_path / "b.json", ["{}}", '{"n": 2}'], MalformedRows.side_output(TAG))
    source = hybrid(files, CollectionSource([Row(n=10)], ITEM), more)
    assert source.rejected_tag_id == "malformed" and source.rejected_type == files.rejected_type
    verify_source(source, [Row(n=0), Row(n=1), Row(n=10), Row(n=2)], 1)
    verify_source(source, [Row(n=0), Row(n=1), Row(n=10), Row(n=2)], 2)


def test_skipped_rows_of_all_sources_are_counted(tmp_path: Path) -> None:
    files = json_files(tmp_path / "a.json", ['{"n": 0}', "no"], MalformedRows.skip())
    run = SourceRun(hybrid(files, json_files(tmp_path / "b.json", ["no", '{"n": 2}', "no"], MalformedRows.skip())))
    while run.read(10) is not None:
        pass
    assert run.skipped_rows == 3


class Timed(Binary):
    has_timestamps = True

    def create_reader(self, context: ReaderContext) -> SourceReader:
        schema = self.produced_type.schema

        class Reader(BinaryReader):
            def read(self, rows_max: int) -> pa.RecordBatch | NotReady | None:
                got = super().read(rows_max)
                return got.append_column(TIMESTAMP_COLUMN, got.column(0)) if isinstance(got, pa.RecordBatch) else got

        return Reader(schema)


def test_rows_have_the_sources_times_if_all_sources_know_them() -> None:
    def columns(source: HybridSource) -> set[tuple[str, ...]]:
        reader, enumerator = source.create_reader(ReaderContext(0, 1, "")), source.create_enumerator(1, None)
        found = set()
        while (got := reader.read(5)) is not None:
            if isinstance(got, pa.RecordBatch):
                found.add(tuple(got.schema.names))
            elif (splits := enumerator.next_splits(0)) is not None:
                reader.add_splits(splits)
            else:
                reader.no_more_splits()
        return found

    names = tuple(Types.LONG().schema.names)
    assert columns(hybrid(Timed(0, 1), Timed(2, 3))) == {(*names, TIMESTAMP_COLUMN)}
    assert columns(hybrid(Timed(0, 1), numbers(2, 3))) == {names}
    env = StreamExecutionEnvironment.get_execution_environment()
    strategy = WatermarkStrategy.for_monotonous_timestamps()
    env.from_source(hybrid(Timed(0, 1), Timed(2, 3)), strategy, "timed")  # without a warning, which would be an error
    with pytest.warns(EventTimeWarning, match="source 'mixed'"):
        env.from_source(hybrid(numbers(0, 1), Timed(2, 3)), strategy, "mixed")


def test_each_source_reports_its_own_positions() -> None:
    first, second = Discovered(0, 1, 1), Discovered(10, 11, 1)
    enumerator = hybrid(first, second).create_enumerator(1, None)
    assert enumerator.wants_checkpoints
    enumerator.on_discovered(enumerator.discover())
    of_first = enumerator.next_splits(0)
    assert of_first is not None
    enumerator.checkpoint_completed(of_first)
    enumerator.next_splits(0)
    assert enumerator.next_splits(0) == []
    of_second = enumerator.on_discovered(enumerator.discover())[0]
    enumerator.checkpoint_completed(of_first)  # completes behind the switch
    enumerator.checkpoint_completed(of_second)
    assert (first.reported, second.reported) == ([[0, 1], [0, 1]], [[10, 11]])


def test_what_is_discovered_for_a_source_that_has_ended_is_ignored() -> None:
    """Without this: its splits get the number of the next source, whose readers cannot read them."""
    enumerator = hybrid(Discovered(0, 1, 1), Discovered(10, 11, 1)).create_enumerator(1, None)
    number, late = enumerator.discovery_number, enumerator.discover()
    enumerator.on_discovered(enumerator.discover())
    for _ in range(3):
        enumerator.next_splits(0)
    assert enumerator.discovery_number != number
    assert enumerator.on_discovered(late) == {}
    assert list(enumerator.on_discovered(enumerator.discover())) == [0]


# ---- what is refused ------------------------------------------------------------------------------------------------


def test_only_the_last_source_may_have_no_end() -> None:
    endless = DataGeneratorSource(lambda i: i, None, type_info=Types.LONG())
    assert not hybrid(numbers(0, 1), endless).bounded
    assert hybrid(numbers(0, 1), numbers(2, 3)).bounded
    with pytest.raises(
        ValueError, match=r"source 2 of the HybridSource \(DataGeneratorSource\) has no end.*set_bounded"
    ):
        hybrid(numbers(0, 1), endless, numbers(2, 3))


def test_sources_have_one_type_of_rows(tmp_path: Path) -> None:
    with pytest.raises(
        TypeError, match=r"source 3 of the HybridSource \(CollectionSource\) has rows of type .*source 1"
    ):
        hybrid(numbers(0, 1), numbers(2, 3), CollectionSource(["a"], Types.STRING()))
    with pytest.raises(TypeError, match="of type that is not declared"):
        hybrid(numbers(0, 1), CollectionSource([1]))
    (tmp_path / "a.txt").write_text("a\n")
    lines = FileSource.for_record_stream_format(StreamFormat.text_line_format(), str(tmp_path)).build()
    env = StreamExecutionEnvironment.get_execution_environment()
    with pytest.raises(
        TypeError, match=r"source 2 of the HybridSource \(NumberSequenceSource\).*source 1.*\(FileSource\)"
    ):
        env.from_source(hybrid(lines, numbers(0, 1)), WatermarkStrategy.no_watermarks(), "both")


def test_side_outputs_have_one_tag(tmp_path: Path) -> None:
    one = json_files(tmp_path / "a.json", ["{}"], MalformedRows.side_output(TAG))
    other = json_files(tmp_path / "b.json", ["{}"], MalformedRows.side_output(OutputTag("bad")))
    with pytest.raises(ValueError, match=r"source 2 of the HybridSource \(FileSource\) has the side output 'bad'"):
        hybrid(one, other)


def test_what_is_no_source_is_refused() -> None:
    with pytest.raises(TypeError, match="source 1 of the HybridSource is no Source, got .*; call build"):
        HybridSource.builder(HybridSourceBuilder(numbers(0, 1)))  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="source 2 of the HybridSource is no Source, got 'b'"):
        HybridSource.builder(numbers(0, 1)).add_source("b")  # type: ignore[arg-type]


def test_state_of_something_else_is_refused() -> None:
    three = hybrid(numbers(0, 1), numbers(2, 3), numbers(4, 5))
    enumerator = three.create_enumerator(1, None)
    while decode_split(enumerator.snapshot())["source"] < 3:
        enumerator.next_splits(0)
    with pytest.raises(SourceError, match="while source 3 of a HybridSource was read, and this one has 2"):
        hybrid(numbers(0, 1), numbers(2, 3)).create_enumerator(1, enumerator.snapshot())
    plain = numbers(0, 1).create_enumerator(1, None).snapshot()
    with pytest.raises(SourceError, match="is not of a HybridSource"):
        three.create_enumerator(1, plain)


def test_sources_that_are_added_behind_are_read_after_a_restore() -> None:
    run = SourceRun(hybrid(numbers(0, 3), numbers(4, 6)))
    before = [run.read(1) for _ in range(5)]
    run = SourceRun(hybrid(numbers(0, 3), numbers(4, 6), numbers(7, 9)), 1, run.snapshot())
    after = []
    while (found := run.read(1)) is not None:
        after += found[1]
    assert [row for _, rows in before if rows for row in rows] + after == list(range(10))  # type: ignore[misc]


def test_a_job_continues_although_all_but_one_of_the_files_that_it_has_read_are_gone(tmp_path: Path) -> None:
    for name in "ab":
        (tmp_path / name).write_text(f"{name}\n")

    def source() -> HybridSource:
        lines = FileSource.for_record_stream_format(StreamFormat.text_line_format(), str(tmp_path)).build()
        made = hybrid(lines, CollectionSource(["c", "d"], Types.STRING()))
        made.validate()
        return made

    run = SourceRun(source())
    assert [run.read(1) for _ in range(3)] == [(0, ["a"]), (0, ["b"]), (0, ["c"])]
    (tmp_path / "a").unlink()
    run = SourceRun(source(), 1, run.snapshot())
    assert run.read(1) == (0, ["d"]) and run.read(1) is None


def test_it_is_described_by_its_sources(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("a\n")
    lines = FileSource.for_record_stream_format(StreamFormat.text_line_format(), str(tmp_path)).build()
    said = hybrid(lines, CollectionSource(["b"], Types.STRING())).describe()
    assert said["connector"] == "hybrid" and said["source 1"].startswith("FileSource: connector files, paths ")
    assert said["source 2"] == "CollectionSource"
