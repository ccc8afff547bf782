"""Connects Penstock to Spark: the only package that imports pyspark."""
