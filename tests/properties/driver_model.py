"""Models a job for the properties of its driver: the driver's real machines over a log that loses answers, with slots
that are real `SubtaskMachine`s.

Only what blocks is modelled: the store, the sink, and the network between driver and slots. Drivers may be killed at
any moment, or live on after another one has taken the job over.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from penstock.jobmaster.current_job import Driver
from penstock.protocol.driver import commit_order, recovery
from penstock.protocol.driver import driver_effects as effects
from penstock.protocol.driver import driver_events as events
from penstock.protocol.driver.commit_order import CommitState, committables_of, without_committables
from penstock.protocol.driver.coordinator import CoordinatorSettings
from penstock.protocol.driver.driver_machine import DriverMachine, Effect
from penstock.protocol.driver.lifecycle import LifecycleSettings, Phase
from penstock.protocol.driver.published_checkpoints import Follow, PublishedKind
from penstock.protocol.driver.restarts import FixedDelay
from penstock.protocol.driver.savepoint import Savepoint
from penstock.protocol.log.publication import (
    NewCheckpoint,
    NotPublished,
    Publication,
    PublicationError,
    Published,
    TakenOver,
)
from penstock.protocol.subtask.drain_gate import DrainGate
from penstock.protocol.subtask.effects import CloseCapture, FinishRow, RowFinished
from penstock.protocol.subtask.subtask_machine import SubtaskMachine
from penstock.protocol.values.elements import Barrier, Generation, SubtaskId
from penstock.protocol.values.log_entries import CheckpointEntry, Fence
from penstock.protocol.values.messages import CheckpointEnded, Decline, Register, SlotAck, TriggerCheckpoint
from penstock.protocol.values.metadata import FORMAT_VERSION, Committable, Metadata, Segment, SubtaskSnapshot
from penstock.protocol.values.reasons import FailureReason
from tests.unit.protocol.log.log_store import Conversing, LogStore, path_of

SLOTS = 2
TIMEOUT_MS = 1_000.0
FOREVER_MS = 1e12


@dataclass
class World:
    """Holds the parts that outlive drivers: the store, and the sink's commits."""

    store: LogStore = field(default_factory=LogStore)
    segments: set[str] = field(default_factory=set)
    committed: dict[bytes, set[int]] = field(default_factory=dict)
    """Output -> the checkpoints for which it was committed. A sink ignores a repetition for the same one."""
    deleted: set[str] = field(default_factory=set)
    now_ms: float = 0.0

    def monotonic_ms(self) -> float:
        return self.now_ms

    @property
    def history(self) -> list[Any]:
        return [entry for _, entry in sorted(self.store.history.items())]

    @property
    def owner(self) -> str:
        """Return the driver whose fence is the newest."""
        return next((e.incarnation for e in reversed(self.history) if isinstance(e, Fence)), "")

    def outputs_of_canonical(self) -> set[bytes]:
        """Return all output that a canonical checkpoint has named."""
        named = [self.store.by_data[f"{e.checkpoint_id}-{e.incarnation}".encode()] for e in self.canonical()]
        return {committable.data for metadata in named for committable in committables_of(metadata)}

    def canonical(self) -> list[CheckpointEntry]:
        """Return the entries of all checkpoints that count: each driver's that lie behind its own newest fence."""
        owner, found = "", []
        for entry in self.history:
            if isinstance(entry, Fence):
                owner = entry.incarnation
            elif isinstance(entry, CheckpointEntry) and entry.incarnation == owner:
                found.append(entry)
        return found


