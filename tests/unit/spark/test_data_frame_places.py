"""Tests where DataFrames can be kept: not where checkpoints are objects."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from penstock.common.types import Types
from penstock.datastream.connectors.base import SourceError
from penstock.graph.job_graph import JobGraph
from penstock.jobmaster.identity import CheckpointToStartFrom, JobIdentity
from penstock.spark.data_frame_sink import DataFrameSink
from penstock.spark.data_frames import check_place
from penstock.spark.frame_files import FrameFiles

BUCKET = "s3://bucket/jobs"


def graph(*functions: Any) -> JobGraph:
    operators = [SimpleNamespace(function=function, name="results", uid="0") for function in functions]
    return cast(JobGraph, SimpleNamespace(vertices=[SimpleNamespace(operators=operators)]))


@pytest.mark.parametrize(
    "identity",
    [
        JobIdentity("id", f"{BUCKET}/id"),
        JobIdentity("id", "/jobs/id", start_from=CheckpointToStartFrom(BUCKET, 3)),
    ],
)
def test_a_job_with_data_frames_and_checkpoints_in_a_bucket_is_refused_by_name(identity: JobIdentity) -> None:
    with pytest.raises(SourceError, match=r"operator 'results'.*s3://bucket/jobs.* is no file system: set execution"):
        check_place(graph(DataFrameSink(None)), identity)
    check_place(graph(print), identity)


def test_a_job_with_data_frames_and_checkpoints_in_files_is_not() -> None:
    check_place(graph(DataFrameSink(None)), JobIdentity("id", "/jobs/id"))
    check_place(graph(DataFrameSink(None)), JobIdentity("id", None))


def test_a_savepoint_with_rows_of_data_frames_needs_a_file_system(tmp_path: Path) -> None:
    files = FrameFiles(str(tmp_path), "data-frames/0-1", Types.ROW([Types.LONG()]))
    with pytest.raises(SourceError, match="s3://bucket/jobs/savepoint is no file system"):
        files.copy_files(b"{}", f"{BUCKET}/savepoint")
