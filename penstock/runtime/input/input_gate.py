"""Combines all input channels of a subtask: picks what to take next, recovered data first.

Channels take turns by bytes (`penstock.runtime.input.deficit_round_robin`), recovered layers first.
"""

from __future__ import annotations

from collections import deque
from typing import Any, Callable, Protocol, Sequence

import msgspec
import pyarrow as pa

from penstock.common.limits import USUAL, Limits
from penstock.common.typeinfo import KEY_COLUMN, KEY_GROUP_COLUMN
from penstock.graph.job_graph import Edge
from penstock.operators.batches import as_batch, declared_key, row_type, wire_schema
from penstock.protocol.channel.credit_pool import CreditPool
from penstock.protocol.channel.ends import InputChannel, ProtocolError
from penstock.protocol.channel.flow_control import BoundSizer
from penstock.protocol.subtask.effects import BarrierReached
from penstock.protocol.values.elements import ChannelId, InBandEvent
from penstock.protocol.values.frames import AlignedBarrier, CreditLimit, CreditWanted, Data, Frame
from penstock.protocol.values.keys import KeyDecoder
from penstock.runtime.input.deficit_round_robin import DeficitRoundRobin
from penstock.runtime.input.layers import Layer, RecoveredRows
from penstock.runtime.output.key_columns import KeyColumns

Send = Callable[[int, Frame], None]
"""(slot, frame): to a producer."""


class _Head(Protocol):
    """Counts applied rows: an `InputChannel` or a `Layer`."""

    applied: int

    def apply_rows(self, rows: int) -> None: ...


class OpenBatch:
    """Holds the batch at the head of a channel or layer, decoded once however many slices it is taken in."""

    __slots__ = ("batch", "edge", "origin", "start", "size_bytes", "_rows", "_keys", "_key_groups", "_decoder",
                 "timestamps")  # fmt: skip

    def __init__(self, batch: pa.RecordBatch, edge: Edge, origin: _Head, size_bytes: int, decoder: KeyDecoder) -> None:
        self.batch = batch
        self.edge = edge
        self.origin = origin
        self.start = 0
        self.size_bytes = size_bytes
        self._rows: list[Any] | None = None
        self._keys: list[Any] | None = None
        self._key_groups: list[int] | None = None
        self._decoder = decoder
        self.timestamps: Sequence[int | None] | None = None
        """Event times: what the edge carries, or what the consumer's own clock says; its consumer sets them."""

    @property
    def rows(self) -> list[Any]:
        if self._rows is None:
            self._rows = row_type(self.edge.type).decode(self.batch)
        return self._rows

    @property
    def keys(self) -> list[Any]:
        if self._keys is None and self.edge.partitioner.key_columns is not None:
            self._keys = KeyColumns(row_type(self.edge.type), self.edge.partitioner.key_columns).keys(self.batch)
        if self._keys is None:
            values = self.batch.column(KEY_COLUMN).to_pylist()
            canonical = declared_key(self.edge.partitioner) == "canonical"
            self._keys = self._decoder.decode(values) if canonical else values
        return self._keys

    @property
    def key_groups(self) -> list[int]:
        if self._key_groups is None:
            self._key_groups = self.batch.column(KEY_GROUP_COLUMN).to_pylist()
        return self._key_groups

    @property
    def remaining(self) -> int:
        return int(self.batch.num_rows) - self.start


class GateEvent(msgspec.Struct, frozen=True):
    """Reports that an in-band event was reached. `recovered`: it comes from a layer, so an end of data ends only that.
    `virtual`: the virtual channel of the watermark valve that it belongs to, instead of `channel`.
    """

    channel: int
    event: InBandEvent
    recovered: bool
    virtual: int | None = None


class GateLayerRead(msgspec.Struct, frozen=True):
    """Reports that a layer has been consumed that was a virtual channel of the watermark valve."""

    virtual: int


