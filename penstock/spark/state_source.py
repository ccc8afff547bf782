"""Offers the state of checkpoints to Spark: `spark.read.format("penstock-state")`.

Spark 4 finds the format by itself where Penstock is installed (the package `pyspark_penstock`). Elsewhere
`register_state_source(spark)` makes it known to a session.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyspark

from penstock.common.program.failures import Fault

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FORMAT = "penstock-state"
_SINCE = 4
"""PySpark's first major version with data sources in Python."""


class NoStateSource(Fault):
    """Signals a PySpark that has no data sources in Python."""


def register_state_source(spark: SparkSession) -> None:
    """Make the format "penstock-state" known to a session. Raises `NoStateSource` on PySpark 3.5."""
    if int(pyspark.__version__.partition(".")[0]) < _SINCE:
        raise NoStateSource(
            f"PySpark {pyspark.__version__} has no data sources in Python, so there is no format '{FORMAT}': use "
            "PySpark 4.0 or later, or read state as Arrow, and make a DataFrame of it: "
            "spark.createDataFrame(penstock.state.read_checkpoint(path).keyed_state(uid, name).table().to_pandas())"
        )
    from penstock.spark.frames.state_data_source import StateDataSource

    spark.dataSource.register(StateDataSource)
