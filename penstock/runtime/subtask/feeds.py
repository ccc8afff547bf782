"""Chooses a subtask's next work: rows of its own reader, or what comes through its input gate."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Callable, NamedTuple, TypeVar

import numpy as np
import pyarrow as pa

from penstock.common.clock import Clock
from penstock.common.program.failures import OperatorFailure
from penstock.common.typeinfo import KEY_GROUP_COLUMN, TypeInformation
from penstock.connectors.base import NotReady, SourceReader
from penstock.graph.job_graph import Operator
from penstock.operators.batches import row_type
from penstock.operators.event_time.subtask_clock import SubtaskClock
from penstock.operators.event_time.untimed_rows import UntimedRows
from penstock.protocol.subtask.effects import BarrierReached
from penstock.protocol.values.elements import EndOfData
from penstock.protocol.values.metadata import OperatorPart
from penstock.runtime.input.input_gate import GateEvent, GateLayerRead, InputGate, OpenBatch
from penstock.runtime.output.chain_output import ChainOutput
from penstock.runtime.subtask.deployed_subtask import DeployedSubtask
from penstock.runtime.subtask.source_alignment import SourceAlignment

T = TypeVar("T")


class Portion(NamedTuple):
    """Holds rows for one slice: all of `batch` if a reader has read it, else the next `rows` of the open batch
    `opened`.

    `type` is the rows' own, without key columns and event time. `split` and `finished_splits` are the reader's.
    `started_ms` is when reading began, on the undisturbed clock; None if nothing had to be read. `refuse` gives rows
    whose time cannot be read back to their source, and returns all that it leaves out; None: they come from a gate.
    `left_out`: the number of rows that were left out.
    """

    batch: pa.RecordBatch
    type: TypeInformation
    rows: int
    opened: OpenBatch | None = None
    input_index: int = 0
    split: str = ""
    finished_splits: tuple[str, ...] = ()
    started_ms: float | None = None
    refuse: Callable[[Mapping[int, str]], Collection[int]] | None = None
    left_out: int = 0

    def with_times(self, assign: Callable[[pa.RecordBatch], T]) -> tuple[Portion, T]:
        """Assign event time to the rows of a source, without those whose time cannot be read, and return both."""
        try:
            return self, assign(self.batch)
        except UntimedRows as error:
            if self.refuse is None:
                raise
            kept = np.ones(self.batch.num_rows, bool)
            kept[list(self.refuse(error.refused))] = False
            batch = self.batch.filter(pa.array(kept))
            left_out = self.rows - batch.num_rows
            return self._replace(batch=batch, rows=batch.num_rows, left_out=left_out), assign(batch)


class SourceFeed:
    """Reads a source's splits.

    Args:
        reader: None if the subtask was restored from a snapshot that was taken after the end of its data.
        output: Takes the rows that the reader could not read.
        request_splits: Asks the JobMaster for splits.
        alignment: Pauses the source while it is ahead of its group in event time; None: it is in none.
        finished_splits: The splits that the snapshot named, if it was taken after the end of the data.
    """

    def __init__(
        self,
        operator: Operator,
        reader: SourceReader | None,
        output: ChainOutput,
        event_time: SubtaskClock,
        clock: Clock,
        request_splits: Callable[[], None],
        alignment: SourceAlignment | None = None,
        finished_splits: Sequence[bytes] = (),
    ) -> None:
        self.ended = False
        self.reader = reader
        self._operator = operator
        self._type = row_type(operator.output_type)
        self._output = output
        self._event_time = event_time
        self._clock = clock
        self._request_splits = request_splits
        self._alignment = alignment
        self._finished_splits = list(finished_splits)
        self._splits_requested = False
        self._ends_early = False

    @property
    def was_finished(self) -> bool:
        """Return whether the end of the data lies before the snapshot that the subtask was restored from."""
        return self.reader is None

    @property
    def skipped_rows(self) -> int:
        return self.reader.skipped_rows if self.reader is not None else 0

    @property
    def lag_rows(self) -> int | None:
        return self.reader.lag_rows if self.reader is not None else None

    def take(self, slice_rows: Callable[[], int]) -> Portion | BarrierReached | float | None:
        """Read up to `slice_rows()` rows. Returns them, or in how many ms to ask again (None: once splits came)."""
        reader = self.reader
        if reader is None or self._ends_early:
            return self._end()
        if self._alignment is not None and (wait_ms := self._alignment.wait_ms()) is not None:
            self._event_time.hold()
            return wait_ms
        started_ms = self._clock.undisturbed_ms()
        try:
            batch = reader.read(self._rows_to_read(slice_rows()))
            rejected, finished = reader.take_rejected(), reader.finished_splits()
        except Exception as error:
            raise OperatorFailure(self._operator.name, error) from error
        if rejected is not None:
            self._output.emit_rejected(rejected, self._operator.function.rejected_tag_id)
        if batch is None or isinstance(batch, NotReady):
            self._event_time.on_finished_splits(finished)
            self._follow_reader(reader)
            if batch is None:
                return self._end()
            if batch.wait_ms is None and not self._splits_requested:
                self._splits_requested = True
                self._request_splits()
            return batch.wait_ms if self._alignment is None else self._alignment.at_the_latest(batch.wait_ms)
        if self._alignment is not None:
            self._alignment.on_read(batch.num_rows)
        split, finished_splits = reader.current_split, tuple(finished)
        return Portion(
            batch,
            self._type,
            batch.num_rows,
            split=split,
            finished_splits=finished_splits,
            started_ms=started_ms,
            refuse=self._refuse,
        )

    def _refuse(self, refused: Mapping[int, str]) -> Collection[int]:
        """Give rows without a time back to the reader, which fails or leaves them out. Returns those left out."""
        reader = self.reader
        assert reader is not None
        try:
            left_out, rejected = reader.refuse(refused), reader.take_rejected()
        except Exception as error:
            raise OperatorFailure(self._operator.name, error) from error
        if rejected is not None:
            self._output.emit_rejected(rejected, self._operator.function.rejected_tag_id)
        return left_out

    def _rows_to_read(self, most: int) -> int:
        return most if self._alignment is None else self._alignment.slice_rows(most)

    def add_splits(self, splits: list[bytes], no_more: bool) -> None:
        """Give the reader splits. `no_more`: it has its last ones. Neither: there are none for it now, and the request
        stands.
        """
        if self.reader is None:
            return
        if not splits and not no_more:
            self._event_time.has_no_split(self.reader.waits_for_others)
            return
        self._splits_requested = False
        self.reader.add_splits(splits)
        self._event_time.wait_for(self.reader.splits_in_hand())
        if no_more:
            self.reader.no_more_splits()
        self._follow_reader(self.reader)

    def _follow_reader(self, reader: SourceReader) -> None:
        if self._alignment is not None:
            self._alignment.follow_reader(reader.waits_for_others)

    def limit_watermark(self, watermark_max_ms: int) -> None:
        """Read up to this watermark."""
        if self._alignment is not None:
            self._alignment.limit(watermark_max_ms)

    def end_early(self) -> None:
        """End the data at the reader's present position. Its splits stay with it, for whoever restores them."""
        self._ends_early = True

    def _end(self) -> float:
        self.ended = True
        self._event_time.end()
        return 0

    def parts(self) -> list[OperatorPart]:
        """Return the reader's parts of a snapshot."""
        if self.reader is not None:
            return [OperatorPart(self._operator.uid, "splits", self.reader.snapshot())]
        # Without this: their ends are never committed outside, if the checkpoint that ended them was not reported.
        kept = self._finished_splits
        return [OperatorPart(self._operator.uid, "splits", kept)] if kept else []

    def close(self) -> None:
        if self.reader is not None:
            self.reader.close()


