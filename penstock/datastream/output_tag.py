"""Defines OutputTag: the name and the type of a side output."""

from __future__ import annotations

from typing import Any

from penstock.common.typeinfo import TypeInformation
from penstock.common.types import Types


class OutputTag:
    """Names a side output. Tags with the same id are equal.

    A process function emits a row to a side output by `yield tag, row`; `stream.get_side_output(tag)` returns the
    stream of these rows.

    `type_info` is made by `Types`; a list of types is a row of them; None: the rows are pickled.

    Example:
        late = OutputTag("late", Types.STRING())
    """

    def __init__(self, tag_id: str, type_info: TypeInformation | list[Any] | None = None) -> None:
        if not isinstance(tag_id, str) or not tag_id:
            raise ValueError(f"OutputTag: tag_id is a non-empty string, got {tag_id!r}")
        if isinstance(type_info, list):
            type_info = Types.ROW(type_info)
        if type_info is not None and not isinstance(type_info, TypeInformation):
            raise TypeError(f"OutputTag {tag_id!r}: its type is made by Types, e.g. Types.LONG(); got {type_info!r}")
        self.tag_id = tag_id
        self.type_info = type_info

    def __eq__(self, other: object) -> bool:
        return isinstance(other, OutputTag) and other.tag_id == self.tag_id

    def __hash__(self) -> int:
        return hash(self.tag_id)

    def __repr__(self) -> str:
        return f"OutputTag({self.tag_id!r}, {self.type_info})"
