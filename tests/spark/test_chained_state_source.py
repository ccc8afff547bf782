"""Tests an incremental checkpoint of a running job, whose state lies in a chain of files, as a DataFrame."""

from __future__ import annotations

from pathlib import Path

import pyspark
import pytest
from pyspark.sql import SparkSession

from penstock.state import read_checkpoint
from tests.spark.chained_state import (
    FILES_CHAINED,
    INCREMENTAL,
    KEYS,
    UID,
    chained,
    counts_after,
    files_of_state,
    is_chained,
    last_after,
)
from tests.spark.small_jobs import KEPT, WAIT_S, checkpoints, environment, wait_until

pytestmark = [
    pytest.mark.spark,
    pytest.mark.timeout(200),
    pytest.mark.skipif(pyspark.__version__.startswith("3."), reason="PySpark 3.5 has no data sources in Python"),
]


def test_a_chain_of_incremental_checkpoints_is_the_state_of_all_rows_before_it(
    spark_session: SparkSession, tmp_path: Path
) -> None:
    env = environment(2, **checkpoints(tmp_path / "checkpoints"), **INCREMENTAL, **KEPT)
    chained(env, tmp_path / "out", 1_000_000, 5_000.0)
    client = env.execute_async("chained")
    job = tmp_path / "checkpoints" / str(client.get_job_id())
    wait_until(lambda: sum(v.rows_in for v in client.report().vertices) > 3 * KEYS, "all keys")
    wait_until(lambda: is_chained(str(job)), "a chain")
    client.cancel().result(WAIT_S)
    (kept,) = (path.parent for path in job.glob("chk-*/_metadata"))
    assert files_of_state(read_checkpoint(str(kept)).metadata) >= FILES_CHAINED

    def frame(name: str) -> dict[int, object]:
        options = {"path": str(kept), "uid": UID, "name": name, "num_partitions": "3"}
        rows = spark_session.read.format("penstock-state").options(**options).load().collect()
        found = {row.key: row.value for row in rows}
        assert len(rows) == len(found), "each key is there once"
        return found

    counts, last = frame("count"), frame("last")
    rows = sum(count for count in counts.values() if isinstance(count, int))
    assert rows > KEYS
    assert counts == counts_after(rows)
    assert last == last_after(rows)
