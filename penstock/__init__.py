"""Processes streams for PySpark users. Start at `penstock.datastream`."""

__version__ = "0.1.0"
