"""Tests file sources that read from buckets: what a URI names, every format, splits that are resumed, and what
fails.
"""

from __future__ import annotations

import gzip
import io
import json
import re
import urllib.request
import uuid
from collections.abc import Callable
from typing import Any

import boto3
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from penstock.common import Configuration, Row, Types
from penstock.connectors.files.input_file import InputFile
from penstock.connectors.testing import SourceRun, read_all, verify_source
from penstock.datastream.connectors.base import SourceChanged, SourceError
from penstock.datastream.connectors.file_system import FileEnumeratorProvider, FileSource, StreamFormat
from penstock.datastream.formats.csv import CsvReaderFormat, CsvSchema
from penstock.datastream.formats.json import JsonLinesFormat
from penstock.storage.opening import open_store
from penstock.storage.store import BrowsableStore
from penstock.storage.store_settings import StoreSettings
from tests.buckets.faulty_proxy import PASSED, Fault, FaultyProxy
from tests.buckets.servers import BUCKET
from tools.object_stores import Server

PAIR = Types.ROW_NAMED(["a", "b"], [Types.LONG(), Types.STRING()])
ROWS = [Row(a=n, b=f"ü{n}") for n in range(300)]


def parquet(rows: list[Row]) -> bytes:
    file = io.BytesIO()
    table = pa.table({"a": [row.a for row in rows], "b": [row.b for row in rows]})
    pq.write_table(table, file, row_group_size=100)
    return file.getvalue()


class Folder:
    """A folder in a server's bucket, and the options that reach it."""

    def __init__(self, server: Server, **options: str) -> None:
        self.uri = f"{server.uri(BUCKET)}/{uuid.uuid4().hex}"
        self.configuration = Configuration({**server.options, **options})

    @property
    def settings(self) -> StoreSettings:
        return StoreSettings.of(self.configuration)

    @property
    def store(self) -> BrowsableStore:
        return open_store(self.uri, self.settings, create_root=True)

    def put(self, **files: bytes) -> None:
        for name, data in files.items():
            self.store.put(name.replace("__", "/"), [data])

    def lines(self, *paths: str, splits: bool = False) -> FileSource:
        uris = [f"{self.uri}/{path}".rstrip("/") for path in paths]
        builder = FileSource.for_record_stream_format(StreamFormat.text_line_format(), *uris)
        if splits:
            builder.set_file_enumerator(FileEnumeratorProvider.default_splittable_file_enumerator())
        return self.configured(builder.build())

    def configured(self, source: FileSource) -> FileSource:
        source.configure(self.configuration)
        return source