class GateFeed:
    """Takes rows, events and barriers from the input gate, recovered ones first.

    Args:
        keyed: True if the head of the chain is keyed, so that each row with a key must be of our key groups.
    """

    was_finished = False
    skipped_rows = 0
    lag_rows: int | None = None

    def __init__(self, deployed: DeployedSubtask, event_time: SubtaskClock, keyed: bool) -> None:
        self.ended = False
        self._subtask = deployed
        self._gate: InputGate = deployed.gate
        self._valve = deployed.valve
        self._event_time = event_time
        self._keyed = keyed

    def take(self, slice_rows: Callable[[], int]) -> Portion | BarrierReached | float | None:
        """Return up to `slice_rows()` rows or a barrier, 0 after an event, None if nothing has come."""
        opened = self._gate.poll()
        if opened is None or isinstance(opened, BarrierReached):
            return opened
        if isinstance(opened, GateEvent):
            self._on_event(opened)
            return 0
        if isinstance(opened, GateLayerRead):
            self._event_time.on_inputs(self._valve.end_virtual(opened.virtual))
            return 0
        if opened.start == 0 and self._keyed and opened.edge.keyed:
            subtask = self._subtask
            check_owner(opened, subtask.key_groups, subtask.vertex.name, subtask.id.subtask)
        edge, rows = opened.edge, min(slice_rows(), opened.remaining)
        return Portion(opened.batch, row_type(edge.type), rows, opened, edge.input_index)

    def _on_event(self, found: GateEvent) -> None:
        if found.virtual is not None:
            self._event_time.on_inputs(self._valve.on_virtual(found.virtual, found.event))
            return
        # 9.2: an end of data in a layer ends that layer's time only.
        if found.recovered and isinstance(found.event, EndOfData):
            return  # the producer was restored, too, and sends its end of data again, on the live channel
        self._event_time.on_inputs(self._valve.on_event(found.channel, found.event))
        self.ended = self.ended or self._valve.all_ended

    def add_splits(self, splits: list[bytes], no_more: bool) -> None:
        """Raise AssertionError: only sources get splits."""
        raise AssertionError(f"'{self._subtask.vertex.name}' is no source, but was sent splits")

    def end_early(self) -> None:
        """Do nothing: only sources end."""

    def limit_watermark(self, watermark_max_ms: int) -> None:
        """Do nothing: only sources are aligned."""

    def parts(self) -> list[OperatorPart]:
        """Return nothing: the capture of the channels holds what is in flight."""
        return []

    def close(self) -> None:
        """Do nothing: a gate holds nothing that has to be closed."""


def check_owner(opened: OpenBatch, owned: range, vertex: str, subtask: int) -> None:
    """Raise OperatorFailure if a row of the batch belongs to a key group outside `owned`."""
    groups = opened.batch.column(KEY_GROUP_COLUMN).to_numpy()
    low, high = int(groups.min()), int(groups.max())
    if low in owned and high in owned:
        return
    foreign = high if high not in owned else low
    raise OperatorFailure(
        vertex,
        RuntimeError(
            f"subtask {subtask} of '{vertex}' owns key groups {owned.start} to {owned.stop - 1}, but a row of group "
            f"{foreign} arrived: the key selector of this key_by is not deterministic"
        ),
        ours=True,
    )
