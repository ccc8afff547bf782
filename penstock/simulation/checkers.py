"""Checks what must hold, whatever has happened.

Checkers stand apart from the assertions in the code, and see only what can be seen from outside: objects in the store,
messages, output.
"""

from __future__ import annotations

import zlib
from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from penstock.common.types import Types
from penstock.datastream.state import ListStateDescriptor, ValueStateDescriptor
from penstock.graph.job_graph import Edge, JobGraph, Operator, Vertex
from penstock.graph.logical import OperatorKind
from penstock.operators.batches import as_batch, declared_key, wire_schema
from penstock.protocol.values.keys import KeyEncoder
from penstock.protocol.values.log_entries import CheckpointEntry, Ended, Fence
from penstock.protocol.values.messages import Decline, Message, SlotAck
from penstock.protocol.values.metadata import InputCut, Metadata, OutputCut, Piece
from penstock.simulation.coverage import uncovered
from penstock.simulation.keyed_ranges import wrong_ranges
from penstock.simulation.output import Output
from penstock.simulation.store import SharedObjects
from penstock.simulation.streams import Expected
from penstock.simulation.workload import Workload
from penstock.simulation.world import World
from penstock.simulation.world_hooks import Row
from penstock.state.heap.hash_map import HashMapStateBackend
from penstock.storage.layout import LOG_FOLDER, LogName, MetadataName, SegmentName, parse
from penstock.storage.log import decode_entry
from penstock.storage.metadata import decode_metadata


class AnswerChecker:
    """Checks that every checkpoint that is offered to a subtask ends there in one acknowledgement or one decline, never
    in two.
    """

    def __init__(self, world: World) -> None:
        self._world = world
        self._declined: set[tuple[Any, ...]] = set()
        self._acknowledged: dict[tuple[Any, ...], SlotAck] = {}
        self.declines: Counter[str] = Counter()

    def on_sent(self, process: str, message: Message) -> None:
        if isinstance(message, Decline):
            key = (tuple(message.generation), message.checkpoint_id, tuple(message.subtask))
            what = f"checkpoint {message.checkpoint_id}, subtask {tuple(message.subtask)}"
            self.declines[message.reason] += 1
            if key in self._declined:
                self._world.violate(f"{what}: declined twice")
            self._declined.add(key)
            ack = self._acknowledged.get((tuple(message.generation), message.checkpoint_id, message.slot))
            if ack is not None:
                self._world.violate(f"{what}: declined ({message.reason}) after its acknowledgement")
        elif isinstance(message, SlotAck):
            generation = tuple(message.generation)
            slot_key = (generation, message.checkpoint_id, message.slot)
            before = self._acknowledged.setdefault(slot_key, message)
            if before is not message and before.segment != message.segment:
                self._world.violate(f"checkpoint {message.checkpoint_id}: slot {message.slot} wrote two segments")
            for s in message.subtasks:
                if (generation, message.checkpoint_id, (s.vertex, s.subtask)) in self._declined:
                    what = f"checkpoint {message.checkpoint_id}, subtask {(s.vertex, s.subtask)}"
                    self._world.violate(f"{what}: acknowledged after its decline")


