"""Copies the kept part of a savepoint, with the state that is new: one segment for each slot."""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

import msgspec

from penstock.protocol.values.keys import key_group_range
from penstock.protocol.values.metadata import (
    ChannelCapture,
    InflightRange,
    InputCut,
    LayerCut,
    Metadata,
    OutputCut,
    Segment,
    StateRange,
    StateSchema,
    SubtaskSnapshot,
    VertexShape,
)
from penstock.savepoints.bootstrapped import BootstrappedState
from penstock.savepoints.state_table import StateTable
from penstock.state.backend import EncodedState
from penstock.state.codecs import write_stream
from penstock.state.reading.runs import SubtaskRuns, runs_of
from penstock.storage.layout import FRAMES_FOLDER, savepoint_segment_path
from penstock.storage.location import is_local, local_path
from penstock.storage.segments import SegmentWriter, read_range
from penstock.storage.store import ObjectStore, StoreError, write_whole

_Cut = TypeVar("_Cut", InputCut, OutputCut)
_Stored = TypeVar("_Stored", StateRange, InflightRange)


class SavepointCopy:
    """Writes the segments of a savepoint. `source`: the store of what is copied; `written` gets the paths of all
    objects that are written, also if one fails.
    """

    def __init__(
        self, store: ObjectStore, source: ObjectStore | None, metadata: Metadata, codec: str, written: list[str]
    ) -> None:
        self._store = store
        self._source = source
        self._metadata = metadata
        self._codec = codec
        self._written = written

    def write(self, tables: Mapping[tuple[str, str], StateTable], made: list[BootstrappedState]) -> Metadata:
        """Write everything but the metadata, which is returned. Raises `DamagedRange`, `StoreError`, `StateError`."""
        vertices = list(self._metadata.vertices)
        index = max((vertex.index for vertex in vertices), default=-1) + 1
        added: list[tuple[VertexShape, BootstrappedState]] = []
        for state in made:
            operator = state.operator
            shape = VertexShape(
                index, str(operator), [operator.id], [str(operator)], max(1, len(state.backends)),
                state.max_parallelism, user_uids=[operator.uid or ""],
            )  # fmt: skip
            added.append((shape, state))
            vertices.append(shape)
            index += 1
        segments: list[Segment] = []
        subtasks: list[SubtaskSnapshot] = []
        for slot in range(max((vertex.parallelism for vertex in vertices), default=0)):
            found, segment = self._write_slot(slot, len(segments), tables, added)
            subtasks += found
            if segment is not None:
                segments.append(segment)
        subtasks.sort(key=lambda snapshot: (snapshot.vertex, snapshot.subtask))
        return msgspec.structs.replace(
            self._metadata, vertices=vertices, segments=segments, subtasks=subtasks, savepoint=None, is_final=False
        )

    def _write_slot(
        self,
        slot: int,
        number: int,
        tables: Mapping[tuple[str, str], StateTable],
        added: list[tuple[VertexShape, BootstrappedState]],
    ) -> tuple[list[SubtaskSnapshot], Segment | None]:
        name = savepoint_segment_path(slot, self._metadata.checkpoint_id, uuid.uuid4().hex[:8], self._codec)
        writer = SegmentWriter(self._store, lambda: name, codec=self._codec)
        self._written.append(name)
        of_slot = _SlotCopy(writer, number, self._source, self._metadata)
        try:
            found = [of_slot.copied(s, tables) for s in self._metadata.subtasks if s.subtask == slot]
            found += [of_slot.made(shape, state, slot) for shape, state in added if slot < shape.parallelism]
            return found, writer.finish()
        except BaseException:
            writer.abort()
            raise


