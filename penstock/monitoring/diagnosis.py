"""Says in a sentence or two why a checkpoint is slow or fails, or why a job is late, and which change would help.

Everything follows from a report: what subtasks measured of their part in the checkpoint, and how busy they are.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from penstock.monitoring.report import CheckpointReport, JobReport, VertexReport
from penstock.monitoring.subtask_figures import SubtaskCheckpoint

SLOW_MS = 1000.0
"""A checkpoint that takes longer is explained unasked; so is one that takes longer than the interval."""
_SHORT_MS = 250.0
_BUSY, _PRESSURED = 0.8, 0.1
_SKEWED = 2.0
"""A subtask is skewed if it gets so many times the rows of the median one."""
_SLOW_BYTES_PER_MS = 2_000
"""Storage that writes less than 2 MB a second is slow; at more, there is much to write."""
_RESTARTS = 3
_OVERTAKING_MS = 15.0
"""The estimated time of a barrier that overtakes the queues."""


@dataclass(frozen=True)
class JobFacts:
    """Holds settings of a job. `interval_ms` None: it takes no checkpoints."""

    interval_ms: float | None = None
    timeout_ms: float = 600_000.0
    unaligned: bool = False
    aligned_timeout_ms: float = 0.0
    incremental: bool = False


@dataclass(frozen=True)
class Finding:
    """Holds one cause. `kind` names it for programs; `text` is for people, and `advice` says what to change."""

    kind: str
    text: str
    advice: str = ""
    vertex: int | None = None
    subtask: int | None = None
    checkpoint_id: int | None = None

    def document(self) -> dict[str, Any]:
        return {
            "kind": self.kind,
            "text": self.text,
            "advice": self.advice,
            "vertex": self.vertex,
            "subtask": self.subtask,
            "checkpoint": self.checkpoint_id,
        }


def diagnose(report: JobReport, facts: JobFacts, checkpoint: CheckpointReport | None = None) -> list[Finding]:
    """Return the causes, the most important first.

    Args:
        report: Of the job.
        facts: Settings of the job.
        checkpoint: Explain this one, however fast it was; None: explain what is wrong now, if anything is.

    Returns:
        Nothing for a job without trouble.
    """
    if checkpoint is not None:
        return list(_Explained(report, facts, checkpoint).findings(asked=True))
    findings = [*_restarts(report)]
    newest = _newest_that_says_something(report, facts)
    if newest is not None:
        findings += _Explained(report, facts, newest).findings(asked=False)
    findings += _lateness(report, facts)
    return findings


def is_slow(checkpoint: CheckpointReport, facts: JobFacts) -> bool:
    """Return whether a checkpoint took so long that its reason is worth a sentence."""
    took_ms = max(checkpoint.duration_ms or 0.0, checkpoint.publication_ms or 0.0)
    return took_ms > SLOW_MS or (facts.interval_ms is not None and took_ms > max(facts.interval_ms, _SHORT_MS))


def _newest_that_says_something(report: JobReport, facts: JobFacts) -> CheckpointReport | None:
    """Return the newest ended checkpoint if it failed or was slow, or one that is under way for long."""
    ended = [c for c in report.checkpoints if c.status != "in_progress"]
    if ended and (ended[-1].status == "failed" or is_slow(ended[-1], facts)):
        return ended[-1]
    return None


def bottleneck(report: JobReport) -> int | None:
    """Return the vertex that everything before it waits for: it works all the time, and is not kept waiting itself."""
    waiting = {
        edge.target
        for edge in report.edges
        if max((s.backpressured_share for s in report.vertices[edge.source].subtasks.values()), default=0) > _PRESSURED
    }
    for number in sorted(waiting, reverse=True):
        subtasks = report.vertices[number].subtasks.values()
        pressured = max((s.backpressured_share for s in subtasks), default=0.0)
        if pressured <= _PRESSURED or not any(edge.source == number for edge in report.edges):
            return number
    return max(waiting, default=None)


# ---- one checkpoint ---------------------------------------------------------------------------------------------


class _Explained:
    """Explains one checkpoint: the subtask that was last, and the part of its time that was the longest."""

    def __init__(self, report: JobReport, facts: JobFacts, checkpoint: CheckpointReport) -> None:
        self._report = report
        self._facts = facts
        self._checkpoint = checkpoint
        self._parts = checkpoint.parts

    def findings(self, asked: bool) -> Iterator[Finding]:
        checkpoint = self._checkpoint
        if checkpoint.status == "failed":
            yield self._failed()
        if checkpoint.status != "failed" and not asked and not is_slow(checkpoint, self._facts):
            return
        publishing_ms = (checkpoint.publication_ms or 0.0) - (checkpoint.duration_ms or 0.0)
        if checkpoint.duration_ms is not None and publishing_ms > checkpoint.duration_ms:
            yield self._finding(
                "slow-publication",
                f"Checkpoint {checkpoint.checkpoint_id} took {_time(checkpoint.publication_ms or 0)}, of which its "
                f"metadata and its log entry took {_time(publishing_ms)}, after all subtasks had stored their parts",
                "The checkpoint storage answers small requests slowly: look at its latency from the driver's machine",
            )
        elif self._parts:
            yield self._slowest()

    def _slowest(self) -> Finding:
        # A slot acknowledges all its subtasks at once: the last of them is the one whose own part took longest.
        last = max(self._parts, key=_own_ms)
        rest_ms = max(part.acknowledged_ms for part in self._parts) - _own_ms(last)
        reasons = {
            self._late_barrier: last.start_delay_ms,
            self._alignment: last.alignment_ms,
            self._stop: last.sync_ms,
            self._writing: last.async_ms - last.sync_ms,
            self._late_acknowledgement: rest_ms,
        }
        return max(reasons, key=lambda reason: reasons[reason])(last)

    def _late_acknowledgement(self, last: SubtaskCheckpoint) -> Finding:
        late = max(self._parts, key=lambda part: part.acknowledged_ms)
        return self._of(
            "late-acknowledgement",
            late,
            f"all parts were stored after {_time(_own_ms(last))}, and the driver heard of its slot's only then",
            "The slot's process was stopped or starved for a while, or the network to the driver was: look at the "
            "load of its machine",
        )

    def _stop(self, last: SubtaskCheckpoint) -> Finding:
        return self._of(
            "snapshot-stop",
            last,
            f"the stream stood still there for {_time(last.sync_ms)} while the snapshot was taken",
            "Its operators hold much state in Python objects, or their snapshot_state is slow: use declared types for "
            "state, or the RocksDB state backend",
        )

    def _late_barrier(self, last: SubtaskCheckpoint) -> Finding:
        subtask = self._report.vertices[last.vertex].subtasks.get(last.subtask)
        if subtask is not None and subtask.step_ms_max > last.start_delay_ms / 2:
            return self._of(
                "long-record",
                last,
                f"the barrier waited there for {_time(last.start_delay_ms)} while user code worked on a single row or "
                f"batch (the longest took {_time(subtask.step_ms_max)})",
                "A snapshot is taken between two rows: make the function return sooner, or give slow calls to "
                "asynchronous I/O",
            )
        slow = self._slow_vertex(last)
        return self._of(
            "late-barrier",
            last,
            f"the barrier waited {_time(last.start_delay_ms)} in the queues before it{slow}",
            self._overtake(last),
        )

    def _alignment(self, last: SubtaskCheckpoint) -> Finding:
        return self._of(
            "alignment",
            last,
            f"it waited {_time(last.alignment_ms)} from the first barrier to the last of its inputs"
            f"{self._slow_vertex(last)}",
            self._overtake(last),
        )

    def _slow_vertex(self, last: SubtaskCheckpoint) -> str:
        number = bottleneck(self._report)
        if number is None:
            return ""
        vertex = self._report.vertices[number]
        return f", because '{vertex.name}' is busy {_percent(_busiest(vertex))} of the time and takes no more"

    def _overtake(self, last: SubtaskCheckpoint) -> str:
        rest_ms = max(last.sync_ms, last.async_ms) + _OVERTAKING_MS
        if not self._facts.unaligned:
            return (
                "Enable unaligned checkpoints (execution.checkpointing.unaligned.enabled): barriers then overtake the "
                f"queues, and this one would have taken about {_time(rest_ms)}"
            )
        if self._facts.aligned_timeout_ms > 0:
            return (
                f"Barriers overtake the queues only {_time(self._facts.aligned_timeout_ms)} after the trigger: lower "
                "execution.checkpointing.aligned-checkpoint-timeout"
            )
        return "Barriers overtake the queues already: give the job more slots, or make the busy operator faster"

    def _writing(self, last: SubtaskCheckpoint) -> Finding:
        took_ms = max(last.async_ms, 1.0)
        if last.written_bytes / took_ms < _SLOW_BYTES_PER_MS:
            return self._of(
                "slow-storage",
                last,
                f"storing {_bytes(last.written_bytes)} took {_time(took_ms)}",
                "The checkpoint storage is slow, for little data: look at its latency, or choose another directory "
                "(execution.checkpointing.dir)",
            )
        advice = "More slots store it in parallel"
        if not self._facts.incremental:
            advice = (
                "Incremental checkpoints store only what has changed (execution.checkpointing.incremental); more slots "
                "store it in parallel"
            )
        return self._of(
            "large-state", last, f"storing {_bytes(last.written_bytes)} of state took {_time(took_ms)}", advice
        )

    def _failed(self) -> Finding:
        checkpoint = self._checkpoint
        missing = self._missing()
        text = f"Checkpoint {checkpoint.checkpoint_id} failed: {checkpoint.failure}"
        if not missing or not self._parts:
            return self._finding("failed", text)
        number = bottleneck(self._report)
        busy = "" if number is None else f"; '{self._report.vertices[number].name}' is the bottleneck of the job"
        return self._finding(
            "not-acknowledged",
            f"{text}. Not acknowledged by {missing}{busy}",
            ""
            if self._facts.unaligned
            else "Unaligned checkpoints do not wait for full queues (execution.checkpointing.unaligned.enabled)",
        )

    def _missing(self) -> str:
        known = {(part.vertex, part.subtask) for part in self._parts}
        lines = []
        for number, vertex in enumerate(self._report.vertices):
            count = sum((number, subtask) not in known for subtask in range(vertex.parallelism))
            if count:
                lines.append(f"{count} of {vertex.parallelism} subtasks of '{vertex.name}'")
        return ", ".join(lines)

    def _of(self, kind: str, part: SubtaskCheckpoint, why: str, advice: str) -> Finding:
        vertex = self._report.vertices[part.vertex]
        took_ms = self._checkpoint.duration_ms or part.acknowledged_ms
        return Finding(
            kind,
            f"Checkpoint {self._checkpoint.checkpoint_id} took {_time(took_ms)}. Last was subtask "
            f"{part.subtask + 1} of {vertex.parallelism} of '{vertex.name}': {why}",
            advice,
            part.vertex,
            part.subtask,
            self._checkpoint.checkpoint_id,
        )

    def _finding(self, kind: str, text: str, advice: str = "") -> Finding:
        return Finding(kind, text, advice, checkpoint_id=self._checkpoint.checkpoint_id)


# ---- the job ----------------------------------------------------------------------------------------------------


def _restarts(report: JobReport) -> Iterator[Finding]:
    failures = [recovery for recovery in report.recoveries if not recovery.is_rescale]
    if report.state == "RESTARTING" and failures:
        yield Finding("restarting", f"The job restarts now: {_first_line(failures[-1].cause)}")
        return
    same = [f for f in failures if failures and _first_line(f.cause) == _first_line(failures[-1].cause)]
    if len(same) >= _RESTARTS:
        yield Finding(
            "restart-loop",
            f"The job has restarted {len(same)} times for the same reason: {_first_line(same[-1].cause)}",
            "It will fail again: the exceptions show where",
        )


def _lateness(report: JobReport, facts: JobFacts) -> Iterator[Finding]:
    number = bottleneck(report)
    if number is not None:
        vertex = report.vertices[number]
        skewed = _skewed(vertex)
        if skewed is not None:
            yield _skew(vertex, number, skewed)
        else:
            yield _bottleneck(vertex, number, report)
    elif (source := _busy_source(report)) is not None:
        vertex = report.vertices[source]
        yield Finding(
            "busy-source",
            f"'{vertex.name}' is busy {_percent(_busiest(vertex))} of the time, and {vertex.lag_rows:,} rows wait to "
            "be read: the source, or what is chained to it, is the bottleneck",
            "Give it more slots, if its input has as many splits",
            source,
        )
    for number, vertex in enumerate(report.vertices):
        if vertex.late_rows > max(100, vertex.rows_in // 100):
            yield Finding(
                "late-rows",
                f"'{vertex.name}' has dropped {vertex.late_rows:,} rows that came after their windows had ended",
                "Allow more out-of-orderness in the watermark strategy, set allowed_lateness, or take them with "
                "side_output_late_data",
                number,
            )


def _bottleneck(vertex: VertexReport, number: int, report: JobReport) -> Finding:
    busy = _busiest(vertex)
    what = "a sink" if vertex.connectors and not any(e.source == number for e in report.edges) else "its operators"
    rate = f", {vertex.rows_in_per_s:,.0f} rows a second in {vertex.parallelism} subtasks"
    return Finding(
        "bottleneck",
        f"'{vertex.name}' is the bottleneck: it works {_percent(busy)} of the time{rate}, and what is before it waits",
        f"Make {what} faster, or give it more slots: twice as many would take about twice the rows",
        number,
    )


def _skew(vertex: VertexReport, number: int, subtask: int) -> Finding:
    rows = {n: s.rows_in for n, s in vertex.subtasks.items()}
    share = rows[subtask] / max(1, sum(rows.values()))
    return Finding(
        "skew",
        f"'{vertex.name}' is the bottleneck, and its keys are skewed: subtask {subtask + 1} of {vertex.parallelism} "
        f"gets {_percent(share)} of the rows",
        "More slots do not help: split the heavy keys (a key with a random suffix, summed up again behind it), or sum "
        "up before the exchange with a columnar aggregate",
        number,
        subtask,
    )


def _skewed(vertex: VertexReport) -> int | None:
    """Return the subtask that gets many more rows than the others, if there is one."""
    rows = {number: subtask.rows_in for number, subtask in vertex.subtasks.items()}
    if len(rows) < 2:
        return None
    most = max(rows, key=lambda number: rows[number])
    others = [count for number, count in rows.items() if number != most]
    return most if rows[most] > 1000 and rows[most] > _SKEWED * max(1.0, median(others)) else None


def _busy_source(report: JobReport) -> int | None:
    targets = {edge.target for edge in report.edges}
    for number, vertex in enumerate(report.vertices):
        lag = vertex.lag_rows or 0
        if number not in targets and _busiest(vertex) > _BUSY and lag > 10 * max(vertex.rows_out_per_s, 1000.0):
            return number
    return None


def _own_ms(part: SubtaskCheckpoint) -> float:
    """Return the time until a subtask's part was stored, as far as the subtask knows it."""
    return part.start_delay_ms + part.alignment_ms + max(part.sync_ms, part.async_ms)


def _busiest(vertex: VertexReport) -> float:
    return max((subtask.busy_share for subtask in vertex.subtasks.values()), default=0.0)


def _first_line(text: str) -> str:
    lines: Sequence[str] = text.strip().splitlines()
    return lines[0] if lines else text


def _time(ms: float) -> str:
    if ms < 1000:
        return f"{ms:.0f} ms"
    return f"{ms / 1000:.1f} s" if ms < 120_000 else f"{ms / 60_000:.1f} min"


def _bytes(count: float) -> str:
    for unit in ("B", "KB", "MB"):
        if count < 1000:
            return f"{count:.0f} {unit}"
        count /= 1000
    return f"{count:.1f} GB"


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"
