"""Reads and writes savepoints in programs, as Flink's State Processor API does, with its names."""

from penstock.savepoints.savepoint_functions import (
    BroadcastStateBootstrapFunction,
    KeyedStateBootstrapFunction,
    KeyedStateReaderFunction,
    StateBootstrapFunction,
)
from penstock.savepoints.savepoint_reader import SavepointReader
from penstock.savepoints.savepoint_writer import SavepointError, SavepointWriter
from penstock.savepoints.transformations import OperatorIdentifier, OperatorTransformation

__all__ = [
    "SavepointReader", "SavepointWriter", "SavepointError", "OperatorIdentifier", "OperatorTransformation",
    "KeyedStateReaderFunction", "KeyedStateBootstrapFunction", "StateBootstrapFunction",
    "BroadcastStateBootstrapFunction",
]  # fmt: skip
