"""Reads partitions, in a slot. A batch of records becomes columns without a loop over its rows in Python."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Collection, Mapping
from itertools import groupby
from operator import itemgetter
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.connectors.base import (
    MalformedRecord,
    NotReady,
    ReaderContext,
    SourceError,
    SourceReader,
    decode_split,
    encode_split,
)
from penstock.connectors.files.malformed_rows import MALFORMED_ROW_TYPE, MalformedRows
from penstock.connectors.kafka.client import client_library, make, reason_of
from penstock.connectors.kafka.partition_errors import fault_of
from penstock.connectors.kafka.records_ahead import Partition, Piece, RecordsAhead
from penstock.connectors.messages.decoding import MessageDecoder

RECORDS_AT_ONCE = 10_000
"""Limits how many records are asked of the client at a time."""

IDLE_WAIT_MS_MAX = 8.0
_LAG_INTERVAL_S = 1.0
_MS_OF = itemgetter(1)

_DEFAULTS = {
    "isolation.level": "read_committed",
    "queued.min.messages": 100_000,
    "queued.max.messages.kbytes": 32_768,
    "fetch.wait.max.ms": 100,
    "fetch.queue.backoff.ms": 5,
    "group.id": "penstock",
}


# Offsets are the checkpoint's. One that does not exist any more is an error, not a reason to skip rows.
_OURS = {"enable.auto.commit": False, "auto.offset.reset": "error", "enable.partition.eof": True}


def check_consumer(properties: Mapping[str, Any]) -> None:
    """Make a consumer as readers do, and discard it. Without this: a wrong property ends each attempt of the job.

    Args:
        properties: The client's, translated.

    Raises:
        SourceError: The client refuses one.
    """
    make(client_library().Consumer, _DEFAULTS | dict(properties) | _OURS, SourceError).close()


class KafkaReader(SourceReader):
    """Reads all its partitions at once, in the order in which the brokers answer."""

    def __init__(
        self, properties: Mapping[str, Any], decoder: MessageDecoder, malformed: MalformedRows, context: ReaderContext
    ) -> None:
        self._library = client_library()
        self._properties = dict(properties)
        self._decoder = decoder
        self._malformed = malformed
        self._context = context
        self._consumer: Any = None
        self._partitions: dict[tuple[str, int], Partition] = {}
        self._ended: list[Partition] = []
        """Read to their ends. A checkpoint names them, or their ends are never committed."""
        self._ahead: deque[RecordsAhead] = deque()
        self._finished: list[str] = []
        self._rejected: list[tuple[str, int, str, str]] = []
        self._current = ""
        self._last: tuple[RecordsAhead, Piece] | None = None
        self._no_more = False
        self._wait_ms = 1.0
        self._lag_at_s = 0.0

    # ---- splits -------------------------------------------------------------------------------------------------

    def add_splits(self, splits: list[bytes]) -> None:
        """Read partitions, too.

        Args:
            splits: The partitions, with offsets.

        Raises:
            SourceError: The client refuses them.
        """
        library, added = self._library, []
        for split in splits:
            found = decode_split(split)
            partition = Partition(found["topic"], found["partition"], found["next"], found["stop"])
            if partition.stop is not None and partition.next >= partition.stop:
                self._ended.append(partition)
                self._finished.append(partition.id)
                continue
            self._partitions[partition.topic, partition.number] = partition
            added.append(library.TopicPartition(partition.topic, partition.number, partition.next))
        if not added:
            return
        try:
            self._the_consumer().incremental_assign(added)
        except library.KafkaException as error:
            names = ", ".join(f"{a.topic}/{a.partition}" for a in added)
            raise SourceError(f"partitions {names} cannot be read: {reason_of(error)}") from None

    def no_more_splits(self) -> None:
        self._no_more = True

    @property
    def current_split(self) -> str:
        return self._current

    def splits_in_hand(self) -> list[str]:
        return [partition.id for partition in self._partitions.values()]

    def finished_splits(self) -> list[str]:
        finished, self._finished = self._finished, []
        return finished

    def snapshot(self) -> list[bytes]:
        return [
            encode_split({"topic": p.topic, "partition": p.number, "next": p.next, "stop": p.stop})
            for p in (*self._partitions.values(), *self._ended)
        ]

    # ---- reading ------------------------------------------------------------------------------------------------

    def read(self, rows_max: int) -> pa.RecordBatch | NotReady | None:
        while True:
            while self._ahead:
                batch = self._take(rows_max)
                if batch.num_rows:
                    self._wait_ms = 1.0
                    return batch
                if self._rejected:
                    return NotReady(0)
            if not self._partitions:
                return None if self._no_more else NotReady(None)
            if not self._fetch():
                self._measure_lag()
                self._wait_ms = min(2 * self._wait_ms, IDLE_WAIT_MS_MAX)
                return NotReady(self._wait_ms)

    def _take(self, rows_max: int) -> pa.RecordBatch:
        """Return the next rows of what was read ahead; none if no record of a piece became one."""
        records = self._ahead[0]
        partition = records.partition
        piece = records.take(rows_max, self._decoder)
        for index, reason in piece.refused.items():
            self._reject(records, index, reason)
        if records.is_empty:
            self._ahead.popleft()
            partition.next = records.next
            if records.ends:
                self._end(partition)
        else:
            partition.next = int(records.offsets[records.at - 1]) + 1
        if piece.rows.num_rows:
            self._current = partition.id
            self._last = records, piece
            self._measure_lag()
        return piece.rows

    def place_of(self, row: int) -> str:
        assert self._last is not None
        records, piece = self._last
        return f"{records.partition}, offset {records.offsets[piece.record_of(row)]}"

    def refuse(self, refused: Mapping[int, str]) -> Collection[int]:
        assert self._last is not None
        records, piece = self._last
        reasons = {piece.record_of(row): reason for row, reason in sorted(refused.items(), reverse=True)}
        for index, reason in sorted(reasons.items()):
            self._reject(records, index, reason)
        return [row for index in reasons for row in piece.rows_of(index)]

    def _reject(self, records: RecordsAhead, index: int, reason: str) -> None:
        partition, offset, value = records.partition, int(records.offsets[index]), records.values[index] or b""
        if self._malformed.is_side_output:
            self._rejected.append((str(partition), offset, value.decode(errors="replace"), reason))
        elif self._malformed.fails and not self._decoder.skips_refused:
            raise MalformedRecord(
                f"{partition}, offset {offset}: the value {value[:100]!r} cannot be read: {reason}. Correct the "
                "deserializer, or say what becomes of such records: KafkaSourceBuilder.set_malformed_records("
                "MalformedRows.skip()) or MalformedRows.side_output(tag)"
            )
        else:
            self.skipped_rows += 1

    def take_rejected(self) -> pa.RecordBatch | None:
        if not self._rejected:
            return None
        rejected, self._rejected = self._rejected, []
        columns = [pa.array(column) for column in zip(*rejected)]
        return pa.RecordBatch.from_arrays(columns, schema=MALFORMED_ROW_TYPE.schema)

    def _end(self, partition: Partition) -> None:
        del self._partitions[partition.topic, partition.number]
        self._ended.append(partition)
        self._finished.append(partition.id)
        self._ahead = deque(records for records in self._ahead if records.partition is not partition)
        self._consumer.incremental_unassign([self._library.TopicPartition(partition.topic, partition.number)])

    # ---- the client ---------------------------------------------------------------------------------------------

    def _the_consumer(self) -> Any:
        if self._consumer is None:
            properties = dict(self._properties)
            if "client.id" in properties:
                properties["client.id"] = f"{properties['client.id']}-{self._context.subtask}"
            self._consumer = make(self._library.Consumer, _DEFAULTS | properties | _OURS, SourceError)
        return self._consumer

    def _fetch(self) -> bool:
        """Read ahead the client's messages. Returns False if it has nothing."""
        try:
            messages = self._consumer.consume(RECORDS_AT_ONCE, 0.0)
        except self._library.KafkaException as error:
            raise SourceError(f"Kafka cannot be read: {reason_of(error)}") from None
        if not messages:
            return False
        message = self._library.Message
        if any(map(message.error, messages)):
            for is_error, part in groupby(messages, lambda m: m.error() is not None):
                if is_error:
                    for failed in part:
                        self._on_error(failed)
                else:
                    self._queue(list(part))
        else:
            self._queue(messages)
        return True

    def _queue(self, messages: list[Any]) -> None:
        """Divide messages by partition."""
        message = self._library.Message
        numbers = list(map(message.partition, messages))
        topics = list(map(message.topic, messages))
        bounds = _bounds(topics, numbers)
        values = list(map(message.value, messages))
        offsets = np.fromiter(map(message.offset, messages), np.int64, len(messages))
        timestamps = np.fromiter(map(_MS_OF, map(message.timestamp, messages)), np.int64, len(messages))
        for first, end in zip(bounds, [*bounds[1:], len(messages)]):
            partition = self._partitions.get((topics[first], numbers[first]))
            if partition is not None:
                self._queue_part(partition, values[first:end], offsets[first:end], timestamps[first:end])

    def _queue_part(
        self,
        partition: Partition,
        values: list[bytes | None],
        offsets: npt.NDArray[np.int64],
        timestamps: npt.NDArray[np.int64],
    ) -> None:
        stop, last = partition.stop, int(offsets[-1]) + 1
        if stop is None or last < stop:
            self._ahead.append(RecordsAhead(partition, values, offsets, timestamps, last))
            return
        kept = int(np.searchsorted(offsets, stop))
        self._ahead.append(RecordsAhead(partition, values[:kept], offsets[:kept], timestamps[:kept], stop, ends=True))

    def _on_error(self, message: Any) -> None:
        error, codes = message.error(), self._library.KafkaError
        partition = self._partitions.get((message.topic(), message.partition()))
        if error.code() == codes._PARTITION_EOF:
            # Control records and aborted rows have offsets, too; only this event shows that the client has passed them.
            if partition is not None:
                end, none = message.offset(), np.empty(0, np.int64)
                ends = partition.stop is not None and end >= partition.stop
                self._ahead.append(RecordsAhead(partition, [], none, none, end, ends))
            return
        if (fault := fault_of(self._library, message, partition)) is not None:
            raise fault

    def _measure_lag(self) -> None:
        now_s = time.monotonic()
        if now_s - self._lag_at_s < _LAG_INTERVAL_S:
            return
        self._lag_at_s = now_s
        lag = 0
        for partition in self._partitions.values():
            at = self._library.TopicPartition(partition.topic, partition.number)
            _, end = self._consumer.get_watermark_offsets(at, cached=True)
            if end < 0:
                return  # nothing of this partition has been fetched yet
            lag += max(0, (end if partition.stop is None else min(end, partition.stop)) - partition.next)
        self.lag_rows = lag

    def close(self) -> None:
        if self._consumer is not None:
            self._consumer.close()


def _bounds(topics: list[str], numbers: list[int]) -> list[int]:
    """Return the indices at which the records of a partition begin that follow each other."""
    bounds = [0]
    if numbers.count(numbers[0]) != len(numbers) or topics.count(topics[0]) != len(topics):
        places = list(zip(topics, numbers))
        bounds += [i for i in range(1, len(places)) if places[i] != places[i - 1]]
    return bounds
