"""Tests where DataFrames can be kept: where checkpoints are objects, only by PySpark 4."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from penstock.datastream.connectors.base import SourceError
from penstock.graph.job_graph import JobGraph
from penstock.jobmaster.identity import CheckpointToStartFrom, JobIdentity
from penstock.spark.frames.data_frame_sink import DataFrameSink
from penstock.spark.frames.data_frames import check_place

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
def test_before_pyspark_4_a_bucket_is_refused_by_name(identity: JobIdentity) -> None:
    with pytest.raises(SourceError, match=r"operator 'results'.*PySpark 3\.5\.9 those cannot be in s3://bucket/jobs"):
        check_place(graph(DataFrameSink(None)), identity, "3.5.9")
    check_place(graph(print), identity, "3.5.9")
    check_place(graph(DataFrameSink(None)), identity, "4.0.1")


def test_a_job_with_data_frames_and_checkpoints_in_files_is_not() -> None:
    check_place(graph(DataFrameSink(None)), JobIdentity("id", "/jobs/id"), "3.5.9")
    check_place(graph(DataFrameSink(None)), JobIdentity("id", None), "3.5.9")
