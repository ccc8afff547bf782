"""Tests enumerators that look for splits outside the job: next to the JobMaster's loop, and only for their own
generation.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from penstock.connectors.hybrid.numbered import end_of
from penstock.datastream.connectors.base import ReaderContext, Source, SourceReader, SplitEnumerator
from penstock.graph.job_graph import JobGraph, Operator, Vertex
from penstock.graph.logical import OperatorKind
from penstock.jobmaster.generations import EnumeratorFailed, SplitDistribution
from penstock.protocol.values.elements import SubtaskId
from penstock.protocol.values.metadata import OperatorPart, SubtaskSnapshot
from tests.unit.connectors.hybrid_parts import Discovered, hybrid, listed, numbers

UID = "a" * 32


class Clock:
    def __init__(self) -> None:
        self.ms = 1000.0

    def monotonic_ms(self) -> float:
        return self.ms

    undisturbed_ms = monotonic_ms

    def wall_ms(self) -> int:
        return int(self.ms)


class Work:
    """Blocking calls, which end when the test says so."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, Callable[[], Any], Callable[[Any], None]]] = []

    def submit(self, name: str, work: Callable[[], Any], done: Callable[[Any], None]) -> None:
        self.calls.append((name, work, done))

    def end_next(self) -> None:
        _, work, done = self.calls.pop(0)
        try:
            result = work()
        except Exception as error:
            result = error
        done(result)


class Discovering(SplitEnumerator):
    discovers = True
    discovery_interval_ms = 500.0
    wants_checkpoints = True

    def __init__(self, outside: list[Any]) -> None:
        self.outside = outside
        self.found: list[bytes] = []
        self.reported: list[list[bytes]] = []

    def discover(self) -> Any:
        found = self.outside.pop(0)
        if isinstance(found, Exception):
            raise found
        return found

    def on_discovered(self, found: Any) -> dict[int, list[bytes]]:
        own, other = found
        self.found += own
        return {1: other} if other else {}

    def next_splits(self, subtask: int) -> list[bytes] | None:
        found, self.found = self.found, []
        return found

    def return_splits(self, splits: list[bytes]) -> None:
        raise NotImplementedError

    def snapshot(self) -> bytes:
        return b""

    def checkpoint_completed(self, splits: list[bytes]) -> None:
        if splits == [b"refused"]:
            raise OSError("the broker is away")
        self.reported.append(splits)


class DiscoveringSource(Source):
    def __init__(self, enumerator: Discovering) -> None:
        self.enumerator = enumerator

    @property
    def produced_type(self) -> None:
        return None

    def create_enumerator(self, parallelism: int, restored: bytes | None) -> SplitEnumerator:
        return self.enumerator

    def create_reader(self, context: ReaderContext) -> SourceReader:
        raise NotImplementedError


class Job:
    def __init__(self, *outside: Any, source: Source | None = None) -> None:
        self.enumerator = Discovering(list(outside))
        source = source or DiscoveringSource(self.enumerator)
        operator = Operator(UID, "orders", OperatorKind.SOURCE, source, None, None)
        graph = JobGraph("job", (Vertex(0, "orders", 2, 128, (operator,)),), ())
        self.clock, self.work = Clock(), Work()
        self.assigned: list[tuple[SubtaskId, list[bytes], bool]] = []
        self.failures: list[EnumeratorFailed] = []
        self.warnings: list[str] = []
        self.sources = SplitDistribution(
            graph, (), lambda *said: self.assigned.append(said), self.work, self.failures.append,
            self.warnings.append, self.clock,
        )  # fmt: skip

    def pass_time(self, ms: float) -> None:
        self.clock.ms += ms
        self.sources.on_time(self.clock.ms)


def test_a_reader_that_waits_gets_what_is_discovered_at_once() -> None:
    job = Job(([b"p0"], []))
    job.sources.on_requested(SubtaskId(0, 0), job.clock.ms)
    assert job.sources.next_deadline_ms() == 1000.0 and not job.assigned
    job.pass_time(0)
    assert not job.assigned, "the call has not ended yet"
    job.work.end_next()
    assert job.assigned == [(SubtaskId(0, 0), [b"p0"], False)]


def test_discovery_is_repeated_and_pushes_splits_to_readers_that_do_not_ask() -> None:
    job = Job(([], []), ([], [b"p1"]))
    job.pass_time(0)
    job.pass_time(10_000)
    assert len(job.work.calls) == 1, "no second call before the first has ended"
    job.work.end_next()
    assert job.sources.next_deadline_ms() == job.clock.ms + 500.0
    job.pass_time(500)
    job.work.end_next()
    assert job.assigned == [(SubtaskId(0, 1), [b"p1"], False)]


def test_what_is_discovered_for_a_generation_that_has_ended_is_ignored() -> None:
    """Without this: splits reach readers of the next generation, which gets them from its own enumerator, too."""
    job = Job(([b"p0"], [b"p1"]))
    job.sources.on_requested(SubtaskId(0, 0), job.clock.ms)
    job.pass_time(0)
    job.sources.end()
    job.work.end_next()
    assert not job.assigned and not job.failures


