"""Tests buckets on moto and on our fake of Google Cloud Storage: the conformance suite, and what only buckets do."""

from __future__ import annotations

import hashlib
import urllib.request

import pytest

from penstock.storage.store import BrowsableStore, ObjectExists, ObjectStore
from tests.buckets.servers import BUCKET, new_folder
from tests.unit.storage.conformance import BrowsableConformance
from tools.object_stores import Server

PART = 5 * 1024**2


class TestBuckets(BrowsableConformance):
    @pytest.fixture
    def store(self, server: Server) -> ObjectStore:
        return new_folder(server)


class LargeObjects:
    """Tests objects that are larger than a part. Every server of buckets passes these."""

    @pytest.fixture
    def store(self, server: Server) -> BrowsableStore:
        return new_folder(server, s3_upload_min_part_size="5 mb")

    def test_what_is_larger_than_a_part_is_the_same_object(self, store: BrowsableStore) -> None:
        data = b"".join(hashlib.sha256(b"%d" % i).digest() for i in range(18 * 1024**2 // 32))
        store.put("shared/put", [memoryview(data)])
        writer = store.writer("shared/grown")
        for start in range(0, len(data), 700_000):
            writer.write([memoryview(data)[start : start + 700_000]])
        writer.finish()
        writer.abort()
        for path in ("shared/put", "shared/grown"):
            assert store.size(path) == len(data)
            assert store.get(path, 1, len(data) - 2) == data[1:-1], "read in pieces"
            assert store.get(path, PART - 3, 9) == data[PART - 3 : PART + 6]
        assert [found.size_bytes for found in store.objects("shared")] == [len(data)] * 2

    def test_what_is_larger_than_a_part_replaces_nothing(self, store: BrowsableStore) -> None:
        store.put("shared/a", [b"first"])
        with pytest.raises(ObjectExists, match="shared/a"):
            store.put("shared/a", [bytes(PART + 1)])
        assert store.get("shared/a") == b"first"

    def test_an_upload_that_is_given_up_leaves_nothing(self, store: BrowsableStore) -> None:
        writer = store.writer("shared/a")
        for _ in range(3):
            writer.write([bytes(PART)])
        writer.abort()
        assert store.list("") == []


class TestLargeObjects(LargeObjects):
    pass


def test_no_parts_are_left_of_uploads_that_were_given_up(moto: Server) -> None:
    """Asks S3, because no other store lists the parts of uploads."""
    writer = new_folder(moto, s3_upload_min_part_size="5 mb").writer("shared/a")
    writer.write([bytes(3 * PART)])
    writer.abort()
    left = urllib.request.urlopen(f"{moto.url}/{BUCKET}?uploads", timeout=30).read()
    assert b"<Upload>" not in left
