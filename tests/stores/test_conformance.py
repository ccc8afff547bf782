"""Each real server of buckets, by the conformance suite that all other stores pass, too."""

from __future__ import annotations

import pytest

from penstock.storage.store import ObjectStore
from tests.buckets.servers import new_folder
from tests.buckets.test_buckets_conform import LargeObjects
from tests.unit.storage.conformance import BrowsableConformance
from tools.object_stores import Server


class TestBuckets(BrowsableConformance):
    @pytest.fixture
    def store(self, server: Server) -> ObjectStore:
        return new_folder(server)


class TestLargeObjects(LargeObjects):
    pass
