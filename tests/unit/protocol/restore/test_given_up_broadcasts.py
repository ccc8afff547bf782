"""Tests what becomes of receivers of a broadcast that had read different rows, where rows in flight are given up."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest

from penstock.graph.compatibility import IncompatibleGraph
from penstock.graph.fit import refusal, without_channel_state
from penstock.protocol.restore.given_up import RowsToGiveUp
from penstock.protocol.values.metadata import (
    ChannelCapture,
    EdgeShape,
    InflightRange,
    InputCut,
    Metadata,
    OperatorPart,
    OutputCut,
    SubtaskSnapshot,
    VertexShape,
)

EMITTED = 9
RECEIVER = 2


def checkpoint(unread: Mapping[str, Sequence[int]], has_state: bool = True) -> Metadata:
    """Return a checkpoint of one or two producers that send to all receivers. `unread`: by edge, and by receiver."""
    vertices, edges, subtasks = [VertexShape(RECEIVER, "match", ["r"], ["match"], 3, 128)], [], []
    for index, (name, left) in enumerate(unread.items()):
        vertices.append(VertexShape(index, name, [name], [name], 1, 128))
        edges.append(EdgeShape(name, index, RECEIVER, "broadcast", False))
        pieces = [[InflightRange(EMITTED - n, n, 0, 0, 10 * n, 0)] if n else [] for n in left]
        sent = OutputCut(
            name, [EMITTED] * 3, [ChannelCapture(receiver, of_one, []) for receiver, of_one in enumerate(pieces)]
        )
        subtasks.append(SubtaskSnapshot(index, 0, [], [sent], [], [], [], [part("rules", b"of the producer")], []))
    for receiver in range(3):
        cuts = [InputCut(name, [EMITTED - left[receiver]], []) for name, left in unread.items()]
        parts = [part("list", b"list %d" % receiver, "split")]
        parts += [part(name, b"%s %d" % (name.encode(), receiver)) for name in ("rules", "more")] if has_state else []
        subtasks.append(SubtaskSnapshot(RECEIVER, receiver, cuts, [], [], [], [], parts, []))
    return Metadata(2, "", "", 7, 0, 0, "", 0, False, vertices, edges, [], subtasks, [], [])


def part(name: str, item: bytes, kind: str = "broadcast") -> OperatorPart:
    return OperatorPart("r", name, [item], kind)


def parts_of(metadata: Metadata) -> list[list[bytes]]:
    return [[p.items[0] for p in s.parts] for s in metadata.subtasks if s.vertex == RECEIVER]


@pytest.mark.parametrize(("unread", "chosen"), [((2, 1, 3), 1), ((2, 1, 1), 1), ((0, 1, 1), 0), ((3, 3, 0), 2)])
def test_all_get_the_broadcast_state_of_the_one_that_had_read_most(unread: tuple[int, ...], chosen: int) -> None:
    whole = checkpoint({"rules": unread})
    left, told = without_channel_state(whole, RowsToGiveUp(7))
    states = [b"rules %d" % chosen, b"more %d" % chosen]
    assert parts_of(left) == [[b"list %d" % receiver, *states] for receiver in range(3)]
    assert left.subtasks[0].parts == whole.subtasks[0].parts
    assert told is not None and told.startswith(f"{sum(unread)} rows") and told.splitlines()[-1].startswith(
        "  some receivers of the broadcast from 'rules' to 'match' had read rows that others lose now: all get the "
        f"broadcast state of subtask {chosen}, "
    )  # fmt: skip


def test_receivers_that_had_read_the_same_rows_keep_what_they_have() -> None:
    whole = checkpoint({"rules": (2, 2, 2)})
    left, told = without_channel_state(whole, RowsToGiveUp(7, ("rules",)))
    assert parts_of(left) == parts_of(whole)
    assert told is not None and "some receivers" not in told


def test_of_two_broadcasts_one_that_all_have_read_alike_may_stay() -> None:
    left, _ = without_channel_state(checkpoint({"rules": (2, 1, 2), "more": (1, 1, 1)}), RowsToGiveUp(7, ("rules",)))
    assert [parts[1] for parts in parts_of(left)] == [b"rules 1"] * 3
    assert [cut.applied for s in left.subtasks for cut in s.inputs if cut.edge == "more"] == [[EMITTED - 1]] * 3


@pytest.mark.parametrize(
    ("unread", "named", "in_the_way"),
    [
        ({"rules": (2, 2, 2)}, "rules[0 -> 1]", "rules"),
        ({"rules": (2, 1, 0)}, "rules[0 -> 0]", "rules"),
        ({"rules": (2, 1, 1), "more": (1, 0, 1)}, "rules", "more"),
    ],
)
def test_what_would_leave_receivers_different_is_refused_with_the_way_out(
    unread: dict[str, tuple[int, ...]], named: str, in_the_way: str
) -> None:
    whole, give_up = checkpoint(unread), RowsToGiveUp(7, (named,))
    with pytest.raises(
        IncompatibleGraph, match=f"receivers of the broadcast from '{in_the_way}' to 'match'"
    ) as refused:
        without_channel_state(whole, give_up)
    told = refusal(refused.value, 7, give_up)
    assert told.endswith(
        f"checkpoint-id=7 and penstock.state-recovery.without-channel-state.channels={named},{in_the_way}"
    )
    without_channel_state(whole, RowsToGiveUp(7, (named, in_the_way)))


def test_one_of_two_broadcasts_may_stay_if_there_is_no_broadcast_state() -> None:
    whole = checkpoint({"rules": (2, 1, 1), "more": (1, 0, 1)}, has_state=False)
    left, _ = without_channel_state(whole, RowsToGiveUp(7, ("rules",)))
    assert parts_of(left) == parts_of(whole)
