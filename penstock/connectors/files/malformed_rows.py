"""Chooses the handling of rows of text that cannot be read."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Any

from penstock.common.types import Types

MALFORMED_ROW_TYPE = Types.ROW_NAMED(
    ["file", "line", "text", "reason"], [Types.STRING(), Types.LONG(), Types.STRING(), Types.STRING()]
)
"""The rows of the side output: the file, the number of the line in it (from 1), the line itself as it stands there,
and what is wrong with it. Bytes that are no UTF-8 are replaced."""


class _Way(Enum):
    FAIL = "fail"
    SKIP = "skip"
    SIDE_OUTPUT = "side output"


@dataclass(frozen=True)
class MalformedRows:
    """Chooses the handling of rows of text that cannot be read, and of rows whose event time cannot be read.

    `MalformedRows.fail()` is the default; the others are `skip()` and `side_output(tag)`.
    """

    way: _Way
    tag_id: str | None = None

    @staticmethod
    def fail() -> MalformedRows:
        """Fail the job, with an error that names file, line and field."""
        return MalformedRows(_Way.FAIL)

    @staticmethod
    def skip() -> MalformedRows:
        """Skip rows, and count them."""
        return MalformedRows(_Way.SKIP)

    @staticmethod
    def side_output(tag: Any) -> MalformedRows:
        """Emit rows to a side output, in the columns of `MALFORMED_ROW_TYPE`: file, line, text and reason.

        Example:
            rejected = OutputTag("rejected", MALFORMED_ROW_TYPE)
            csv = CsvReaderFormat.for_schema(schema, MalformedRows.side_output(rejected))
            orders = env.from_source(FileSource.for_record_stream_format(csv, path).build(), strategy, "orders")
            orders.get_side_output(rejected).print()

        Args:
            tag: An `OutputTag(id, MALFORMED_ROW_TYPE)`, or its id.

        Returns:
            The option.

        Raises:
            TypeError: The tag has another type, or is neither.
        """
        tag_id = tag if isinstance(tag, str) else getattr(tag, "tag_id", None)
        if not isinstance(tag_id, str) or not tag_id:
            raise TypeError(f"a side output is named by an OutputTag or its id, not by {tag!r}")
        declared = getattr(tag, "type_info", None)
        if declared is not None and declared != MALFORMED_ROW_TYPE:
            raise TypeError(
                f"the side output {tag_id!r} of malformed rows carries {MALFORMED_ROW_TYPE}, but is declared for "
                f"{declared}: declare it as OutputTag({tag_id!r}, MALFORMED_ROW_TYPE)"
            )
        return MalformedRows(_Way.SIDE_OUTPUT, tag_id)

    @property
    def fails(self) -> bool:
        """Return True if such a row fails the job."""
        return self.way is _Way.FAIL

    @property
    def is_side_output(self) -> bool:
        """Return True if such rows go to a side output."""
        return self.way is _Way.SIDE_OUTPUT
