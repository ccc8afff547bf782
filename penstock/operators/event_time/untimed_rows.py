"""Reports rows whose event time cannot be read: at a source they are malformed records."""

from __future__ import annotations

import os
import traceback
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.common.program.failures import OperatorFailure, describe, summary
from penstock.common.watermark_strategy import NO_TIMESTAMP
from penstock.connectors.base import MalformedRecord
from penstock.protocol.values.elements import WATERMARK_MAX_MS

_SHOWN_CHARACTERS = 200


class UntimedRows(OperatorFailure):
    """Reports rows without a time. `refused` holds the reasons, by the index of the row in its batch.

    Raised for rows of an input gate it fails the job for good: a restart would read the same rows again. `said` is the
    traceback of the user's assigner, if that has raised.
    """

    def __init__(self, operator: str, refused: Mapping[int, str], shown: str, said: str = "") -> None:
        reason = next(iter(refused.values()))
        super().__init__(operator, MalformedRecord(f"{reason}; the row was {shown[:_SHOWN_CHARACTERS]}"))
        self.refused = dict(refused)
        self._said = said

    def user_traceback(self) -> str:
        return self._said


def nulls_of(column: pa.Array, name: str) -> dict[int, str]:
    """Return the reasons for the rows that are null in the column of timestamps.

    Args:
        column: The column, in which some row is null.
        name: Its name.

    Returns:
        The reasons, by the index of the row.
    """
    reason = f"its timestamp column {name!r} is null, so its time is not known"
    return dict.fromkeys(np.flatnonzero(pc.is_null(column).to_numpy(zero_copy_only=False)).tolist(), reason)


def extracted(
    extract: Callable[[Any, int], Any], rows: Sequence[Any], given: Sequence[int | None] | None, operator: str
) -> list[int]:
    """Call a timestamp assigner again, row by row, because some of its timestamps cannot be used.

    Args:
        extract: The assigner.
        rows: The rows.
        given: Their timestamps so far; None: none of them has one.
        operator: The name of the operator, for errors.

    Returns:
        The timestamps in milliseconds, if all of them can be used after all.

    Raises:
        UntimedRows: Some of them cannot.
    """
    stamps: list[int] = []
    refused: dict[int, str] = {}
    said = ""
    for index, row in enumerate(rows):
        before = None if given is None else given[index]
        try:
            found = extract(row, NO_TIMESTAMP if before is None else before)
        except Exception as error:
            refused[index] = f"its timestamp assigner raised {summary(error)}{_line_of(error)}"
            said = said or describe(error)
            continue
        if not isinstance(found, (int, np.integer)) or isinstance(found, bool):
            refused[index] = f"a row's timestamp must be an int (milliseconds since the epoch), got {found!r:.80}"
        elif not NO_TIMESTAMP <= found <= WATERMARK_MAX_MS:
            refused[index] = f"a row's timestamp (milliseconds since the epoch) must fit in 64 bits, got {found}"
        else:
            stamps.append(int(found))
    if refused:
        raise UntimedRows(operator, refused, repr(rows[next(iter(refused))]), said)
    return stamps


def _line_of(error: Exception) -> str:
    """Return the line of the user's code that raised, for a message."""
    frames = traceback.extract_tb(error.__traceback__)
    return f" ({os.path.basename(frames[-1].filename)}, line {frames[-1].lineno})" if len(frames) > 1 else ""
