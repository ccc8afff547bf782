"""Finds the restore point of a generation, and checks that it is complete. These functions block."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from penstock.common.options import StateRecoveryOptions
from penstock.graph.compatibility import IncompatibleGraph
from penstock.jobmaster.identity import CheckpointToStartFrom, OpenStore, RestoreSourceError
from penstock.protocol.log.publication import unrestorable
from penstock.protocol.restore.drained import undrained
from penstock.protocol.restore.given_up import (
    NOTHING,
    GivenUp,
    RowsToGiveUp,
    unknown_channels,
    without_rows_in_flight,
)
from penstock.protocol.restore.given_up_broadcasts import UnequalReceivers, unequal_receivers, with_state_of_one
from penstock.protocol.values.metadata import EdgeShape, Metadata
from penstock.storage.damage import DAMAGE
from penstock.storage.layout import LOG_FOLDER, metadata_path
from penstock.storage.log import newest_checkpoint
from penstock.storage.metadata_file import encode_metadata, read_metadata
from penstock.storage.opening import probe
from penstock.storage.sealed import DamagedObject, NewerFormat
from penstock.storage.store import ObjectStore, StoreAway, StoreError, StoreRemoved

START_ELSEWHERE = "Start from another savepoint or checkpoint; penstock state verify PATH shows whether one is whole"
"""The way out of damage to what another job has left."""
_LISTED_MAX = 20
"""The number of channels that a message lists."""


@dataclass(frozen=True)
class RestorePoint:
    """Holds a restore point. `data` is the encoded metadata, as slots get it. `root` is the directory that its segments
    lie in, if that is not the job's own. `warning`: what the user should know of it.
    """

    metadata: Metadata
    data: bytes
    root: str | None = None
    warning: str | None = None
    path: str | None = None
    """The path of the metadata below `root`."""


def without_channel_state(metadata: Metadata, give_up: RowsToGiveUp) -> tuple[Metadata, str | None]:
    """Return the metadata without the rows in flight that a user gives up, and what is lost, if it is of that
    checkpoint; else as it is. Raises `IncompatibleGraph` if the checkpoint has no such channel, or if receivers of a
    broadcast would read different rows.
    """
    if metadata.checkpoint_id != give_up.checkpoint_id:
        return metadata, None
    if unknown := unknown_channels(metadata, give_up.channels):
        raise IncompatibleGraph(_no_such_channel(metadata, unknown[0]))
    left, given_up = _left_of(metadata, give_up)
    unequal = unequal_receivers(metadata, left, {channel.edge for channel in given_up})
    if in_the_way := [edge for of_one in unequal for edge in of_one.in_the_way]:
        raise IncompatibleGraph(
            f"checkpoint {metadata.checkpoint_id}: receivers of {_broadcasts(metadata, in_the_way)} would read "
            "different rows, because some of those in flight to them are given up, and others are not",
            [edge.name for edge in in_the_way],
        )
    rows = sum(channel.rows for channel in given_up)
    differ = "".join(
        f"\n  some receivers of {_broadcasts(metadata, of_one.edges)} had read rows that others lose now"
        f"{_state_of_one(of_one) if of_one.have_state else ''}"
        for of_one in unequal
    )
    return with_state_of_one(left, unequal), (
        f"{rows} rows that were in flight in checkpoint {give_up.checkpoint_id} are given up, as "
        f"{StateRecoveryOptions.WITHOUT_CHANNEL_STATE.key} says{_listed(given_up)}{differ}"
    )


def _state_of_one(unequal: UnequalReceivers) -> str:
    return (
        f": all get the broadcast state of subtask {unequal.receiver}, which had read most; what only others had read "
        "is not in it. What it did for these rows to its own keys and lists is not done in the others"
    )


def _broadcasts(metadata: Metadata, edges: Sequence[EdgeShape]) -> str:
    vertices = {vertex.index: vertex.operator_names for vertex in metadata.vertices}
    ends = [f"from '{vertices[edge.source][-1]}' to '{vertices[edge.target][0]}'" for edge in edges]
    return f"the broadcast{'s' if len(ends) > 1 else ''} {' and '.join(ends)}"


def _left_of(metadata: Metadata, give_up: RowsToGiveUp) -> tuple[Metadata, list[GivenUp]]:
    if metadata.checkpoint_id != give_up.checkpoint_id:
        return metadata, []
    return without_rows_in_flight(metadata, give_up.channels or None)


def _no_such_channel(metadata: Metadata, name: str) -> str:
    _, in_flight = without_rows_in_flight(metadata)
    key = StateRecoveryOptions.WITHOUT_CHANNEL_STATE_OF_CHANNELS.key
    has = f"holds rows in flight of these{_listed(in_flight[:_LISTED_MAX])}" if in_flight else "holds no rows in flight"
    more = f"\n  and {len(in_flight) - _LISTED_MAX} more" if len(in_flight) > _LISTED_MAX else ""
    return (
        f"{key}: checkpoint {metadata.checkpoint_id} has no edge or channel {name!r}. Name an edge, or a channel as "
        f"edge[producer -> consumer]. The checkpoint {has}{more}"
    )


def _listed(channels: Sequence[GivenUp]) -> str:
    return "".join([":" if channels else "", *(f"\n  {channel}" for channel in channels)])


def open_own(open_store: OpenStore, directory: str) -> ObjectStore:
    """Open the job's directory, creating it if needed, and check that it is writable. Raises `StoreError`."""
    store = open_store(directory, True)
    probe(store)
    return store


