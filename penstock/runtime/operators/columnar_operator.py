"""What a columnar operator is."""

from __future__ import annotations

from typing import Iterator, Sequence

import pyarrow as pa

from penstock.graph.job_graph import Operator
from penstock.protocol.snapshot import GroupFloor

ROWS_PER_FIRED_GROUP = 16_384

Output = tuple[str | None, pa.RecordBatch]
"""(side output's tag, None for the main one; rows)"""


class ColumnarOperator:
    """One operator of a chain. Operators with windows stand at the head only."""

    late_rows = 0

    def __init__(self, operator: Operator) -> None:
        self.operator = operator

    def open(self) -> None:
        """Raises `OperatorFailure`, as all of them do."""

    def close(self) -> None:
        """Lets go of what `open` took."""

    def set_time(self, current_ms: int, floors: Sequence[GroupFloor]) -> None:
        """The event time that a restored operator goes on from."""

    def process(self, batch: pa.RecordBatch) -> Iterator[Output]:
        """`batch` has rows."""
        raise NotImplementedError

    def on_watermark(self, watermark_ms: int) -> Iterator[pa.RecordBatch]:
        """Groups of rows; an empty one where there was only state to drop."""
        return iter(())
