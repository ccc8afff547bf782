"""Assigns operator ids that survive restarts and changes of code.

An operator with a uid of the user's keeps that id for ever. Any other id is made of the operator's kind and its place
in the graph (its inputs' ids and side outputs, and its place among equals), as in Flink's StreamGraphHasher. Functions,
names, parallelism and what is added elsewhere in the program change nothing.
"""

from __future__ import annotations

from penstock.common.program.operator_uid import digest, uid_of
from penstock.graph.logical import Input, LogicalGraph, Node

__all__ = ["DuplicateUid", "MissingUid", "assign_uids", "check_all_given", "uid_of"]


class DuplicateUid(ValueError):
    """Signals that two operators of one program have the same id."""


class MissingUid(ValueError):
    """Signals an operator without a uid in a program that wants one for each."""


def check_all_given(graph: LogicalGraph) -> None:
    """Check that each operator has a uid of the user's. Raises `MissingUid`, which names those that have none."""
    lacking = [repr(n.name) for n in graph.nodes if n.uid is None and "uid_hash" not in n.options]
    if lacking:
        raise MissingUid(
            f"pipeline.auto-generate-uids is off (disable_auto_generated_uids()), and these operators have no uid: "
            f"{', '.join(lacking)}; call uid('...') on each"
        )


def assign_uids(graph: LogicalGraph) -> dict[Node, str]:
    """Return ids by node, for nodes in topological order. Raises `DuplicateUid`, which names both operators."""
    uids: dict[Node, str] = {}
    owners: dict[str, Node] = {}
    seen: dict[tuple[str, ...], int] = {}
    for node in graph.nodes:
        given = node.options.get("uid_hash")
        if given is not None:
            uid = given
        elif node.uid is not None:
            uid = uid_of(node.uid)
        else:
            place = (node.kind.value, *(_place_of(i, uids) for i in node.inputs))
            ordinal = seen.get(place, 0)
            seen[place] = ordinal + 1
            uid = digest("place", *place, str(ordinal))
        if uid in owners:
            raise DuplicateUid(
                f"operators {owners[uid].name!r} and {node.name!r} have the same uid "
                f"{node.uid or node.options.get('uid_hash')!r}; each operator needs one of its own"
            )
        uids[node] = uid
        owners[uid] = node
    return uids


def _place_of(given: Input, uids: dict[Node, str]) -> str:
    place = uids[given.node]
    if given.side_output is not None:
        place += f"/{given.side_output}"
    return f"{place}#{given.index}" if given.index else place
