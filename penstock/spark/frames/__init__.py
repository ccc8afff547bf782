"""Reads and writes DataFrames: as sources, as sinks, and as the state of checkpoints."""
