"""Runs inside a chain: operators over rows, operators over columns, and event time."""