class InputGate:
    """Holds all input channels of a subtask, the layers in front of them, and the credit of their producers.

    Channels are named by their positions in `channels`; `edge_of` has the edge of each. The caller polls, works on what
    it gets, and reports the rows that it has `applied`.
    """

    def __init__(self, edges: list[Edge], subtask: int, sizer: BoundSizer, send: Send, limits: Limits = USUAL) -> None:
        self.edge_of: list[Edge] = []
        self.index_of: dict[ChannelId, int] = {}
        ids = [ChannelId(e.index, p, subtask) for e in edges for p in e.producers_of(subtask)]
        edge_of = {e.index: e for e in edges}
        self._sizer = sizer
        self._send = send
        self._pool = CreditPool(sizer.bound_bytes, ids)
        self.channels = self._pool.channels
        for index, channel in enumerate(ids):
            self.index_of[channel] = index
            self.edge_of.append(edge_of[channel.edge])
        schemas = {index: wire_schema(edge) for index, edge in edge_of.items()}
        self._schemas = [schemas[channel.edge] for channel in ids]
        self._open: dict[int, OpenBatch] = {}
        self._open_layer: OpenBatch | None = None
        self._round_robin = DeficitRoundRobin(len(self.channels), limits.quantum_bytes)
        self._consumed_bytes = 0
        self._decoder = KeyDecoder()
        self.layers: deque[Layer] = deque()

    @property
    def queued_bytes(self) -> int:
        return sum(c.queued_bytes for c in self.channels)

    @property
    def layers_are_read(self) -> bool:
        """Return whether everything recovered has been read."""
        return all(layer.read for layer in self.layers)

    def applied_by_edge(self) -> dict[int, int]:
        """Return the number of applied elements per edge index, over all its channels."""
        applied: dict[int, int] = {}
        for edge, channel in zip(self.edge_of, self.channels, strict=True):
            applied[edge.index] = applied.get(edge.index, 0) + channel.applied
        return applied

    def poll(self) -> OpenBatch | GateEvent | GateLayerRead | BarrierReached | None:
        """Return the next input. A batch stays the next one until all its rows are applied; this call takes events and
        barriers. None: nothing has come, or all that has is behind a barrier.
        """
        while self.layers:
            layer = self.layers[0]
            if layer.read:
                self.layers.popleft()
                if layer.virtual is not None:
                    return GateLayerRead(layer.virtual)
                continue
            return self._poll_layer(layer)
        index = self._round_robin.next(self._waits)
        if index is None:
            return None
        channel = self.channels[index]
        element = channel.head()
        if isinstance(element, Data):
            opened = self._open.get(index)
            return opened if opened is not None else self._opened(index, channel, element)
        if isinstance(element, AlignedBarrier):
            return BarrierReached(index, channel.pass_barrier().barrier)
        return GateEvent(index, channel.apply_event(), recovered=False)

    def poll_barrier(self, past_layers: bool = False) -> BarrierReached | None:
        """Take a barrier that has nothing before it, if there is one. `past_layers`: nothing live before it is enough,
        because every snapshot contains what is unread of layers.
        """
        if not past_layers and not self.layers_are_read:
            return None
        for index, channel in enumerate(self.channels):
            if isinstance(channel.head(), AlignedBarrier):
                return BarrierReached(index, channel.pass_barrier().barrier)
        return None

    def _waits(self, index: int) -> bool:
        return self.channels[index].head() is not None

    def _poll_layer(self, layer: Layer) -> OpenBatch | GateEvent:
        element = layer.head()
        if not isinstance(element, RecoveredRows):
            return GateEvent(layer.channel, layer.apply_event(), recovered=True, virtual=layer.virtual)
        opened = self._open_layer
        if opened is None:
            batch = as_batch(element.payload, self._schemas[layer.channel])
            opened = OpenBatch(batch, self.edge_of[layer.channel], layer, batch.nbytes, self._decoder)
            opened.start = layer.head_skip
            self._open_layer = opened
        return opened

    def _opened(self, index: int, channel: InputChannel, element: Data) -> OpenBatch:
        batch = as_batch(element.payload, self._schemas[index])
        if batch.num_rows != element.rows:
            found = f"a frame of {element.rows} rows holds a batch of {batch.num_rows}"
            raise ProtocolError(f"channel {channel.id}: {found}")
        opened = self._open[index] = OpenBatch(batch, self.edge_of[index], channel, element.size_bytes, self._decoder)
        return opened

    def applied(self, opened: OpenBatch, rows: int) -> None:
        """Record that `rows` rows of the polled batch have been applied. Grants its producer the limit that is due."""
        channel = opened.origin
        opened.start += rows
        channel.apply_rows(rows)
        if not isinstance(channel, InputChannel):
            if not opened.remaining:
                self._open_layer = None
            return
        index = self.index_of[channel.id]
        if not opened.remaining:
            del self._open[index]
        size_bytes = opened.size_bytes * rows // max(opened.batch.num_rows, 1)
        self._consumed_bytes += size_bytes
        self._round_robin.used(index, size_bytes)
        if (limit_bytes := channel.credit_due()) is not None:
            self._send(channel.id.producer, CreditLimit(channel.id, limit_bytes))

    def want(self, wanted: CreditWanted) -> None:
        """Accept a producer's report that rows wait for credit."""
        self.channels[self.index_of[wanted.channel]].want(wanted.wanted_bytes)

    def grant(self) -> None:
        """Grant credit to producers whose rows wait for it. Call it after mail, and after work."""
        for channel in self._pool.granted():
            self._send(channel.id.producer, CreditLimit(channel.id, channel.granted_bytes))

    @property
    def expects_rows(self) -> bool:
        """Return whether producers hold rows for this gate, as far as it knows."""
        return self._pool.expects_rows

    def resize(self, now_ms: float) -> bool:
        """Fit the windows to what has been consumed since the last call. Returns whether they have grown."""
        before_bytes = self._sizer.bound_bytes
        if self._sizer.update(self._consumed_bytes, now_ms):
            self._pool.resize(self._sizer.bound_bytes)
        return self._sizer.bound_bytes > before_bytes
