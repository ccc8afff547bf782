"""Tests a small graph of shipped `SubtaskMachine`s and channels, without a runtime. Checkpoints are aligned, time out,
or are unaligned; they overlap, some are given up at any moment, and snapshots wait for the rest of a row.

Every checkpoint that reaches a subtask ends there in one acknowledgement or one decline; nothing is stuck once all
barriers and cancels are in; and what all acknowledged is a cut: each row is applied, or stored once, or not yet sent.
"""

from __future__ import annotations

from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from penstock.protocol.values.elements import Barrier, ChannelId
from penstock.protocol.values.frames import CreditLimit, Data
from tests.unit.protocol.channel.wire import Wire
from tests.unit.protocol.subtask.driven_subtask import ROW_BYTES, DrivenSubtask, Part, SetClock

# (producer, consumer), by name, of each channel
GRAPHS: dict[str, list[tuple[str, str]]] = {
    "line": [("source", "map"), ("map", "sink")],
    "two sources": [("a", "join"), ("b", "join"), ("join", "sink")],
    "diamond": [("s", "left"), ("s", "right"), ("left", "t"), ("right", "t")],
    "all to all": [(a, b) for by, to in (("s", "m"), ("m", "t")) for a in (by, by * 2) for b in (to, to * 2)],
}  # fmt: skip


