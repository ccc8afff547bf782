"""Checks a job's log, and the checkpoints and savepoints that it names or reported to a user."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import msgspec

from penstock.graph.job_graph import JobGraph
from penstock.graph.rescaled_graph import as_taken, rescaled
from penstock.protocol.restore.receivers import uneven_broadcasts
from penstock.protocol.values.log_entries import CheckpointEntry, Ended, Fence
from penstock.protocol.values.metadata import Metadata
from penstock.storage.layout import FRAMES_FOLDER, LOG_FOLDER, METADATA_NAME, LogName, MetadataName, SegmentName, parse
from penstock.storage.log import decode_entry
from penstock.storage.metadata_file import decode_metadata
from simulation.checkers.claim_checker import ClaimChecker
from simulation.checkers.content_checker import ContentChecker
from simulation.checkers.element_coverage import uncovered
from simulation.jobs.stored_rows import stored_folders


@dataclass
class LogChecker(ContentChecker):
    """Checks the log: one dense log that never forks, fences that are respected, checkpoints that can be restored."""

    entries: list[Any] = field(default_factory=list)
    published: int = 0
    savepoints: int = 0
    """Savepoints reported to a user."""
    draining: int = 0
    """Checkpoints that were triggered while the job drained."""
    candidates: dict[str, list[JobGraph]] = field(default_factory=dict)
    """The graphs that each incarnation of a driver may run: its first graph, and the ones that users ordered."""
    uneven: list[Metadata] = field(default_factory=list)
    """Checkpoints that are restored in two steps at another parallelism: receivers of a broadcast had read different
    rows."""
    newest: Metadata | None = None
    told: Callable[[Metadata], None] = lambda metadata: None
    """A callback that gets each checkpoint as it is published."""
    owner: str | None = None
    """The incarnation of the driver whose fence is the newest."""
    base: int = 0
    """The position that the log counts from, as its newest entry says."""
    void: list[tuple[int, str]] = field(default_factory=list)
    """Entries that were created at positions that had been deleted, with the driver's incarnation: they count for
    nobody."""
    objects_max: int = 0
    """The most objects of the log at once."""
    _newest_checkpoint_at: int = -1
    _named: set[str] = field(default_factory=set)
    """Metadata of the retained checkpoints, and the segments and folders of rows that they name."""
    _newest_id: int = 0
    _output: dict[str, int] = field(default_factory=dict)
    """Prepared output -> the checkpoint in the log that named it first as its own."""
    _failures_at_end: int | None = None
    _late: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self._claim = ClaimChecker(self.world, self.workload, self.shared)

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
        self._claim.on_entry(sequence, entry)
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
            if self.newest is not None and self.newest.is_final:
                self.world.violate(f"checkpoint {entry.checkpoint_id} follows the final one, {self._newest_id}")
            if self.newest is not None and self.newest.savepoint is not None:
                self.world.violate(f"checkpoint {entry.checkpoint_id} follows the stop of the job, {self._newest_id}")
            self._newest_id = entry.checkpoint_id
            self._check_metadata(entry)

    def _on_void_entry(self, sequence: int, entry: Any) -> None:
        what = f"log entry {sequence} is created at a deleted position"
        if sequence >= self.base:
            self.world.violate(f"{what}, but the log counts from {self.base}")
        # The same position again is the same attempt: a lost reply, and the entry deleted before it was tried again.
        before = [at for at, incarnation in self.void if incarnation == entry.incarnation]
        if not isinstance(entry, Fence) and any(at != sequence for at in before):
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
        stopped_with = None if self.newest is None else self.newest.savepoint
        if stopped_with is not None and name.startswith(f"{stopped_with}/"):
            self.world.violate(f"{name} is deleted, but the log says that the job was stopped with that savepoint")

    def _named_by(self, retained: list[str]) -> set[str]:
        named = set(retained)
        for path in retained:
            data = self._object(path)
            if data is not None:
                metadata = decode_metadata(data, path)
                named.update(segment.path for segment in metadata.segments)
                named.update(stored_folders([enumerator.data for enumerator in metadata.enumerators]))
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
        self.note(metadata)
        self.told(metadata)
        graph, what = self.graph_of(metadata), f"checkpoint {entry.checkpoint_id}"
        self.draining += metadata.draining
        if metadata.savepoint is None:
            for violation in uncovered(graph.edges, metadata.subtasks):
                self.world.violate(f"{what}: {violation}")
        self._check_output(what, metadata)
        expected = {(v.index, s) for v in graph.vertices for s in range(v.parallelism)}
        if {(s.vertex, s.subtask) for s in metadata.subtasks} != expected:
            self.world.violate(f"{what}: not a snapshot of each subtask")
        if metadata.savepoint is not None:
            metadata = self._savepoint(what, metadata)
        self.check_content(what, graph, metadata, metadata.savepoint or self.directory)

    @property
    def has_finished(self) -> bool:
        return any(isinstance(entry, Ended) and entry.state == "FINISHED" for entry in self.entries[-1:])

    @property
    def newest_continues(self) -> bool:
        """Return whether the job continues behind its newest checkpoint."""
        return self.newest is None or not (self.newest.is_final or self.newest.savepoint is not None)

    def note(self, metadata: Metadata) -> None:
        """Note a checkpoint, or a savepoint, from which a driver may begin."""
        if uneven_broadcasts(metadata):
            self.uneven.append(metadata)

    def graph_of(self, metadata: Metadata) -> JobGraph:
        """Return the graph whose snapshot this is: of those that its driver may run, the one with its parallelisms."""
        candidates = self.candidates.get(metadata.incarnation, [self.workload.graph])
        taken = [vertex.parallelism for vertex in metadata.vertices]
        if not any([v.parallelism for v in graph.vertices] == taken for graph in candidates):
            # The first of two steps of a restore runs at the parallelism at which an earlier checkpoint was taken.
            first = [as_taken(g, m.vertices, uneven_broadcasts(m)) for m in self.uneven for g in candidates]
            candidates = [graph for graph in first if graph not in candidates] + candidates
        if self.workload.is_adaptive:
            candidates = [rescaled(g, g, slots) for g in candidates for slots in range(1, g.slots)] + candidates
        found = _with_parallelisms(taken, candidates)
        if not found and self.workload.is_adaptive:
            # An adaptive job takes the first of two steps, too, with as many slots as there are.
            fewer = [rescaled(g, g, slots) for g in candidates for slots in range(1, g.slots)]
            found = _with_parallelisms(
                taken, [as_taken(g, m.vertices, uneven_broadcasts(m)) for m in self.uneven for g in fewer]
            )
        return (found or candidates)[-1]

    def _check_output(self, what: str, metadata: Metadata) -> None:
        """Check that the checkpoint commits nothing again that an older one has committed. What is not confirmed stands
        apart."""
        for snapshot in metadata.subtasks:
            for committable in snapshot.committables:
                name = committable.data.decode()
                first = self._output.setdefault(name, metadata.checkpoint_id)
                if first != metadata.checkpoint_id:
                    self.world.violate(f"{what} commits {name} again, which checkpoint {first} has named")

    def _savepoint(self, what: str, last: Metadata) -> Metadata:
        """Return the metadata of the savepoint that the job was stopped with. It must be there before the log entry."""
        data = self.shared.objects.get(f"{last.savepoint}/{METADATA_NAME}")
        if data is None:
            self.world.violate(f"{what} stops the job with {last.savepoint}, which has no metadata")
            return last
        found = decode_metadata(data, METADATA_NAME)
        return msgspec.structs.replace(found, savepoint=last.savepoint)

    def has_written(self, directory: str) -> bool:
        """Return whether a driver of this job wrote a savepoint."""
        data = self.shared.objects.get(f"{directory}/{METADATA_NAME}")
        return data is not None and decode_metadata(data, METADATA_NAME).incarnation in self.candidates

    def check_savepoint(self, directory: str) -> None:
        """Check a savepoint of the job reported to a user."""
        data = self.shared.objects.get(f"{directory}/{METADATA_NAME}")
        if data is None:
            self.world.violate(f"a user was given the savepoint {directory}, which has no metadata")
            return
        metadata = decode_metadata(data, METADATA_NAME)
        self.savepoints += 1
        self.note(metadata)
        graph = self.graph_of(metadata)
        for violation in uncovered(graph.edges, metadata.subtasks):
            self.world.violate(f"savepoint {directory}: {violation}")
        before = set(self.committable)
        self.check_content(f"savepoint {directory}", graph, metadata, directory)
        self.committable = before

    # ---- files --------------------------------------------------------------------------------------------------

    def check_orphans(self) -> None:
        """Check, after the job's end and its sweep, that everything left is named by something retained. Reports only
        if the store has worked since, and ignores what a slot that was given up has written later.
        """
        if self._failures_at_end is None or self.shared.failures != self._failures_at_end:
            return
        newest = next((e for e in reversed(self.entries) if not isinstance(e, Fence)), None)
        retained = set(newest.retained) if newest is not None else set()
        self._claim.check_at_end(len(retained), bool(self._newest_id))
        named = self._named_by(list(retained))
        skip = len(self.directory) + 1
        for name in sorted(self.shared.objects):
            if not name.startswith(f"{self.directory}/"):
                continue
            path = name[skip:]
            if path in named or name in self._late:
                continue
            found = parse(path)
            is_of_rows = path.startswith(f"{FRAMES_FOLDER}/") and not retained and self.has_finished
            if isinstance(found, (SegmentName, MetadataName)) or is_of_rows:
                self.world.violate(f"orphan after the sweep: {path}")
            elif isinstance(found, LogName) and found.sequence < self.base:
                if found.sequence not in (sequence for sequence, _ in self.void):
                    self.world.violate(f"orphan after the sweep: {path} lies below the log's base, {self.base}")


def _with_parallelisms(taken: list[int], graphs: list[JobGraph]) -> list[JobGraph]:
    return [graph for graph in graphs if [v.parallelism for v in graph.vertices] == taken]
