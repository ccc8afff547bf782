"""Checks which operators have side outputs, and of which type."""

from __future__ import annotations

from typing import Any

from penstock.common.typeinfo import TypeInformation
from penstock.datastream._streams.function_wrappers import KeyedAdapter, KeyedCoAdapter
from penstock.datastream.output_tag import OutputTag
from penstock.graph.declared_columns import WindowAggregateSpec
from penstock.graph.declared_functions import AnyWindowSpec
from penstock.graph.logical import Node, OperatorKind
from penstock.graph.timed_nodes import WINDOW_KINDS

_TYPES = "side_output_types"
"""A node's option: the types by tag id that rows of side outputs are known to have."""

_ALWAYS = (
    OperatorKind.PROCESS, OperatorKind.CO_PROCESS, OperatorKind.BROADCAST_PROCESS, OperatorKind.KEYED_BROADCAST_PROCESS,
)  # fmt: skip
"""The functions of these kinds may emit rows under any tag."""


def side_output_type(node: Node, output_tag: Any) -> TypeInformation | None:
    """Return the type of the rows that the operator emits under the tag.

    Raises TypeError if the operator has no side outputs, or the tag was used with another type.
    """
    check_tag(output_tag, "get_side_output()")
    why = _refusal(node, output_tag)
    if why:
        raise TypeError(f"get_side_output({output_tag!r}): operator {node.name!r} {why}")
    if node.kind is OperatorKind.SOURCE:
        remember_type(node, OutputTag(output_tag.tag_id, node.function.rejected_type))
    return remember_type(node, output_tag)


def remember_type(node: Node, output_tag: OutputTag) -> TypeInformation | None:
    types: dict[str, TypeInformation | None] = node.options.setdefault(_TYPES, {})
    known = types.setdefault(output_tag.tag_id, output_tag.type_info)
    if output_tag.type_info is not None and known != output_tag.type_info:
        raise TypeError(
            f"operator {node.name!r}: the side output {output_tag.tag_id!r} has the type {known} where it "
            f"was used first, now {output_tag.type_info}; give both one OutputTag"
        )
    return known


def check_tag(output_tag: Any, method: str) -> None:
    if not isinstance(output_tag, OutputTag):
        raise TypeError(f"{method} takes an OutputTag, e.g. OutputTag('late', Types.STRING()); got {output_tag!r}")


def _refusal(node: Node, output_tag: OutputTag) -> str | None:
    if node.kind in _ALWAYS:
        return None
    if node.kind in (OperatorKind.KEYED_PROCESS, OperatorKind.KEYED_CO_PROCESS):
        if not isinstance(node.function, (KeyedAdapter, KeyedCoAdapter)):
            return None
    elif node.kind in WINDOW_KINDS:
        spec: AnyWindowSpec | WindowAggregateSpec = node.function
        process = spec.process if isinstance(spec, AnyWindowSpec) else None
        if process is not None or spec.late_tag == output_tag.tag_id:
            return None
        late = "" if spec.late_tag is None else f", which is under the tag {spec.late_tag!r}"
        return (
            "has no window function that could put rows out sideways, so it has no side output but the one of late "
            f"rows (side_output_late_data){late}"
        )
    elif node.kind is OperatorKind.SOURCE and (tag_id := getattr(node.function, "rejected_tag_id", None)) is not None:
        if tag_id == output_tag.tag_id:
            return None
        return f"puts the rows that it cannot read out under the tag {tag_id!r}, and has no other side output"
    return (
        "has no side outputs: process functions have them (`yield tag, row`), and windows have one for late rows "
        "(side_output_late_data)"
    )