class _SlotCopy:
    """Writes one slot's segment, whose number in the new metadata is `number`."""

    def __init__(self, writer: SegmentWriter, number: int, source: ObjectStore | None, metadata: Metadata) -> None:
        self._writer = writer
        self._number = number
        self._source = source
        self._metadata = metadata
        self._vertices = {vertex.index: vertex for vertex in metadata.vertices}

    def copied(self, old: SubtaskSnapshot, tables: Mapping[tuple[str, str], StateTable]) -> SubtaskSnapshot:
        """Copy a subtask's snapshot, with the tables in place of the states that they replace."""
        vertex = self._vertices[old.vertex]
        keyed: list[StateRange] = []
        schemas = {(schema.operator, schema.name): schema for schema in old.schemas}
        for name, schema in schemas.items():
            if name not in tables:
                keyed += self._copied_state(vertex, old.subtask, schema)
        groups = key_group_range(vertex.max_parallelism, vertex.parallelism, old.subtask)
        for name, table in tables.items():
            # A state is in the schemas of those subtasks only that had asked for it: a table has keys of all of them.
            if name[0] in vertex.operators:
                keyed += self._added(table.encoded(groups))
                schemas[name] = table.schema
        return msgspec.structs.replace(
            old,
            keyed=keyed,
            schemas=list(schemas.values()),
            inputs=[self._copied_cut(cut) for cut in old.inputs],
            outputs=[self._copied_cut(cut) for cut in old.outputs],
            layers=[self._copied_layer(layer) for layer in old.layers],
            state_bytes=sum(run.length_bytes for run in keyed),
        )

    def made(self, vertex: VertexShape, state: BootstrappedState, subtask: int) -> SubtaskSnapshot:
        """Write the state that was made of rows."""
        schemas: list[StateSchema] = []
        keyed: list[StateRange] = []
        if state.backends:
            schemas, runs = state.encoded(subtask)
            keyed = self._added(runs)
        parts = state.parts if subtask == 0 else []
        size = sum(run.length_bytes for run in keyed)
        return SubtaskSnapshot(vertex.index, subtask, [], [], [], keyed, schemas, parts, [], state_bytes=size)

    def _added(self, runs: Iterable[EncodedState]) -> list[StateRange]:
        found = []
        for run in runs:
            offset, length_bytes, crc = self._writer.add(run.parts, borrowed=True)
            name = (run.operator, run.name)
            found.append(StateRange(*name, self._number, offset, length_bytes, crc, run.entries, run.bounds))
        return found

    def _copied_state(self, vertex: VertexShape, subtask: int, schema: StateSchema) -> list[StateRange]:
        runs = runs_of(self._metadata, vertex, schema)
        of_subtask = next((found for found in runs.subtasks if found.subtask == subtask), None)
        assert self._source is not None
        if of_subtask is None:
            return []
        if not of_subtask.is_chain:
            return [self._copied_run(run, of_subtask) for run in of_subtask.runs]
        # Canonical: what later runs override and delete is left out.
        batches = replace(runs, subtasks=(of_subtask,)).batches(self._source)
        return self._added(
            EncodedState(schema.operator, schema.name, batch.num_rows, [write_stream(batch.schema, [batch])])
            for batch in batches
        )

    def _copied_run(self, run: StateRange, of_subtask: SubtaskRuns) -> StateRange:
        groups = of_subtask.key_groups
        belongs_to = (
            f"state '{run.name}', subtask {of_subtask.subtask} (key groups {groups.start} to {groups.stop - 1})"
        )
        return self._copied(run, belongs_to)

    def _copied_cut(self, cut: _Cut) -> _Cut:
        captures: list[ChannelCapture] = []
        for capture in cut.captures:
            pieces = self._copied_pieces(capture.pieces, cut.edge)
            captures.append(msgspec.structs.replace(capture, pieces=pieces))
        return msgspec.structs.replace(cut, captures=captures)

    def _copied_layer(self, layer: LayerCut) -> LayerCut:
        return msgspec.structs.replace(layer, pieces=self._copied_pieces(layer.pieces, layer.edge))

    def _copied_pieces(self, pieces: list[InflightRange], edge: str) -> list[InflightRange]:
        return [self._copied(piece, f"in-flight data of edge {edge}") for piece in pieces]

    def _copied(self, stored: _Stored, belongs_to: str) -> _Stored:
        assert self._source is not None
        path = self._metadata.segments[stored.segment].path
        data = read_range(self._source, path, stored.offset, stored.length_bytes, stored.crc, belongs_to)
        offset, length_bytes, crc = self._writer.add([data], borrowed=True)
        return msgspec.structs.replace(stored, segment=self._number, offset=offset, length_bytes=length_bytes, crc=crc)


def copy_source_files(old_root: str, old: ObjectStore, new_root: str, new: ObjectStore, written: list[str]) -> None:
    """Copy the rows of DataFrames that lie next to a savepoint, or in its job's directory: sources read them from the
    directory that a job starts from.
    """
    paths = old.list(FRAMES_FOLDER)
    if not paths:
        return
    if not is_local(new_root):
        raise StoreError(
            f"rows of DataFrames are files, and {new_root} is no file system: give the savepoint a directory that the "
            "driver and all executors share"
        )
    for path in paths:
        written.append(path)
        if is_local(old_root):
            target = Path(local_path(new_root), path)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(Path(local_path(old_root), path), target)
        else:
            write_whole(new.writer(path), [old.get(path)])
