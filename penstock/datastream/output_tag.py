"""OutputTag: the name and the type of a side output."""

from __future__ import annotations

from typing import Any

from penstock.common.typeinfo import TypeInformation
from penstock.common.types import Types


class OutputTag:
    """`yield tag, row` in a process function puts a row out under this tag; `stream.get_side_output(tag)` reads them.

    Tags with one id are the same tag. `type_info`: a type made by `Types`, a list of them (a row), or None: pickles.
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
