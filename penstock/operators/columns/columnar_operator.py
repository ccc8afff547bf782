"""Defines the interface of a columnar operator."""

from __future__ import annotations

from typing import Iterator, Sequence

import pyarrow as pa

from penstock.graph.job_graph import Operator
from penstock.protocol.values.metadata import GroupFloor

ROWS_PER_FIRED_GROUP = 16_384

Output = tuple[str | None, pa.RecordBatch]
"""(side output's tag, None for the main one; rows)"""


class ColumnarOperator:
    """Defines one operator of a chain. Operators with windows can only be the head."""

    late_rows = 0
    lacking_rows: int | None = None
    """The number of rows that the batch lacks which the user's function waits for; None: it does not wait."""
    taken_rows = 0
    """The number of rows that `process` was given since the chain last set this to 0; counted where `lacking_rows` is
    known."""
    max_latency_ms = 0.0
    """The longest time for which rows may be held."""
    began = False
    """All rows that are held came since the chain last set this to False."""

    def __init__(self, operator: Operator) -> None:
        self.operator = operator

    def open(self) -> None:
        """Open the operator. Raises `OperatorFailure`, like all other methods."""

    def close(self) -> None:
        """Release the resources of `open`."""

    def set_time(self, current_ms: int, floors: Sequence[GroupFloor]) -> None:
        """Set the event time from which a restored operator continues."""

    def process(self, batch: pa.RecordBatch) -> Iterator[Output]:
        """Process `batch`, which has at least one row."""
        raise NotImplementedError

    @property
    def holds(self) -> bool:
        """Return whether rows wait for their batch."""
        return False

    def flush_held(self) -> Iterator[Output]:
        """Process the rows that wait, however few. Then `holds` is False."""
        return iter(())

    def on_watermark(self, watermark_ms: int) -> Iterator[pa.RecordBatch]:
        """Yield groups of rows; an empty one if there was only state to drop."""
        return iter(())
