"""Reads and writes savepoints in programs, as Flink's State Processor API does, with its names."""

from penstock.savepoints.functions import (
    BroadcastStateBootstrapFunction,
    KeyedStateBootstrapFunction,
    KeyedStateReaderFunction,
    StateBootstrapFunction,
)
from penstock.savepoints.reader import SavepointReader
from penstock.savepoints.transformations import OperatorIdentifier, OperatorTransformation
from penstock.savepoints.writer import SavepointError, SavepointWriter

__all__ = [
    "SavepointReader", "SavepointWriter", "SavepointError", "OperatorIdentifier", "OperatorTransformation",
    "KeyedStateReaderFunction", "KeyedStateBootstrapFunction", "StateBootstrapFunction",
    "BroadcastStateBootstrapFunction",
]  # fmt: skip
