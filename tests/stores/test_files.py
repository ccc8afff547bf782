"""File sinks and file sources on each real server, by the tests that the mock and the fake pass, too."""

from __future__ import annotations

from tests.buckets.test_file_sinks import FileSinks
from tests.buckets.test_file_sources import FileSources


class TestFileSinks(FileSinks):
    pass


class TestFileSources(FileSources):
    pass