class GraphMachine(RuleBasedStateMachine):
    @initialize(name=st.sampled_from(sorted(GRAPHS)), window_rows=st.sampled_from([1, 4, 1_000]))
    def build(self, name: str, window_rows: int) -> None:
        self.clock = SetClock()
        self.ends: dict[ChannelId, tuple[str, str]] = {}
        names = list(dict.fromkeys(n for edge in GRAPHS[name] for n in edge))
        for edge, ends in enumerate(GRAPHS[name]):
            self.ends[ChannelId(edge, names.index(ends[0]), names.index(ends[1]))] = ends
        self.subtasks = {
            n: DrivenSubtask(
                [c for c, (_, to) in self.ends.items() if to == n],
                [c for c, (by, _) in self.ends.items() if by == n],
                self.clock,
                window_rows * ROW_BYTES,
            )
            for n in names
        }
        self.sources = [n for n, s in self.subtasks.items() if not s.inputs]
        self.wires = {c: Wire() for c in self.ends}
        self.credit = {c: Wire() for c in self.ends}
        self.emitted: dict[ChannelId, list[Any]] = {c: [] for c in self.ends}
        self.newest = 0
        self.triggered: dict[str, int] = dict.fromkeys(self.sources, 0)
        self.barriers: dict[int, Barrier] = {}
        self.over: set[int] = set()
        self.rows = 0

    # ---- rows ---------------------------------------------------------------------------------------------------

    def _carry_sent(self) -> None:
        for subtask in self.subtasks.values():
            while subtask.sent:
                frame = subtask.sent.popleft()
                wires = self.credit if isinstance(frame, CreditLimit) else self.wires
                wires[frame.channel].put(frame)
            for output in subtask.outputs:
                truth = self.emitted[output.id]
                for element in list(output.queue)[-1:]:
                    if isinstance(element, Data) and element.rows and element.first == len(truth):
                        truth.extend(element.payload)

    @rule(data=st.data(), rows=st.integers(1, 4))
    def read(self, data: st.DataObject, rows: int) -> None:
        source = self.subtasks[data.draw(st.sampled_from(self.sources))]
        for _ in range(rows):
            self.rows += 1
            source.emit(self.rows)
            self._carry_sent()

    @rule(data=st.data())
    def send(self, data: st.DataObject) -> None:
        channel = data.draw(st.sampled_from(sorted(self.ends)))
        self._send(channel)

    def _send(self, channel: ChannelId) -> bool:
        producer = self.subtasks[self.ends[channel][0]]
        sent = producer.pop([o.id for o in producer.outputs].index(channel))
        self._carry_sent()
        return sent

    @rule(data=st.data())
    def arrive(self, data: st.DataObject) -> None:
        self._arrive(data.draw(st.sampled_from(sorted(self.ends))))

    def _arrive(self, channel: ChannelId) -> bool:
        producer, consumer = self.ends[channel]
        if moved := bool(self.wires[channel]):
            self.subtasks[consumer].receive(self.wires[channel].take())
            self._carry_sent()
        if self.credit[channel]:
            self.subtasks[producer].receive(self.credit[channel].take())
            self._carry_sent()
            return True
        return moved

    @rule(data=st.data(), steps=st.integers(1, 3))
    def apply(self, data: st.DataObject, steps: int) -> None:
        channel = data.draw(st.sampled_from(sorted(self.ends)))
        for _ in range(steps):
            self._apply(channel)

    def _apply(self, channel: ChannelId) -> bool:
        consumer = self.subtasks[self.ends[channel][1]]
        index = [i.id for i in consumer.inputs].index(channel)
        had = consumer.inputs[index].head() is not None
        consumer.apply(index)
        self._carry_sent()
        return had

    # ---- checkpoints --------------------------------------------------------------------------------------------

    @rule(timeout_ms=st.sampled_from([None, 0, 5, 50]))
    def new_checkpoint(self, timeout_ms: int | None) -> None:
        self.newest += 1
        self.barriers[self.newest] = Barrier(self.newest, timeout_ms)

    @rule(data=st.data())
    def trigger_arrives(self, data: st.DataObject) -> None:
        """Each source hears of them in order, at a time of its own."""
        source = data.draw(st.sampled_from(self.sources))
        if self.triggered[source] < self.newest:
            self._trigger(source)

    def _trigger(self, source: str) -> None:
        self.triggered[source] += 1
        self.subtasks[source].trigger(self.barriers[self.triggered[source]])
        self._carry_sent()

    @rule(data=st.data(), ms=st.sampled_from([1.0, 7.0, 60.0]))
    def time_passes(self, data: st.DataObject, ms: float) -> None:
        self.clock.now_ms += ms
        for name in data.draw(st.lists(st.sampled_from(sorted(self.subtasks)), unique=True)):
            self._on_time(name)

    def _on_time(self, name: str) -> None:
        self.subtasks[name].on_time()
        self._carry_sent()

    @rule(data=st.data())
    def coordinator_gives_up(self, data: st.DataObject) -> None:
        """Each subtask hears of it at a time of its own, too; `teardown` tells those who have not."""
        if not self.barriers:
            return
        checkpoint_id = data.draw(st.sampled_from(sorted(self.barriers)))
        self.over.add(checkpoint_id)
        for name in data.draw(st.lists(st.sampled_from(sorted(self.subtasks)), unique=True)):
            self._end(name, checkpoint_id)

    def _end(self, name: str, checkpoint_id: int) -> None:
        if checkpoint_id not in self.subtasks[name].ended:
            self.subtasks[name].end(checkpoint_id)
            self._carry_sent()

    # ---- the end ------------------------------------------------------------------------------------------------

    def teardown(self) -> None:
        if not hasattr(self, "subtasks"):
            return
        for source in self.sources:
            while self.triggered[source] < self.newest:
                self._trigger(source)
        self._come_to_rest()
        if not self.over:
            assert not any(s.blocked for s in self.subtasks.values()), "barriers and cancels alone end every alignment"
        refused = {i for s in self.subtasks.values() for i in s.declined}
        for checkpoint_id in self.over | refused:
            for name in self.subtasks:
                self._end(name, checkpoint_id)
        self._come_to_rest()
        for channel, (_, consumer) in self.ends.items():
            into = next(i for i in self.subtasks[consumer].inputs if i.id == channel)
            assert into.applied == len(self.emitted[channel]), f"{channel} is stuck: blocked by {into.blocked_by}"
        for checkpoint_id in self.barriers:
            given_up = checkpoint_id in self.over or checkpoint_id in refused
            for name, subtask in self.subtasks.items():
                ended = (checkpoint_id in subtask.acknowledged) + (checkpoint_id in subtask.declined)
                assert ended <= 1
                assert ended or given_up, f"checkpoint {checkpoint_id} is stuck at {name}: {subtask.pending}"
                assert checkpoint_id not in subtask.pending
                assert all(checkpoint_id not in i.windows for i in subtask.inputs), "a window stays open"
            if not given_up:
                self._verify({n: s.acknowledged[checkpoint_id] for n, s in self.subtasks.items()})
        for subtask in self.subtasks.values():
            snapshots = [int(entry.split()[1]) for entry in subtask.log if not entry.startswith("decline")]
            assert snapshots == sorted(set(snapshots)), "snapshots are taken in growing order, once each"

    def _come_to_rest(self) -> None:
        while True:
            moved = False
            for channel in self.ends:
                moved |= self._send(channel) | self._arrive(channel) | self._apply(channel)
            deadlines = [d for s in self.subtasks.values() if (d := s.next_deadline_ms) is not None]
            if not moved:
                if not deadlines:
                    return
                self.clock.now_ms = max(self.clock.now_ms, min(deadlines))
                for name in self.subtasks:
                    self._on_time(name)

    def _verify(self, parts: dict[str, Part]) -> None:
        for channel, (producer, consumer) in self.ends.items():
            sent, taken = parts[producer], parts[consumer]
            applied, emitted = taken.applied[channel], sent.emitted[channel]
            assert applied <= emitted, f"{channel}: {applied} applied, {emitted} emitted"
            stored = taken.captured.get(channel, []) + sent.captured.get(channel, [])
            inside = [(n, row) for n, row in stored if applied <= n < emitted]
            expected = [(n, self.emitted[channel][n]) for n in range(applied, emitted)]
            assert sorted(inside) == expected, f"{channel}: [{applied}, {emitted})"
            if sent.barrier.alignment_timeout_ms is None:
                assert not stored, "an aligned checkpoint stores nothing in flight"


TestGraph = GraphMachine.TestCase
TestGraph.settings = settings(max_examples=120, stateful_step_count=60, deadline=None)
