"""Spark as our substrate: the only package that imports pyspark."""
