"""Generates the watermarks of a vertex: timestamps for its rows, a generator per split.

Timestamps are assigned when rows enter the chain. The generators see rows when their slice is finished. So a snapshot's
generators never have seen more rows than have been processed, and a watermark follows the rows that it was made of.

Each split becomes idle separately: the watermark is the minimum over the splits that are not idle. When all are, or
the subtask has been told that there is no split for it, the watermark is the maximum over all that it had, and the
output is idle. After a restore, every split has the whole timeout again.

What comes through an input gate, or from a source without splits, has one generator, which is there from the start. At
another parallelism the new subtasks begin where all old ones would be if they were asked now.
"""

from __future__ import annotations

from typing import Any, Callable, Container, Iterable, NamedTuple, Sequence

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from penstock.common.program.failures import USER_ERRORS, OperatorFailure
from penstock.common.typeinfo import TIMESTAMP_COLUMN, TypeInformation
from penstock.common.watermark_strategy import (
    NO_TIMESTAMP,
    MaxTimestampGenerator,
    Watermark,
    WatermarkGenerator,
    WatermarkOutput,
    WatermarkStrategy,
)
from penstock.graph.job_graph import Operator
from penstock.operators.event_time.idleness import NEVER_MS, IdleTimers
from penstock.operators.event_time.untimed_rows import UntimedRows, extracted, nulls_of
from penstock.protocol.values.elements import WATERMARK_MAX_MS

WHOLE_INPUT = ""
"""The split of all rows that come through an input gate, or from a source without splits."""
_FINISHED = "\0finished"
"""Names the snapshot's item for the watermark of the splits that were read to their ends."""


class OldClock(NamedTuple):
    """Holds the emitted watermark of an old subtask, and the state of its generators."""

    emitted_ms: int
    items: list[bytes]


class _SplitState(msgspec.Struct):
    split: str
    watermark_ms: int
    idle: bool
    generator: bytes


class _Split(WatermarkOutput):
    """Holds one generator and its newest output. `idle` is what the generator reports itself; `silent`: no row came
    from the split for the timeout.
    """

    def __init__(self, generator: WatermarkGenerator) -> None:
        self.generator = generator
        self.watermark_ms = NO_TIMESTAMP
        self.idle = False
        self.silent = False

    def emit_watermark(self, watermark: Watermark) -> None:
        if not isinstance(watermark, Watermark):
            raise TypeError(f"emit_watermark() takes a Watermark, e.g. Watermark(event_timestamp); got {watermark!r}")
        self.watermark_ms = max(self.watermark_ms, watermark.timestamp)
        self.idle = False

    def mark_idle(self) -> None:
        self.idle = True

    def mark_active(self) -> None:
        self.idle = False