def read_start(open_store: OpenStore, start: CheckpointToStartFrom, give_up: RowsToGiveUp = NOTHING) -> RestorePoint:
    """Read a checkpoint of another job, all of it, and check that it is complete but for rows in flight that a user
    gives up. Raises `RestoreSourceError`.
    """
    try:
        store = open_store(start.directory, False)
        metadata = undrained(read_metadata(store, start.metadata_path))
        check_segments(store, _left_of(metadata, give_up)[0])
        newest = None if start.is_savepoint else newest_checkpoint(store)
    except StoreAway:
        raise
    except StoreError as error:
        what = "savepoint" if start.is_savepoint else "checkpoint"
        way_out = f". {START_ELSEWHERE}" if isinstance(error, DAMAGE) else ""
        raise RestoreSourceError(
            f"{StateRecoveryOptions.SAVEPOINT_PATH.key}: {what} {start.path} cannot be restored: {error}{way_out}"
        ) from None
    warning = None
    if newest is not None and newest.checkpoint_id > metadata.checkpoint_id:
        warning = (
            f"starting from {start.path}, which is not the newest checkpoint of its job ({newest.checkpoint_id}): rows "
            f"that were put out after checkpoint {metadata.checkpoint_id} are put out again"
        )
    return RestorePoint(metadata, encode_metadata(metadata), start.directory, warning, start.metadata_path)


def check_segments(store: ObjectStore, metadata: Metadata) -> None:
    """Check that every file in which something of the checkpoint lies exists in its full length; the content is checked
    while it is read. Raises `DamagedObject`, `ObjectMissing`, `StoreError`.
    """
    with_content = _with_content(metadata)
    for number, segment in enumerate(metadata.segments):
        if number in with_content and (size := store.size(segment.path)) != segment.length_bytes:
            raise DamagedObject(f"{segment.path} has {size} bytes, but was written with {segment.length_bytes}")


def _with_content(metadata: Metadata) -> set[int]:
    """Return the numbers of the segments in which state or rows in flight lie. Where rows are given up, these are not
    all. Without this: a file that held nothing else is lost, and to give its rows up is no way past that."""
    numbers: set[int] = set()
    for snapshot in metadata.subtasks:
        pieces = [capture.pieces for cut in snapshot.inputs for capture in cut.captures]
        pieces += [capture.pieces for cut in snapshot.outputs for capture in cut.captures]
        pieces += [layer.pieces for layer in snapshot.layers]
        numbers.update(piece.segment for of_one in pieces for piece in of_one)
        numbers.update(state.segment for state in snapshot.keyed)
    return numbers


def check_log(store: ObjectStore) -> None:
    """Raise `StoreRemoved` if nothing is left of the job's log, which has one entry at least: our own fence."""
    if not store.list(LOG_FOLDER):
        raise StoreRemoved(
            f"the job's log ({LOG_FOLDER}/ in its directory) was removed while the job ran: nothing can be published "
            "or resumed. Put it back with what was in it, or start the job afresh"
        )


def damage(store: ObjectStore, metadata: Metadata, retained: list[str], directory: str | None) -> str | None:
    """Return why the job's own newest checkpoint cannot be restored and never will be; None if it can.

    Raises `StoreError` where it cannot be said now.
    """
    try:
        read_metadata(store, metadata_path(metadata.checkpoint_id))
        check_segments(store, metadata)
    except (*DAMAGE, NewerFormat) as error:
        return refusal(metadata, str(error), retained, directory)
    return None


def refusal(metadata: Metadata, detail: str, retained: list[str], directory: str | None) -> str:
    """Return the message for a job whose own newest checkpoint is damaged."""
    path = metadata_path(metadata.checkpoint_id)
    return unrestorable(metadata.checkpoint_id, detail, path, retained, directory or "")