def test_a_discovery_that_fails_fails_the_job_and_names_the_source() -> None:
    job = Job(OSError("no broker"))
    job.pass_time(0)
    job.work.end_next()
    (failure,) = job.failures
    assert "source 'orders'" in str(failure) and "no broker" in str(failure) and failure.restartable


def completed(*splits: bytes) -> list[SubtaskSnapshot]:
    snapshot = SubtaskSnapshot(0, 0, [], [], [], [], [], [OperatorPart(UID, "splits", list(splits))], [])
    other = msgspec.structs.replace(snapshot, vertex=1, parts=[OperatorPart("b" * 32, "splits", [b"another's"])])
    return [snapshot, other]


def test_positions_of_completed_checkpoints_are_reported_the_newest_first_of_those_that_wait() -> None:
    job = Job()
    for split in (b"1", b"2", b"3"):
        job.sources.checkpoint_completed(completed(split))
    while job.work.calls:
        job.work.end_next()
    assert job.enumerator.reported == [[b"1"], [b"3"]]


def test_positions_that_cannot_be_reported_are_a_warning() -> None:
    job = Job()
    job.sources.checkpoint_completed(completed(b"refused"))
    job.work.end_next()
    job.sources.checkpoint_completed(completed(b"4"))
    job.work.end_next()
    assert not job.failures and job.enumerator.reported == [[b"4"]]
    assert "source 'orders'" in job.warnings[0] and "the broker is away" in job.warnings[0]


@pytest.mark.parametrize("requests", [1, 3])
def test_splits_that_are_known_later_are_asked_for_again(requests: int) -> None:
    job = Job(([], []))
    job.pass_time(0)
    job.work.end_next()
    for _ in range(requests):
        job.sources.on_requested(SubtaskId(0, 0), job.clock.ms)
    assert job.assigned == [(SubtaskId(0, 0), [], False)], "it is told once that there are none"
    job.enumerator.found = [b"p7"]
    job.pass_time(200)
    assert job.assigned[1:] == [(SubtaskId(0, 0), [b"p7"], False)]
    job.sources.on_requested(SubtaskId(0, 0), job.clock.ms)
    assert job.assigned[2:] == [(SubtaskId(0, 0), [], False)], "and again when it has read them"


def test_no_reader_is_told_that_there_is_no_split_before_they_have_been_looked_for() -> None:
    """Without this: it is idle, others advance, and the rows of the split that it gets are late."""
    job = Job(([], []), ([], []))
    job.sources.on_requested(SubtaskId(0, 0), job.clock.ms)
    job.pass_time(0)
    assert not job.assigned
    job.enumerator.discovery_number = 2  # the next of several sources begins
    job.work.end_next()
    assert not job.assigned, "what was found is another source's"
    job.pass_time(0)
    job.work.end_next()
    assert job.assigned == [(SubtaskId(0, 0), [], False)]


def test_something_else_to_discover_is_looked_for_at_once_behind_the_present_call() -> None:
    job = Job(([], []), ([b"p0"], []))
    job.enumerator.discovery_interval_ms = None  # type: ignore[assignment]
    job.pass_time(0)
    job.enumerator.discovery_number, job.enumerator.found = 2, [b"p9"]
    job.sources.on_requested(SubtaskId(0, 0), job.clock.ms)
    assert job.assigned.pop() == (SubtaskId(0, 0), [b"p9"], False)
    assert len(job.work.calls) == 1, "one call at a time"
    job.work.end_next()
    assert job.sources.next_deadline_ms() == job.clock.ms
    job.pass_time(0)
    job.sources.on_requested(SubtaskId(0, 0), job.clock.ms)
    job.work.end_next()
    assert job.assigned == [(SubtaskId(0, 0), [b"p0"], False)]
    job.enumerator.discovers, job.enumerator.discovery_number = False, 3
    job.sources.on_requested(SubtaskId(0, 1), job.clock.ms)
    job.pass_time(10_000)
    assert not job.work.calls


@pytest.mark.parametrize("of_next", [numbers(5, 9), Discovered(5, 9, 1)], ids=["known", "discovered"])
def test_who_waits_for_the_next_source_gets_its_splits_as_soon_as_others_do(of_next: Source) -> None:
    """Without this: it is idle for another 200 ms, and the rows of the others make its own late."""
    job = Job(source=hybrid(listed(0, 1), of_next))
    waiting, reading = SubtaskId(0, 0), SubtaskId(0, 1)
    for subtask in (waiting, reading):
        while not job.assigned or job.assigned[-1] != (subtask, [end_of(1)], False):
            job.sources.on_requested(subtask, job.clock.ms)
    del job.assigned[:]
    job.sources.on_requested(waiting, job.clock.ms)
    job.sources.on_requested(reading, job.clock.ms)
    job.pass_time(0)
    for _ in list(job.work.calls):
        job.work.end_next()
    assert {subtask for subtask, splits, _ in job.assigned if splits} == {waiting, reading}