@dataclass
class Slot:
    """Runs one subtask: a real machine, and a writer that names its output until it hears that a checkpoint of it is
    canonical. `names_earlier`: checkpoints with this remainder by 2 name segments of their predecessor, too.
    """

    number: int
    generation: Generation
    world: World
    names_earlier: int
    machine: SubtaskMachine = field(init=False)
    mail: deque[Any] = field(default_factory=deque)
    prepared: list[Committable] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.machine = SubtaskMachine([], [], DrainGate(SubtaskId(0, self.number), self.generation, self.number))

    def step(self, earlier: Callable[[Barrier], list[str]]) -> list[Any]:
        """Handle a message of the driver; return the messages to it."""
        if not self.mail:
            return []
        message = self.mail.popleft()
        if isinstance(message, CheckpointEnded) and not message.aborted and message.commits:
            self.prepared = [c for c in self.prepared if c.prepared_for > message.checkpoint_id]
        sent: list[Any] = []
        waiting = deque(self.machine.handle(message, self.world.now_ms))
        while waiting:
            effect = waiting.popleft()
            if isinstance(effect, FinishRow):
                waiting.extend(self.machine.handle(RowFinished(), self.world.now_ms))
            elif isinstance(effect, CloseCapture):
                sent.append(self._acknowledge(effect.cut.barrier, earlier(effect.cut.barrier)))
        return sent

    def _acknowledge(self, barrier: Barrier, earlier: list[str]) -> SlotAck:
        number, generation = barrier.checkpoint_id, self.generation
        data = f"{generation.fence}.{generation.counter}/{number}/{self.number}".encode()
        self.prepared.append(Committable("sink", data, number))
        path = f"shared/{generation.fence}-{generation.counter}-{number}-{self.number}"
        self.world.segments.add(path)
        snapshot = SubtaskSnapshot(0, self.number, [], [], [], [], [], [], list(self.prepared))
        # Not every checkpoint names what its predecessor has: one may drop what the next one, pending as well, needs.
        names = number % 2 == self.names_earlier
        named = [Segment(path, 1) for path in earlier] if names else []
        return SlotAck(generation, self.number, number, Segment(path, 1), [snapshot], named)


