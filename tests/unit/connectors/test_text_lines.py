"""Reads lines of text in any charset: each comes once through restores."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.common import Types
from penstock.connectors.testing import read_all, verify_source
from penstock.datastream.connectors.base import SourceError
from penstock.datastream.connectors.file_system import FileSource, StreamFormat


def lines_of(*paths: Path, charset: str = "UTF-8") -> FileSource:
    return FileSource.for_record_stream_format(StreamFormat.text_line_format(charset), *map(str, paths)).build()


@pytest.mark.parametrize("parallelism", [1, 2])
def test_lines_come_once_through_restores(tmp_path: Path, parallelism: int) -> None:
    (tmp_path / "a.txt").write_text("one\ntwo\n\nfour\n")
    (tmp_path / "b.txt").write_text("five\r\nsix without an end")
    source = lines_of(tmp_path)
    assert source.produced_type == Types.STRING()
    verify_source(source, ["one", "two", "", "four", "five", "six without an end"], parallelism)


def test_more_lines_than_are_read_at_once(tmp_path: Path) -> None:
    expected = [str(n) for n in range(10_000)]
    (tmp_path / "a.txt").write_text("\n".join(expected))
    assert read_all(lines_of(tmp_path / "a.txt"), rows_max=3000) == expected


def test_a_charset(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes("größe\n".encode("latin-1"))
    assert read_all(lines_of(tmp_path / "a.txt", charset="latin-1")) == ["größe"]
    with pytest.raises(SourceError, match=r"a\.txt, line 1 cannot be read: it is not UTF-8"):
        read_all(lines_of(tmp_path / "a.txt"))


@pytest.mark.parametrize("charset", ["utf-99", "utf-16"])
def test_a_charset_that_cannot_be_read_is_refused(charset: str) -> None:
    with pytest.raises(ValueError, match=charset):
        StreamFormat.text_line_format(charset)


def test_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match=r"none\.txt is missing"):
        lines_of(tmp_path / "none.txt").validate()