class WatermarkGenerators:
    """Assigns timestamps and makes watermarks.

    Args:
        row_type: Type of the rows that get their timestamps here.
        monotonic_ms: Measures idleness.
        queued_splits: Returns the splits that wait behind others in the reader; they are never idle.
    """

    def __init__(
        self,
        operator: Operator,
        row_type: TypeInformation,
        interval_ms: float,
        monotonic_ms: Callable[[], float],
        queued_splits: Callable[[], Sequence[str]],
    ) -> None:
        assert operator.watermark_strategy is not None
        self.operator = operator
        self._strategy: WatermarkStrategy = operator.watermark_strategy
        self._type = row_type
        self._interval_ms = interval_ms
        self._monotonic_ms = monotonic_ms
        self._splits: dict[str, _Split] = {}
        self._extract = self._strategy.extract_timestamp
        timeout = self._strategy.idle_timeout
        self._idle_timers = IdleTimers(NEVER_MS if timeout is None else timeout.ms, monotonic_ms)
        self._queued_splits = queued_splits
        self._has_none = False  # the source has said that there is no split for this subtask now
        self._finished_ms = NO_TIMESTAMP  # the greatest watermark of the splits that were read to their ends
        self.next_periodic_ms = monotonic_ms() + interval_ms if interval_ms > 0 else float("inf")
        self.asked = 0  # so often have all generators been: `watermark_ms` knows of the rows until then
        self.watermark_ms = NO_TIMESTAMP
        self.idle = False

    # ---- timestamps ---------------------------------------------------------------------------------------------

    def of_rows(self, rows: Sequence[Any], batch: pa.RecordBatch) -> Sequence[int | None]:
        """Return the timestamps of `batch`, whose rows are `rows`. Raises `UntimedRows` if some have none."""
        if self._extract is None:
            column: list[int | None] = self.of_batch(batch).to_pylist()
            return column
        extract, times = self._extract, self._given(batch)
        given = None if times is None else times.to_pylist()
        try:
            if given is None:
                found = [extract(row, NO_TIMESTAMP) for row in rows]
            else:
                found = [extract(r, NO_TIMESTAMP if t is None else t) for r, t in zip(rows, given)]
        except Exception:
            return extracted(extract, rows, given, f"{self.operator.name} (its timestamp assigner)")
        except USER_ERRORS as error:
            raise OperatorFailure(f"{self.operator.name} (its timestamp assigner)", error) from error
        if not all(type(timestamp_ms) is int for timestamp_ms in found) or (
            found and (min(found) < NO_TIMESTAMP or max(found) > WATERMARK_MAX_MS)
        ):
            return extracted(extract, rows, given, self.operator.name)
        return found

    def of_batch(self, batch: pa.RecordBatch) -> pa.Array:
        """Return the same as a column, without looking at the rows if the strategy needs none."""
        if self._extract is not None:
            return pa.array(self.of_rows(self._type.decode(batch), batch), pa.int64())
        column = self._strategy.timestamp_column
        found = self._given(batch) if column is None else batch.column(column)
        if found is None:
            return pa.nulls(batch.num_rows, pa.int64())
        if pa.types.is_timestamp(found.type):
            found = _milliseconds(found)
        if column is not None and found.null_count:
            refused = nulls_of(found, column)
            (shown,) = self._type.decode(batch.slice(min(refused), 1))
            raise UntimedRows(self.operator.name, refused, repr(shown))
        return found

    @staticmethod
    def _given(batch: pa.RecordBatch) -> pa.Array | None:
        place = batch.schema.get_field_index(TIMESTAMP_COLUMN)
        return None if place < 0 else batch.column(place)

    # ---- watermarks ---------------------------------------------------------------------------------------------

    def on_rows(
        self, split: str, rows: Callable[[], Sequence[Any]], timestamps: Sequence[int | None] | pa.Array
    ) -> None:
        """Show the rows of a finished slice of a split to its generator. `rows` is called only if the generator looks
        at rows.
        """
        entry = self._splits.get(split) or self._start(split)
        entry.idle = entry.silent = False
        self._idle_timers.on_rows(split)
        generator = entry.generator
        if isinstance(generator, MaxTimestampGenerator):
            largest = pc.max(timestamps).as_py() if isinstance(timestamps, pa.Array) else _largest(timestamps)
            if largest is not None:
                generator.on_max(largest)
            return
        stamps = timestamps.to_pylist() if isinstance(timestamps, pa.Array) else timestamps
        try:
            for row, timestamp_ms in zip(rows(), stamps):
                generator.on_event(row, NO_TIMESTAMP if timestamp_ms is None else timestamp_ms, entry)
        except USER_ERRORS as error:
            raise OperatorFailure(f"{self.operator.name} (its watermark generator)", error) from error

    def wait_for(self, splits: Iterable[str]) -> None:
        """Start a generator for each assigned split, so that the watermark waits for splits not read yet. Without this:
        a split that has not been started is behind the others in time, and its rows are late. Or there is nobody to
        say, without a row, that an input is idle, and those behind it wait for ever.
        """
        for split in splits:
            self._has_none = False
            if split not in self._splits:
                self._start(split)

    def has_none(self) -> None:
        """Note that the source has no split for this subtask now. Without this: a subtask without splits never becomes
        idle, as only splits can, and event time waits for it, perhaps for ever.
        """
        # 5.9: a subtask without a split holds nothing up.
        self._has_none = True

    def on_finished(self, splits: Sequence[str]) -> None:
        """Remove splits that were read to their ends: the watermark no longer waits for them."""
        for split in splits:
            entry = self._splits.pop(split, None)
            self._idle_timers.end(split)
            if entry is None:
                continue
            self._emit_periodically(entry)
            self._finished_ms = max(self._finished_ms, entry.watermark_ms)
            if not self._splits:  # keep the last watermark of the last split
                self.watermark_ms = max(self.watermark_ms, entry.watermark_ms)

    def on_quiet(self) -> None:
        """Note that there is nothing to read at the moment."""
        self._idle_timers.on_quiet()

    def pause(self) -> None:
        """Pause idleness: nothing can be read until the next `advance`."""
        self._idle_timers.pause()

    def end_silence(self) -> None:
        """Let no split be silent: rows of any may be there that nobody may read. Each has the whole timeout again."""
        for split, entry in self._splits.items():
            if entry.silent:
                entry.silent = False
                self._idle_timers.restart(split)
        self.idle = all(entry.idle for entry in self._splits.values()) if self._splits else self._has_none

    def advance(self, now_ms: float) -> bool:
        """Ask the generators, where it is time to. Returns whether the watermark has risen."""
        self._idle_timers.advance(now_ms, self._queued_splits())
        silent_now = [e for split, e in self._splits.items() if not e.silent and self._idle_timers.is_silent(split)]
        if now_ms >= self.next_periodic_ms or self._interval_ms <= 0:
            self.asked += 1
        if now_ms >= self.next_periodic_ms:
            self.next_periodic_ms = now_ms + self._interval_ms
            for entry in self._splits.values():
                if not entry.silent:
                    self._emit_periodically(entry)
        elif self._interval_ms > 0:
            for entry in silent_now:
                self._emit_periodically(entry)  # the watermark from before the silence does not hold it back
        has_risen = self._rise()
        for entry in silent_now:
            entry.silent = True
        if silent_now:
            has_risen = self._rise() or has_risen
        for split, entry in self._splits.items():
            entry.silent = entry.silent and self._idle_timers.is_silent(split)
        self.idle = self._is_idle()
        return has_risen

    def _is_idle(self) -> bool:
        if self._splits:
            return all(entry.idle or entry.silent for entry in self._splits.values())
        return self._has_none or self._idle_timers.all_quiet

    def finish(self) -> int:
        """End the input. Returns the last watermark of the generators."""
        for entry in self._splits.values():
            if not entry.silent:
                self._emit_periodically(entry)
        self._rise()
        return self.watermark_ms

    def _rise(self) -> bool:
        if self._is_idle():
            reached = max((entry.watermark_ms for entry in self._splits.values()), default=NO_TIMESTAMP)
            reached = max(reached, self._finished_ms)
        else:
            active = [entry.watermark_ms for entry in self._splits.values() if not (entry.idle or entry.silent)]
            reached = min(active, default=NO_TIMESTAMP)
        if reached <= self.watermark_ms:
            return False
        self.watermark_ms = reached
        return True

    def next_deadline_ms(self) -> float:
        """Return the time at which `advance` may find something new without a row."""
        return min(self.next_periodic_ms, self._idle_timers.next_deadline_ms())

    def _start(self, split: str) -> _Split:
        entry = self._splits[split] = self._made()
        self._idle_timers.start(split)
        return entry

    def _made(self) -> _Split:
        try:
            return _Split(self._strategy.create_generator())
        except USER_ERRORS as error:
            raise OperatorFailure(f"{self.operator.name} (its watermark generator)", error) from error

    def _emit_periodically(self, entry: _Split) -> None:
        try:
            entry.generator.on_periodic_emit(entry)
        except USER_ERRORS as error:
            raise OperatorFailure(f"{self.operator.name} (its watermark generator)", error) from error

    # ---- state --------------------------------------------------------------------------------------------------

    def snapshot(self) -> list[bytes]:
        """Return one item per split, and one for those that were read to their ends, if any reached further."""
        states = [
            _SplitState(name, split.watermark_ms, split.idle, split.generator.snapshot())
            for name, split in self._splits.items()
        ]
        if self._finished_ms > self.watermark_ms:
            states.append(_SplitState(_FINISHED, self._finished_ms, False, b""))
        return [msgspec.msgpack.encode(state) for state in states]

    def restore(self, items: list[bytes], emitted_ms: int, splits: Container[str] | None) -> None:
        """Restore the generators. `splits`, at another parallelism: those assigned to this subtask now; the state of
        others, and what is bound to a subtask instead of a split, is learned again. None: everything is as it was.
        """
        self.watermark_ms = emitted_ms
        for item in items:
            state = msgspec.msgpack.decode(item, type=_SplitState)
            if state.split == _FINISHED:
                self._finished_ms = max(self._finished_ms, state.watermark_ms)
            elif splits is None or (state.split and state.split in splits):
                self._restore_into(self._start(state.split), state)

    def continue_from(self, old: Sequence[OldClock]) -> None:
        """Begin at the watermark that the generators of all `old` subtasks would emit now. Without this: a checkpoint
        falls between the last row and the generator's next call, and the watermark of that row is emitted only when
        another row comes.
        """
        reached = [reached_ms for clock in old if (reached_ms := self._reached(clock)) is not None]
        said = reached or [clock.emitted_ms for clock in old]
        self._splits[WHOLE_INPUT].watermark_ms = min(said, default=NO_TIMESTAMP)

    def _reached(self, clock: OldClock) -> int | None:
        """Return the watermark of an old subtask, its generators asked once more; None if they say that it is idle.
        They are made for this alone: those that are in use are asked at no other times because checkpoints are taken.
        """
        entries = []
        for state in [msgspec.msgpack.decode(item, type=_SplitState) for item in clock.items]:
            if state.split == _FINISHED:
                continue
            entry = self._made()
            self._restore_into(entry, state)
            if self._interval_ms > 0:
                self._emit_periodically(entry)
            entries.append(entry)
        waited_for = [entry.watermark_ms for entry in entries if not entry.idle]
        if entries and not waited_for:
            return None
        return max(clock.emitted_ms, min(waited_for, default=NO_TIMESTAMP))

    def _restore_into(self, entry: _Split, state: _SplitState) -> None:
        entry.watermark_ms, entry.idle = state.watermark_ms, state.idle
        try:
            entry.generator.restore(state.generator)
        except USER_ERRORS as error:
            raise OperatorFailure(f"{self.operator.name} (its watermark generator)", error) from error


def _milliseconds(instants: pa.Array) -> pa.Array:
    """Return milliseconds since the epoch, rounded down. A cast rounds towards the epoch, which is up before 1970."""
    earliest = pc.min(instants.cast(pa.int64())).as_py()
    if earliest is not None and earliest < 0:
        instants = pc.floor_temporal(instants, 1, "millisecond")
    return pc.cast(instants, pa.timestamp("ms"), safe=False).cast(pa.int64())


def _largest(timestamps: Sequence[int | None]) -> int | None:
    try:
        return max(timestamps)  # type: ignore[type-var]
    except TypeError:
        return max((t for t in timestamps if t is not None), default=None)