class ModelDriver:
    """Runs one driver's machines. Nothing is decided here: effects are executed over the model."""

    def __init__(self, world: World, name: str, names_earlier: int, tolerable: int) -> None:
        self.world, self.name, self._names_earlier = world, name, names_earlier
        self.is_dead = False
        self.publication = Publication(name, 1)
        self.talks: deque[tuple[Any, Callable[[Any], None]]] = deque()
        self.talk: tuple[Conversing, Callable[[Any], None]] | None = None
        self.slots: dict[int, Slot] = {}
        self.commit: tuple[Committable, ...] | None = None
        self.restore: Metadata | None = None
        self.restarts: list[tuple[int, int]] = []
        """For each generation of the job's owner: the checkpoint that it restored, and the newest one in the log."""
        self._published: tuple[NewCheckpoint, Published] | None = None
        self._saved: Metadata | None = None
        self._batches = self._savepoints = self.answered = 0
        self._waiting_attempt: int | None = None
        """The attempt of a recovery that waits until nothing is published."""
        lifecycle = LifecycleSettings(SLOTS, FOREVER_MS, FOREVER_MS, FOREVER_MS, FOREVER_MS, FOREVER_MS)
        coordinator = CoordinatorSettings(FOREVER_MS, 0.0, TIMEOUT_MS, 2, 0, tolerable)
        machine = DriverMachine(lifecycle, coordinator, FixedDelay(1_000_000, 0.0), lambda: 0.0, has_log=True)
        clock: Any = world
        self.driver = Driver(machine, clock, self._execute)
        self.machine = machine

    @property
    def fence(self) -> int:
        return self.publication.fence or 0

    # ---- steps --------------------------------------------------------------------------------------------------

    def start(self, resume: bool) -> None:
        self._resumes = resume
        self.driver.handle(events.Started())
        for slot in range(SLOTS):
            self.driver.handle(events.Registered(Register(slot, 1, 0, f"{self.name}-{slot}", 1, "host", 1, "3", "0")))

    def step_log(self, fault: str) -> None:
        """Carry one operation on the log out, with a fault of the store."""
        if self.talk is not None and not self.is_dead:
            self.talk[0].step(self.world.store, fault)
            self._advance()

    def step_slot(self, number: int) -> None:
        slot = self.slots.get(number)
        if slot is not None and not self.is_dead:
            for message in slot.step(self._earlier):
                self.driver.handle(message)

    def decline(self, number: int) -> None:
        """Let a slot decline the newest checkpoint that is pending."""
        pending = self.machine.coordinator.pending.ids
        generation = self.machine.lifecycle.generation
        if pending and generation is not None and not self.is_dead:
            reason = FailureReason.IO_EXCEPTION
            self.driver.handle(Decline(generation, number, pending[-1], SubtaskId(0, number), reason, "a full disk"))

    def step_commit(self, succeeds: bool) -> None:
        """Let the sink answer. A refusal may come after some of the output was committed."""
        if self.commit is None or self.is_dead:
            return
        committables, self.commit = self.commit, None
        for committable in committables if succeeds else committables[:1]:
            self.world.committed.setdefault(committable.data, set()).add(committable.checkpoint_id)
        answer = (
            commit_order.Committed() if succeeds else commit_order.Refused(effects.FailureCause("the sink is full"))
        )
        self.driver.handle(answer)

    def fail(self) -> None:
        if not self.is_dead:
            self.driver.fail(effects.FailureCause("a failure"))

    def ask(self) -> None:
        if not self.is_dead:
            self.driver.handle(events.CheckpointAsked())

    def ask_for_savepoint(self) -> None:
        if not self.is_dead:
            self._savepoints += 1
            self.driver.handle(events.SavepointAsked(Savepoint(f"savepoint-{self._savepoints}")))

    def look_at_the_clock(self) -> None:
        if not self.is_dead:
            self.driver.handle(events.TimePassed())

    def bring_up(self) -> None:
        """Let the processes do what the driver waits for."""
        life = self.machine.lifecycle
        if self.is_dead:
            return
        for member in life.roster.members():
            generation = life.generation
            if generation is None:
                self.driver.handle(events.SlotLeft(member.process, Generation(self.fence, 0)))
            elif life.phase is Phase.CONNECTING:
                self.driver.handle(events.SlotConnected(member.process, generation))
        generation = life.generation
        if generation is not None and life.phase is Phase.RESTORING:
            for member in life.roster.members():
                self.driver.handle(events.SlotRestored(member.process, generation))

    # ---- the log ------------------------------------------------------------------------------------------------

    def _begin(self, conversation: Any, done: Callable[[Any], None]) -> None:
        self.talks.append((conversation, done))
        self._start_next()

    def _start_next(self) -> None:
        if self.talk is None and self.talks:
            conversation, done = self.talks.popleft()
            self.talk = Conversing(conversation), done
            self._advance()

    def _advance(self) -> None:
        if self.talk is None or not self.talk[0].is_done:
            return
        (conversing, done), self.talk = self.talk, None
        if conversing.error is not None and not isinstance(conversing.error, PublicationError):
            raise conversing.error
        done(conversing.error or conversing.result)
        self._start_next()
        self._answer_if_idle()

    def _taken_over(self, result: Any) -> None:
        if isinstance(result, PublicationError):
            self.is_dead = True
            return
        assert isinstance(result, TakenOver)
        self.driver.handle(events.IdsUsed(result.next_checkpoint_id))
        self.restore = result.metadata
        self.driver.handle(recovery.LogTaken(result.metadata is not None, fence=self.fence))

    def _answer_if_idle(self) -> None:
        attempt = self._waiting_attempt
        if attempt is not None and self.talk is None and not self.talks:
            self._waiting_attempt = None
            self.driver.handle(recovery.PublicationsIdle(attempt, needs_slots=True, holds_files=True))

    # ---- commits ------------------------------------------------------------------------------------------------

    def _add(self, committables: Sequence[Committable]) -> None:
        self._batches += 1
        self.driver.handle(commit_order.Added(self._batches, tuple(committables)))

    # ---- effects ------------------------------------------------------------------------------------------------

    def _execute(self, effect: Effect) -> None:
        match effect:
            case recovery.OpenDirectory():
                self.driver.handle(recovery.StoreOpened())
            case recovery.TakeOverLog():
                self._begin(self.publication.take_over(resume=self._resumes), self._taken_over)
            case recovery.FitCheckpoint():
                self.driver.handle(recovery.Fitted(is_final=False, is_own=True, holds_files=True))
            case recovery.QueueCommits():
                assert self.restore is not None
                self._add(committables_of(self.restore))
            case recovery.AwaitPublications(attempt):
                self._waiting_attempt = attempt
                self._answer_if_idle()
            case recovery.CheckFiles(attempt):
                self.driver.handle(recovery.FilesChecked(attempt, recovery.Files.COMPLETE))
            case commit_order.Commit(committables):
                self.commit = committables
            case effects.Deploy(generation, members):
                restored = 0 if self.restore is None else self.restore.checkpoint_id
                if self.world.owner == self.name:
                    newest = max([0, *(entry.checkpoint_id for entry in self.world.canonical())])
                    self.restarts.append((restored, newest))
                names = self._names_earlier
                self.slots = {m.slot: Slot(m.slot, generation, self.world, names) for m in members}
            case effects.StartRun(generation):
                self.driver.handle(events.Running(generation, frozenset(range(SLOTS)), SLOTS, 0.9, False))
            case effects.GenerationEnded():
                self.slots = {}
            case effects.TriggerCheckpoint(barrier):
                pin = self.publication.retention.pin_predecessor
                predecessor = pin(barrier.checkpoint_id) if barrier.kind.has_predecessor else None
                known = None if predecessor is None else predecessor.checkpoint_id
                barrier = msgspec.structs.replace(barrier, predecessor_id=known)
                for slot in self.slots.values():
                    slot.mail.append(TriggerCheckpoint(slot.generation, barrier))
            case effects.PublishCheckpoint(savepoint=Savepoint()):
                self._saved = self._metadata_of(effect)
                saved = events.CheckpointPublished(effect.barrier.checkpoint_id, PublishedKind.SAVED)
                self.driver.handle(saved)
            case effects.PublishCheckpoint():
                self._begin(self._publication_of(effect), self._on_published)
            case effects.FollowPublication(step, checkpoint_id):
                self._follow(step, checkpoint_id)
            case effects.CheckpointAborted(checkpoint_id):
                self._end_at_slots(checkpoint_id, aborted=True)
                self._delete(self.publication.retention.unpin(checkpoint_id))
            case effects.DiscardSegments(paths):
                self._delete(paths)

    def _earlier(self, barrier: Barrier) -> list[str]:
        predecessor = self.publication.retention.predecessor_of(barrier.checkpoint_id)
        return [] if predecessor is None else sorted(predecessor.segments or ())

    def _end_at_slots(self, checkpoint_id: int, aborted: bool, commits: bool = True) -> None:
        for slot in self.slots.values():
            slot.mail.append(CheckpointEnded(slot.generation, checkpoint_id, aborted, commits))

    def _metadata_of(self, publish: effects.PublishCheckpoint) -> Metadata:
        number = publish.barrier.checkpoint_id
        subtasks = [s for ack in publish.acks for s in ack.subtasks]
        named = {s.path: s for ack in publish.acks for s in (ack.segment, *ack.earlier) if s is not None}
        return Metadata(
            FORMAT_VERSION, "job", "name", number, publish.generation.fence, publish.generation.counter, self.name, 0,
            False, [], [], list(named.values()), without_committables(subtasks, self.publication.newest_id), [],
            self.machine.commits.unconfirmed, False,
        )  # fmt: skip

    def _publication_of(self, publish: effects.PublishCheckpoint) -> Any:
        number, metadata = publish.barrier.checkpoint_id, self._metadata_of(publish)
        data = f"{number}-{self.name}".encode()
        self.world.store.by_data[data] = metadata
        checkpoint = NewCheckpoint(metadata, path_of(number), data, 7)
        result = yield from self.publication.publish(checkpoint)
        return checkpoint, result

    def _on_published(self, outcome: Any) -> None:
        if isinstance(outcome, PublicationError):
            self.is_dead = True
            return
        checkpoint, result = outcome
        number = checkpoint.metadata.checkpoint_id
        if isinstance(result, Published):
            self._published = checkpoint, result
            self.driver.handle(events.CheckpointPublished(number, PublishedKind.CHECKPOINT))
            return
        reason = FailureReason.FINALIZE_FAILURE if isinstance(result, NotPublished) else FailureReason.SUBSUMED
        self.driver.handle(events.IdsUsed(getattr(result, "next_id", 0)))
        self.driver.handle(events.CheckpointNotPublished(number, reason, ""))

    def _follow(self, step: Follow, checkpoint_id: int) -> None:
        match step:
            case Follow.NOTIFY_SLOTS_SAVED:
                self._end_at_slots(checkpoint_id, aborted=False, commits=False)
            case Follow.ANSWER:
                self.answered += 1
            case Follow.RESTORE_FROM if self._saved is not None and self._saved.checkpoint_id == checkpoint_id:
                self.restore = self._saved
            case _:
                self._follow_entry(step, checkpoint_id)

    def _follow_entry(self, step: Follow, checkpoint_id: int) -> None:
        assert self._published is not None
        checkpoint, published = self._published
        metadata = checkpoint.metadata
        match step:
            case Follow.RESTORE_FROM:
                self.restore = metadata
            case Follow.NOTIFY_SLOTS:
                self._end_at_slots(checkpoint_id, aborted=False)
            case Follow.COMMIT:
                self._add(committables_of(metadata)[len(metadata.unconfirmed_commits) :])
            case Follow.DELETE_UNNEEDED:
                self._delete(published.deletable)
                self.world.store.shorten(published.shortened)
            case Follow.RELEASE_PREDECESSOR:
                self._delete(self.publication.retention.unpin(checkpoint_id))

    def _delete(self, paths: Sequence[str]) -> None:
        if self.publication.fence is not None and not self.is_dead:
            self.world.deleted.update(paths)
            self.world.segments.difference_update(paths)
            self.world.store.delete(tuple(path for path in paths if path.endswith("_metadata")))

    @property
    def is_settled(self) -> bool:
        return self.machine.commits.state is CommitState.IDLE
