"""Checks the contents of a checkpoint or savepoint: segments, ranges, rows in flight, and the state of the last one."""

from __future__ import annotations

import zlib
from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from penstock.common.types import Types
from penstock.datastream.state import ListStateDescriptor, ValueStateDescriptor
from penstock.graph.job_graph import Edge, JobGraph, Operator, Vertex
from penstock.graph.logical import OperatorKind
from penstock.operators.batches import as_batch, declared_key, wire_schema
from penstock.protocol.values.keys import KeyEncoder
from penstock.protocol.values.metadata import InflightRange, InputCut, Metadata, OutputCut
from penstock.state.heap.hash_map import HashMapStateBackend
from penstock.storage.compression import codec_of, decompressed
from simulation.checkers.keyed_ranges import Overridden, wrong_ranges
from simulation.jobs.streams import Expected
from simulation.jobs.workload import Workload
from simulation.world.faulty_store import SharedObjects
from simulation.world.world import World


class _Content(NamedTuple):
    """Holds a segment's bytes, and how its ranges are compressed."""

    data: bytes
    codec: str | None


@dataclass
class ContentChecker:
    """Checks contents, and counts what it has seen."""

    world: World
    workload: Workload
    shared: SharedObjects
    directory: str
    unaligned: int = 0
    inflight_rows: int = 0
    inflight_events: int = 0
    finished_with_rows: int = 0
    """Snapshots of subtasks after their end of data, with rows in their output queues."""
    layers: int = 0
    committable: set[bytes] = field(default_factory=set)
    """Output that some published checkpoint says is to be committed."""
    final: Metadata | None = None
    damaged: str | None = None
    """A segment in which a bit was flipped: checkpoints may name it until somebody reads it."""
    overridden: Overridden = field(default_factory=set)

    def check_content(self, what: str, graph: JobGraph, metadata: Metadata, directory: str) -> None:
        """Check the metadata and segments in a directory: all exist, in full length, with the right contents."""
        segments: list[_Content] = []
        for segment in metadata.segments:
            content = self.shared.objects.get(f"{directory}/{segment.path}")
            if content is None or len(content) != segment.length_bytes:
                self.world.violate(f"{what}: segment {segment.path} is missing or truncated")
                return
            segments.append(_Content(content, codec_of(segment.path)))
        self.committable.update(c.data for snapshot in metadata.subtasks for c in snapshot.committables)
        self.committable.update(c.data for c in metadata.unconfirmed_commits)
        if any(segment.path == self.damaged for segment in metadata.segments):
            return
        edges = {e.name: e for e in graph.edges}
        for snapshot in metadata.subtasks:
            self.unaligned += snapshot.unaligned
            self.layers += len(snapshot.layers)
            cuts: list[InputCut | OutputCut] = [*snapshot.inputs, *snapshot.outputs]
            for cut in cuts:
                for capture in cut.captures:
                    self.inflight_events += len(capture.events)
                    for piece in capture.pieces:
                        self._check_piece(what, edges[cut.edge], piece, segments)
            if snapshot.finished and any(c.pieces for o in snapshot.outputs for c in o.captures):
                self.finished_with_rows += 1
            for layer in snapshot.layers:
                for piece in layer.pieces:
                    self._check_piece(what, edges[layer.edge], piece, segments)
        overridden = None if self.world.names_stored_state else self.overridden
        for violation in wrong_ranges(metadata, lambda state: self._check_range(what, segments, state), overridden):
            self.world.violate(f"{what}: {violation}")
        if metadata.is_final:
            self._check_final_state(graph, metadata, segments)
            self.final = metadata

    def _check_range(self, what: str, segments: list[_Content], place: Any) -> bytes:
        content, codec = segments[place.segment]
        data = content[place.offset : place.offset + place.length_bytes]
        if zlib.crc32(data) != place.crc:
            self.world.violate(f"{what}: checksum of {place.length_bytes} bytes at {place.offset} does not match")
        return data if codec is None else decompressed(data, codec)

    def _check_piece(self, what: str, edge: Edge, piece: InflightRange, segments: list[_Content]) -> None:
        data = self._check_range(f"{what}: {edge.name}", segments, piece)
        self.inflight_rows += piece.rows
        if as_batch(data, wire_schema(edge)).num_rows != piece.rows:
            self.world.violate(f"{what}: a piece of {edge.name} says {piece.rows} rows and holds others")

    # ---- state --------------------------------------------------------------------------------------------------

    def _check_final_state(self, graph: JobGraph, metadata: Metadata, segments: list[_Content]) -> None:
        for vertex in graph.vertices:
            for operator in vertex.operators:
                expected = self.workload.counted.get(operator.user_uid or "")
                if expected is not None and operator.kind is OperatorKind.KEYED_PROCESS:
                    edge = next(e for e in graph.edges if e.target == vertex.index)
                    self._check_counts(metadata, segments, vertex, operator, edge, expected)

    def _check_counts(
        self,
        metadata: Metadata,
        segments: list[_Content],
        vertex: Vertex,
        operator: Operator,
        edge: Edge,
        expected: Expected,
    ) -> None:
        backend = HashMapStateBackend(vertex.max_parallelism)
        groups = range(vertex.max_parallelism)
        for snapshot in metadata.subtasks:
            for schema in snapshot.schemas:
                if schema.operator == operator.uid:
                    backend.restore_schema(schema)
        for snapshot in metadata.subtasks:
            for state in snapshot.keyed:
                if state.operator == operator.uid:
                    data = self._check_range(f"state {state.name}", segments, state)
                    backend.restore(state.operator, state.name, data, groups)
        names = backend.state(operator.uid, ListStateDescriptor("names"))
        count = backend.state(operator.uid, ValueStateDescriptor("count", Types.LONG()))
        select = edge.partitioner.key_selector
        assert select is not None
        rows: dict[Any, list[tuple[int, int, int]]] = defaultdict(list)
        for row in expected.rows:
            rows[select(row)].append((row[0], row[1], row[3]))
        keys = list(rows)
        if not keys:
            return
        encoder = KeyEncoder(declared_key(edge.partitioner), vertex.max_parallelism)
        for key, group in zip(keys, encoder.encode(keys)[1]):
            backend.set_current_key(key, int(group))
            found = sorted(map(tuple, names.get() or []))
            if found != sorted(rows[key]) or count.value() != len(rows[key]):
                self.world.violate(
                    f"final state of {operator.name}, key {key!r}: {len(found)} rows (counted {count.value()}), "
                    f"expected {len(rows[key])}"
                )