@dataclass
class LogChecker:
    """Checks the log: one dense log that never forks, fences that are respected, checkpoints that can be restored."""

    world: World
    workload: Workload
    shared: SharedObjects
    directory: str
    entries: list[Any] = field(default_factory=list)
    published: int = 0
    unaligned: int = 0
    inflight_rows: int = 0
    inflight_events: int = 0
    finished_with_rows: int = 0
    """Snapshots of subtasks after their end of data, with rows in their output queues."""
    layers: int = 0
    draining: int = 0
    """Checkpoints that were triggered while the job drained."""
    graphs: dict[str, JobGraph] = field(default_factory=dict)
    """What each incarnation of a driver runs, where it is not the workload's graph."""
    newest: Metadata | None = None
    told: Callable[[Metadata], None] = lambda metadata: None
    """Called with each checkpoint as it is published."""
    final: Metadata | None = None
    committable: set[bytes] = field(default_factory=set)
    """What some published checkpoint says is to be committed."""
    owner: str | None = None
    """The incarnation of the driver whose fence is the newest."""
    base: int = 0
    """Where the log counts from, as its newest entry says."""
    void: list[tuple[int, str]] = field(default_factory=list)
    """Entries that were created at positions that had been deleted, with the driver's incarnation: they count for
    nobody."""
    objects_max: int = 0
    """The most objects of the log at once."""
    _newest_checkpoint_at: int = -1
    _named: set[str] = field(default_factory=set)
    """Metadata of the retained checkpoints, and the segments that it names."""
    _newest_id: int = 0
    _failures_at_end: int | None = None
    _late: set[str] = field(default_factory=set)

    def on_created(self, name: str, data: bytes) -> None:
        path = name.removeprefix(f"{self.directory}/")
        found = parse(path)
        if isinstance(found, LogName):
            self._on_entry(found.sequence, decode_entry(data, path))
        elif self._failures_at_end is not None:
            self._late.add(name)

    def _on_entry(self, sequence: int, entry: Any) -> None:
        if sequence < len(self.entries):
            self._on_void_entry(sequence, entry)
            return
        if sequence != len(self.entries):
            self.world.violate(f"log entry {sequence} follows {len(self.entries) - 1}")
        self.entries.append(entry)
        self._check_base(sequence, entry)
        if isinstance(entry, Fence):
            self.owner = entry.incarnation
            return
        if entry.incarnation != self.owner:
            self.world.violate(f"log entry {sequence} is by {entry.incarnation}, but {self.owner} has put its fence")
        self._named = self._named_by(entry.retained)
        if isinstance(entry, Ended):
            self._failures_at_end = self.shared.failures
        if isinstance(entry, CheckpointEntry):
            if entry.checkpoint_id <= self._newest_id:
                self.world.violate(f"checkpoint {entry.checkpoint_id} published after {self._newest_id}")
            self._newest_id = entry.checkpoint_id
            self._check_metadata(entry)

    def _on_void_entry(self, sequence: int, entry: Any) -> None:
        what = f"log entry {sequence} is created at a deleted position"
        if sequence >= self.base:
            self.world.violate(f"{what}, but the log counts from {self.base}")
        if not isinstance(entry, Fence) and any(incarnation == entry.incarnation for _, incarnation in self.void):
            self.world.violate(f"{what}, and {entry.incarnation} has created one there before and goes on")
        self.void.append((sequence, entry.incarnation))

    def _check_base(self, sequence: int, entry: Any) -> None:
        if isinstance(entry, CheckpointEntry):
            self._newest_checkpoint_at = sequence
        if entry.base < self.base:
            self.world.violate(f"log entry {sequence}: the base of the log falls from {self.base} to {entry.base}")
        if entry.base > max(self._newest_checkpoint_at, 0):
            self.world.violate(
                f"log entry {sequence}: the log counts from {entry.base}, but its newest checkpoint stands at "
                f"{self._newest_checkpoint_at}"
            )
        self.base = entry.base
        self.objects_max = max(self.objects_max, sum(name.startswith(self._log_folder) for name in self.shared.objects))

    @property
    def _log_folder(self) -> str:
        return f"{self.directory}/{LOG_FOLDER}/"

    def on_deleted(self, name: str) -> None:
        found = parse(name.removeprefix(f"{self.directory}/"))
        if isinstance(found, LogName) and found.sequence >= self.base:
            self.world.violate(f"log entry {found.sequence} is deleted, but the log counts from {self.base}")
        path = name.removeprefix(f"{self.directory}/")
        if path in self._named:
            self.world.violate(f"{path} is deleted, but a checkpoint that is retained needs it")

    def _named_by(self, retained: list[str]) -> set[str]:
        named = set(retained)
        for path in retained:
            data = self._object(path)
            if data is not None:
                named.update(segment.path for segment in decode_metadata(data, path).segments)
        return named

    def _object(self, path: str) -> bytes | None:
        return self.shared.objects.get(f"{self.directory}/{path}")

    def _check_metadata(self, entry: CheckpointEntry) -> None:
        data = self._object(entry.path)
        if data is None:
            self.world.violate(f"checkpoint {entry.checkpoint_id} is in the log, but {entry.path} is missing")
            return
        metadata = decode_metadata(data, entry.path)
        self.published += 1
        self.newest = metadata
        self.told(metadata)
        graph, what = self.graphs.get(entry.incarnation, self.workload.graph), f"checkpoint {entry.checkpoint_id}"
        self.draining += metadata.draining
        for violation in uncovered(graph.edges, metadata.subtasks):
            self.world.violate(f"{what}: {violation}")
        expected = {(v.index, s) for v in graph.vertices for s in range(v.parallelism)}
        if {(s.vertex, s.subtask) for s in metadata.subtasks} != expected:
            self.world.violate(f"{what}: not a snapshot of each subtask")
        segments = [self._object(s.path) for s in metadata.segments]
        for segment, content in zip(metadata.segments, segments):
            if content is None or len(content) != segment.length_bytes:
                self.world.violate(f"{what}: segment {segment.path} is missing or truncated")
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
            self.committable.update(c.data for c in snapshot.committables)
        for violation in wrong_ranges(metadata, lambda state: self._check_range(what, segments, state)):
            self.world.violate(f"{what}: {violation}")
        self.committable.update(c.data for c in metadata.unconfirmed_commits)
        if metadata.is_final:
            self._check_final_state(graph, metadata, segments)
            self.final = metadata

    def _check_range(self, what: str, segments: list[bytes | None], place: Any) -> bytes:
        content = segments[place.segment] or b""
        data = content[place.offset : place.offset + place.length_bytes]
        if zlib.crc32(data) != place.crc:
            self.world.violate(f"{what}: checksum of {place.length_bytes} bytes at {place.offset} does not match")
        return data

    def _check_piece(self, what: str, edge: Edge, piece: Piece, segments: list[bytes | None]) -> None:
        data = self._check_range(f"{what}: {edge.name}", segments, piece)
        self.inflight_rows += piece.rows
        if as_batch(data, wire_schema(edge)).num_rows != piece.rows:
            self.world.violate(f"{what}: a piece of {edge.name} says {piece.rows} rows and holds others")

    # ---- state --------------------------------------------------------------------------------------------------

    def _check_final_state(self, graph: JobGraph, metadata: Metadata, segments: list[bytes | None]) -> None:
        for vertex in graph.vertices:
            for operator in vertex.operators:
                expected = self.workload.counted.get(operator.user_uid or "")
                if expected is not None and operator.kind is OperatorKind.KEYED_PROCESS:
                    edge = next(e for e in graph.edges if e.target == vertex.index)
                    self._check_counts(metadata, segments, vertex, operator, edge, expected)

    def _check_counts(
        self,
        metadata: Metadata,
        segments: list[bytes | None],
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

    # ---- files --------------------------------------------------------------------------------------------------

    def check_orphans(self) -> None:
        """Check, after the job's end and its sweep, that everything left is named by something retained. Reports only
        if the store has worked since, and ignores what a slot that was given up has written later.
        """
        if self._failures_at_end is None or self.shared.failures != self._failures_at_end:
            return
        newest = next((e for e in reversed(self.entries) if not isinstance(e, Fence)), None)
        retained = set(newest.retained) if newest is not None else set()
        named = self._named_by(list(retained))
        skip = len(self.directory) + 1
        for name in sorted(self.shared.objects):
            if not name.startswith(f"{self.directory}/"):
                continue
            path = name[skip:]
            if path in named or name in self._late:
                continue
            found = parse(path)
            if isinstance(found, (SegmentName, MetadataName)):
                self.world.violate(f"orphan after the sweep: {path}")
            elif isinstance(found, LogName) and found.sequence < self.base:
                if found.sequence not in (sequence for sequence, _ in self.void):
                    self.world.violate(f"orphan after the sweep: {path} lies below the log's base, {self.base}")


def check_output(world: World, output: Output, workload: Workload) -> None:
    """Check that every row has its effect exactly once, in the order of its split and key unless something has
    scattered it.
    """
    for sink, expected in workload.sinks.items():
        rows: list[Row] = [tuple(row) for part in output.of(sink) for row in part.rows]  # type: ignore[misc]
        width = 5 if expected.exact else 4
        names = Counter(row[:width] for row in rows)
        wanted = Counter(row[:width] for row in expected.rows)
        if names != wanted:
            lost, twice = wanted - names, names - wanted
            world.violate(
                f"{sink}: {sum(lost.values())} rows lost {_some(lost)}, {sum(twice.values())} too many {_some(twice)}"
            )
        elif expected.counts:
            _check_counted(world, sink, rows)
        if expected.ordered:
            _check_order(world, sink, output)


def check_cancelled(world: World, output: Output, workload: Workload, log: LogChecker | None) -> None:
    """Check that what was committed before is there once, and nothing else; only what is retained is left behind."""
    for sink, expected in workload.sinks.items():
        names = Counter(tuple(row[:4]) for part in output.of(sink) for row in part.rows)
        too_many = names - Counter(row[:4] for row in expected.rows)
        if too_many:
            world.violate(f"{sink}: {sum(too_many.values())} rows too many {_some(too_many)}")
    if log is not None:
        log.check_orphans()


def _some(rows: Counter[Any]) -> str:
    return str(sorted(rows)[:3])


def _check_counted(world: World, sink: str, rows: list[Row]) -> None:
    counts = Counter((row[2], row[4]) for row in rows)
    repeated = [key for key, times in counts.items() if times > 1]
    if repeated:
        world.violate(f"{sink}: (key, count) {sorted(repeated)[:3]} of different rows: state was lost or used twice")


def _check_order(world: World, sink: str, output: Output) -> None:
    last: dict[tuple[int, int, int], tuple[int, int]] = {}
    for part in output.of(sink):
        for split, number, key, copy, _ in part.rows:
            place = (part.subtask, split, key)
            before = last.get(place)
            if before is not None and before >= (number, copy):
                world.violate(f"{sink}/{part.subtask}: split {split} key {key}: {(number, copy)} after {before}")
                return
            last[place] = (number, copy)


def check_end(world: World, output: Output, workload: Workload, log: LogChecker | None, is_swept: bool) -> None:
    check_output(world, output, workload)
    if log is not None:
        if log.final is None:
            world.violate("the job has finished without a final checkpoint in its log")
        elif is_swept:
            log.check_orphans()