class FileSources:
    """Tests file sources that read from a store. Every server passes these."""

    @pytest.fixture
    def folder(self, server: Server) -> Folder:
        return Folder(server)

    def test_what_a_uri_names(self, folder: Folder) -> None:
        files = ("x/b.txt", "x/a.txt", "x/sub/c.txt", "x/_hidden/d.txt", "x/_e.txt", "x/day=1/f.txt", "y/g.csv")
        for path in files:
            folder.store.put(path, [path.encode()])
        inside = ["x/a.txt", "x/b.txt", "x/day=1/f.txt", "x/sub/c.txt"]
        for paths, expected in {
            ("x",): inside,
            ("x/b.txt", "x/a.txt"): ["x/b.txt", "x/a.txt"],
            ("x/*.txt",): ["x/a.txt", "x/b.txt"],
            ("*/?.txt",): ["x/a.txt", "x/b.txt"],
            ("x/*",): inside,
            ("**/*.txt",): inside,
            ("**/[fg].*",): ["x/day=1/f.txt", "y/g.csv"],
            ("x/s*",): ["x/sub/c.txt"],
            ("",): [*inside, "y/g.csv"],
        }.items():
            assert read_all(folder.lines(*paths)) == expected, paths

    def test_a_name_that_looks_like_a_pattern_is_a_name_if_there_is_such_an_object(self, folder: Folder) -> None:
        for path in (
            "export[1].txt",
            "export1.txt",
            "a*b.txt",
            "aab.txt",
            "run[2]/x.txt",
            "run2/x.txt",
            "run2/[x].txt",
        ):
            folder.store.put(path, [path.encode()])
        for path, expected in {
            "export[1].txt": ["export[1].txt"],
            "export[!2].txt": ["export1.txt"],
            "a*b.txt": ["a*b.txt"],
            "a*.txt": ["a*b.txt", "aab.txt"],
            "run[2]": ["run[2]/x.txt"],
            "run[2]/*.txt": ["run[2]/x.txt"],
            "run[1-3]/[x].txt": ["run2/x.txt"],
        }.items():
            assert read_all(folder.lines(path)) == expected, path

    def test_what_a_uri_does_not_name(self, folder: Folder) -> None:
        folder.put(x___hidden=b"")
        for path, says in {
            "none.txt": "none.txt is missing: there is no such file",
            "x": "no files in directory .*/x",
            "x/[b].txt": r"no file matches .*/x/\[b\].txt",
            "x/*.txt": r"no file matches .*/x/\*.txt",
        }.items():
            with pytest.raises(SourceError, match=says):
                folder.lines(path).validate()

    def test_parquet_is_resumed_wherever_it_was_cut(self, folder: Folder) -> None:
        folder.put(in__1=parquet(ROWS[:250]), in__2=parquet(ROWS[250:]))
        verify_source(folder.configured(FileSource.for_parquet(f"{folder.uri}/in")), ROWS, 2, rows_max=(60, 1000))

    @pytest.mark.parametrize("splits", [False, True])
    def test_lines_are_resumed_wherever_they_were_cut(
        self, folder: Folder, splits: bool, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("penstock.connectors.formats.text.text_bytes.SPLIT_BYTES", 500)
        rows = [f"line {n}" for n in range(300)]
        folder.put(in__1=("\n".join(rows) + "\n").encode())
        verify_source(folder.lines("in", splits=splits), rows, 2, rows_max=(70, 1000))

    def test_csv_json_and_compressed_lines(self, folder: Folder) -> None:
        folder.put(csv=b"".join(f"{row.a},{row.b}\n".encode() for row in ROWS))
        folder.put(json=b"".join(json.dumps({"a": row.a, "b": row.b}).encode() + b"\n" for row in ROWS))
        folder.store.put("lines.gz", [gzip.compress(b"".join(f"{row.b}\n".encode() for row in ROWS))])
        schema = CsvSchema.builder().add_number_column("a", Types.LONG()).add_string_column("b").build()
        formats: dict[str, Any] = {"csv": CsvReaderFormat.for_schema(schema), "json": JsonLinesFormat.for_schema(PAIR)}
        for name, format in formats.items():
            source = FileSource.for_record_stream_format(format, f"{folder.uri}/{name}").build()
            assert read_all(folder.configured(source)) == ROWS
        assert read_all(folder.lines("lines.gz")) == [row.b for row in ROWS]

    def test_a_file_that_was_replaced_is_refused(self, folder: Folder) -> None:
        folder.put(a=b"1\n2\n3\n")
        source = folder.lines("a")
        run = SourceRun(source)
        run.read(1)
        snapshot = run.snapshot()
        run.close()
        folder.store.delete("a")
        with pytest.raises(SourceError, match="/a does not exist"):
            SourceRun(source, restored=snapshot).read(10)
        folder.put(a=b"1\n2\n3\n4\n")
        with pytest.raises(SourceChanged, match="/a has changed.*its size was 6 bytes and is 8"):
            SourceRun(source, restored=snapshot).read(10)

    def test_a_large_file_is_read_in_ranges(self, folder: Folder) -> None:
        data = b"".join(b"%09d\n" % n for n in range(2_500_000))
        folder.put(large=data)
        file = InputFile(f"{folder.uri}/large", folder.settings).open()
        assert file.size() == len(data)
        parts = []
        while part := file.read(3_333_333):
            parts.append(part)
        assert b"".join(parts) == data
        for at, size in ((len(data) - 5, 100), (0, 10), (12_345_678, 9_000_000), (len(data), 1)):
            file.seek(at)
            assert file.read(size) == data[at : at + size]
        file.close()


class TestFileSources(FileSources):
    pass


def put_raw(server: Server, folder: Folder, *keys: str) -> None:
    """Put objects whose keys our own client refuses. A key that ends with a slash marks a folder, and is empty."""
    client = boto3.client(
        "s3",
        endpoint_url=server.options["s3.endpoint"],
        aws_access_key_id=server.options["s3.access-key"],
        aws_secret_access_key=server.options["s3.secret-key"],
        region_name="us-east-1",
    )
    for key in keys:
        name = folder.uri.removeprefix(f"{server.uri(BUCKET)}/")
        client.put_object(Bucket=BUCKET, Key=f"{name}/{key}", Body=b"" if key.endswith("/") else key.encode())


def test_objects_that_mark_folders_are_no_files(moto: Server) -> None:
    folder = Folder(moto)
    put_raw(moto, folder, "in/", "in/a.txt", "in/deeper/", "in/deeper/b.txt", "in/empty/", "in/empty/below/")
    folder.store.put("in/none.txt", [b""])
    assert read_all(folder.lines("in")) == ["in/a.txt", "in/deeper/b.txt"]
    assert read_all(folder.lines("in/*")) == ["in/a.txt", "in/deeper/b.txt"]
    assert folder.store.list("in") == ["in/a.txt", "in/deeper/b.txt", "in/none.txt"], "an empty file is one"
    assert folder.store.list("in/deeper") == ["in/deeper/b.txt"]


@pytest.mark.parametrize("key", ["in//b.txt", "in/./b.txt", "in/deeper//x/y.txt"])
def test_an_object_that_cannot_be_named_is_left_out_with_a_warning(
    moto: Server, key: str, caplog: pytest.LogCaptureFixture
) -> None:
    folder = Folder(moto, **{"penstock.checkpoint-storage.retry-timeout": "1 h"})
    put_raw(moto, folder, "in/a.txt", "in/deeper/", "in/deeper/c.txt", "in/empty/", key)
    folder.store.put("in/none.txt", [b""])
    assert read_all(folder.lines("in")) == ["in/a.txt", "in/deeper/c.txt"]
    assert re.search(rf"left out '\S+/{re.escape(key)}', because a part of the key is empty or dotted", caplog.text)
    assert folder.store.list("in") == ["in/a.txt", "in/deeper/c.txt", "in/none.txt"]
    assert folder.store.folders("in") == ["deeper", "empty"]
    assert read_all(folder.lines("in/a.txt")) == ["in/a.txt"]


def test_in_other_stores_such_an_object_is_named_at_once(gcs: Server) -> None:
    folder = Folder(gcs, **{"penstock.checkpoint-storage.retry-timeout": "1 h"})
    folder.put(a=b"a\n")
    name = folder.uri.removeprefix(f"{gcs.uri(BUCKET)}/")
    url = f"{gcs.options['penstock.checkpoint-storage.gs.endpoint']}/{BUCKET}/{name}//b.txt"
    put = urllib.request.Request(url, b"b", {"Authorization": "Bearer none"}, method="PUT")
    urllib.request.urlopen(put, timeout=10).close()
    with pytest.raises(SourceError, match=r"an object with the key '\S+//b.txt', a part of which .*rename or delete"):
        folder.lines("").validate()


# ---- what fails, on moto --------------------------------------------------------------------------------------------


def behind(proxy: FaultyProxy, server: Server, retry: str) -> Folder:
    return Folder(server, **{"s3.endpoint": proxy.url, "penstock.checkpoint-storage.retry-timeout": retry})


def test_the_same_size_written_again_is_another_file(moto: Server) -> None:
    """Compares its tag, which differs even within the second that times of modification are told to."""
    folder = Folder(moto)
    folder.put(a=b"1\n2\n3\n")
    source = folder.lines("a")
    run = SourceRun(source)
    run.read(1)
    snapshot = run.snapshot()
    folder.store.delete("a")
    folder.put(a=b"4\n5\n6\n")
    with pytest.raises(SourceChanged, match="/a has changed.*its tag was"):
        SourceRun(source, restored=snapshot).read(10)


def test_a_store_that_is_overloaded_for_a_moment_is_asked_again(proxy: FaultyProxy, moto: Server) -> None:
    folder = behind(proxy, moto, "5 s")
    folder.put(a=parquet(ROWS))
    counts = iter(range(1_000_000))
    proxy.fault = lambda method, path: Fault() if next(counts) % 2 else PASSED
    assert read_all(folder.configured(FileSource.for_parquet(f"{folder.uri}/a"))) == ROWS


def test_many_files_of_a_slow_store_are_inspected_at_once(proxy: FaultyProxy, moto: Server) -> None:
    folder = behind(proxy, moto, "5 s")
    folder.put(**{f"in__{n:02}": b"%d\n" % n for n in range(40)})
    proxy.fault = lambda method, path: Fault(status=0, delay_s=0.2)
    proxy.most_at_once = 0
    source = folder.lines("in")
    source.validate()
    assert 4 <= proxy.most_at_once <= 24
    proxy.fault = lambda method, path: PASSED
    assert read_all(source) == [str(n) for n in range(40)]


FAULTS = [
    (Fault(403, "AccessDenied"), r"refuses access to s3://penstock-tests.*s3\.access-key"),
    (Fault(400, "ExpiredToken"), "the credentials for s3://penstock-tests have expired.*renew s3.access-key"),
    (Fault(503, "SlowDown"), "answers 503"),
]


@pytest.mark.parametrize(("fault", "says"), FAULTS)
@pytest.mark.parametrize("kind", ["lines", "parquet", "gzip"])
def test_a_store_that_refuses_is_named(proxy: FaultyProxy, moto: Server, kind: str, fault: Fault, says: str) -> None:
    """Refuses before the job starts, when a file is opened, and in the middle of a file; the same position is read
    later."""
    folder = behind(proxy, moto, "300 ms")
    lines = b"".join(f"{row.b}\n".encode() for row in ROWS)
    folder.put(lines=lines, parquet=parquet(ROWS))
    folder.store.put("lines.gz", [gzip.compress(lines)])
    make: Callable[[], FileSource] = {
        "lines": lambda: folder.lines("lines"),
        "gzip": lambda: folder.lines("lines.gz"),
        "parquet": lambda: folder.configured(FileSource.for_parquet(f"{folder.uri}/parquet")),
    }[kind]
    proxy.fault = lambda method, path: fault
    with pytest.raises(SourceError, match=says):
        make().validate()
    proxy.fault = lambda method, path: PASSED
    source = make()
    expected = read_all(source)
    run = SourceRun(source)
    proxy.fault = lambda method, path: fault
    with pytest.raises(SourceError, match=says):
        run.read(10)
    run.close()
    proxy.fault = lambda method, path: PASSED
    assert read_all(source) == expected


@pytest.mark.parametrize(("fault", "says"), FAULTS)
def test_a_refusal_in_the_middle_of_a_file_is_named(proxy: FaultyProxy, moto: Server, fault: Fault, says: str) -> None:
    folder = behind(proxy, moto, "300 ms")
    rows = [f"{n:099}" for n in range(200_000)]
    folder.put(large="\n".join(rows).encode())
    source = folder.lines("large")
    run = SourceRun(source)
    found: list[Any] = []
    while len(found) < 5_000:
        read = run.read(5_000)
        assert read is not None
        found += read[1]
    snapshot = run.snapshot()
    proxy.fault = lambda method, path: fault
    with pytest.raises(SourceError, match=says):
        while run.read(5_000) is not None:
            pass
    run.close()
    proxy.fault = lambda method, path: PASSED
    resumed = SourceRun(source, restored=snapshot)
    while (read := resumed.read(50_000)) is not None:
        found += read[1]
    assert found == rows


def test_a_bucket_that_is_missing_is_named(moto: Server) -> None:
    source = FileSource.for_parquet("s3://no-such-bucket/in")
    source.configure(Configuration(moto.options))
    with pytest.raises(SourceError, match="bucket s3://no-such-bucket does not exist at .*create it"):
        source.validate()
