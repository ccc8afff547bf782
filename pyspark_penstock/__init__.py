"""Has Spark 4 find the format "penstock-state": it looks for packages whose names begin with pyspark_."""

from penstock.spark.frames.state_data_source import StateDataSource as DefaultSource

__all__ = ["DefaultSource"]
