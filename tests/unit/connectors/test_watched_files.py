"""Tests a file source that watches directories: files that come later, each once, through restores."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from penstock.common import Duration, Types
from penstock.connectors.base import NotReady, ReaderContext, SourceError, SourceReader, SplitEnumerator
from penstock.connectors.files.file_listing import ListedFile
from penstock.connectors.files.file_source import FileSource
from penstock.connectors.formats.text.text_lines import StreamFormat
from penstock.datastream.formats.csv import CsvReaderFormat, CsvSchema


def watching(*paths: Path | str) -> FileSource:
    builder = FileSource.for_record_stream_format(StreamFormat.text_line_format(), *map(str, paths))
    return builder.monitor_continuously(Duration.of_seconds(1)).build()


class Run:
    """Reads a source with two readers, which ask for splits as the runtime does."""

    def __init__(self, source: FileSource, restored: tuple[bytes, list[list[bytes]]] | None = None) -> None:
        self.source = source
        self.enumerator: SplitEnumerator = source.create_enumerator(2, None if restored is None else restored[0])
        self.readers: list[SourceReader] = [source.create_reader(ReaderContext(i, 2, "files")) for i in range(2)]
        for reader, splits in zip(self.readers, [[], []] if restored is None else restored[1]):
            if splits:
                reader.add_splits(splits)

    def look(self) -> None:
        for subtask, splits in self.enumerator.on_discovered(self.enumerator.discover()).items():
            self.readers[subtask].add_splits(splits)

    def read(self, batches: int = 1000) -> list[str]:
        """Return rows, until both readers wait or so many batches have been read."""
        found: list[str] = []
        for subtask, reader in enumerate(self.readers):
            while batches:
                batch = reader.read(2)
                if isinstance(batch, NotReady):
                    if batch.wait_ms is None:
                        splits = self.enumerator.next_splits(subtask)
                        assert splits is not None, "a source that watches has no end"
                        if not splits:
                            break
                        reader.add_splits(splits)
                    continue
                assert batch is not None
                batches -= 1
                found += batch.column(0).to_pylist()
        return found

    def snapshot(self) -> tuple[bytes, list[list[bytes]]]:
        return self.enumerator.snapshot(), [reader.snapshot() for reader in self.readers]


def write(directory: Path, name: str, *lines: str) -> None:
    (directory / name).write_text("".join(f"{line}\n" for line in lines))


def test_files_that_come_later_are_read_once(tmp_path: Path) -> None:
    write(tmp_path, "a.txt", "a1", "a2")
    source = watching(tmp_path)
    assert not source.bounded and source.produced_type == Types.STRING()
    run = Run(source)
    assert run.enumerator.discovers and run.enumerator.discovery_interval_ms == 1000
    run.look()
    assert sorted(run.read()) == ["a1", "a2"]
    write(tmp_path, "b.txt", "b1")
    write(tmp_path, ".hidden", "h1")
    write(tmp_path, "a.txt", "a1", "a2", "a3")
    (tmp_path / "below").mkdir()
    write(tmp_path / "below", "c.txt", "c1")
    run.look()
    assert sorted(run.read()) == ["b1", "c1"], "a path counts once, whatever becomes of its file"
    run.look()
    assert run.read() == []


def test_a_directory_may_be_empty_or_missing_at_the_start(tmp_path: Path) -> None:
    source = watching(tmp_path / "empty", tmp_path / "*.log")
    source.validate()
    run = Run(source)
    run.look()
    assert run.read() == []
    (tmp_path / "empty").mkdir()
    write(tmp_path / "empty", "a.txt", "a1")
    write(tmp_path, "b.log", "b1")
    run.look()
    assert sorted(run.read()) == ["a1", "b1"]


@pytest.mark.parametrize("batches", range(8))
def test_rows_come_once_through_restores(tmp_path: Path, batches: int) -> None:
    for name in "abc":
        write(tmp_path, f"{name}.txt", *(f"{name}{n}" for n in range(5)))
    run = Run(watching(tmp_path))
    run.look()
    rows = run.read(batches)
    kept = run.snapshot()
    run.read()
    write(tmp_path, "d.txt", "d0")
    again = Run(watching(tmp_path), kept)
    rows += again.read(3)
    third = Run(watching(tmp_path), again.snapshot())
    third.look()
    rows += third.read()
    assert sorted(rows) == sorted([f"{name}{n}" for name in "abc" for n in range(5)] + ["d0"])


def test_splits_of_a_former_reader_are_handed_out_again(tmp_path: Path) -> None:
    write(tmp_path, "a.txt", "a1")
    run = Run(watching(tmp_path))
    run.look()
    run.read()
    assert run.enumerator.next_splits(0) == run.enumerator.next_splits(1) == []
    run.enumerator.return_splits([b'{"id":1}'])
    assert run.enumerator.on_discovered([]) == {0: [b'{"id":1}']} or run.enumerator.on_discovered([]) == {}


def test_a_file_that_several_places_name_is_read_once(tmp_path: Path) -> None:
    (tmp_path / "below").mkdir()
    write(tmp_path, "a.txt", "a1")
    write(tmp_path / "below", "b.txt", "b1")
    run = Run(watching(tmp_path, tmp_path / "*.txt", tmp_path / "**"))
    run.look()
    assert sorted(run.read()) == ["a1", "b1"]


@pytest.mark.parametrize("looks", [1, 2])
def test_a_file_that_disappears_while_it_is_found_counts_as_never_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, looks: int
) -> None:
    write(tmp_path, "a.txt", "a1")
    write(tmp_path, "b.txt", "b1")
    source = watching(tmp_path)
    run = Run(source)
    looked: list[str] = []
    inspect = type(source._format).inspect

    def vanishes(path: str) -> None:
        if path.endswith("b.txt") and Path(path).exists():
            looked.append(path)
            if len(looked) == looks:
                Path(path).unlink()

    of = ListedFile.of

    def watched_of(path: str, *settings: Any) -> ListedFile:
        vanishes(path)
        return of(path, *settings)

    def watched_inspect(format: Any, file: Any) -> Any:
        vanishes(file.path)
        return inspect(format, file)

    monkeypatch.setattr(ListedFile, "of", staticmethod(watched_of))
    monkeypatch.setattr(type(source._format), "inspect", watched_inspect)
    run.look()
    assert run.read() == ["a1"]
    write(tmp_path, "b.txt", "b2")
    looked.clear()
    monkeypatch.undo()
    run.look()
    assert run.read() == ["b2"]


def test_a_new_file_of_other_columns_is_refused(tmp_path: Path) -> None:
    schema = CsvSchema.builder().add_string_column("a").add_number_column("b", Types.LONG()).set_use_header().build()
    write(tmp_path, "a.csv", "a,b", "x,1")
    builder = FileSource.for_record_stream_format(CsvReaderFormat.for_schema(schema), str(tmp_path))
    source = builder.monitor_continuously(Duration.of_seconds(1)).build()
    run = Run(source)
    run.look()
    write(tmp_path, "b.csv", "c", "y")
    with pytest.raises(SourceError, match="b.csv"):
        run.look()
        run.read()


def test_what_is_refused(tmp_path: Path) -> None:
    builder: Any = FileSource.for_record_stream_format(StreamFormat.text_line_format(), str(tmp_path))
    with pytest.raises(ValueError, match="the interval is more than 0"):
        builder.monitor_continuously(Duration.of_millis(0))
    assert builder.monitor_continuously(Duration.of_millis(5)).process_static_file_set().build().bounded
    parquet = FileSource.for_bulk_file_format(FileSource.for_parquet(str(tmp_path))._format, str(tmp_path))
    with pytest.raises(SourceError, match="there is no file in .* yet, and rows have the type of the first one"):
        _ = parquet.monitor_continuously(Duration.of_seconds(1)).build().produced_type
