"""Runs slots on Spark, seen from the driver: a Spark job of one task for each, and how it ended."""
