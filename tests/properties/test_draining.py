"""Tests the phases of draining over random graphs: vertices that hold recovered rows, reports that are late and come in
any order, checkpoints whose barriers crawl. Nothing younger reaches a subtask that has recovered rows to read, in the
run and in every cut; and draining ends.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from random import Random
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.protocol.restore.drain_phases import Draining, ReleaseVertices, phases
from penstock.protocol.subtask.drain_gate import DrainGate
from penstock.protocol.values.elements import Generation, SubtaskId
from penstock.protocol.values.messages import DrainReport

GENERATION = Generation(1, 1)


@st.composite
def graphs(draw: st.DrawFn) -> tuple[list[int], list[tuple[int, int]]]:
    """(parallelism by vertex, edges); vertices in topological order, none without any edge but where it is alone."""
    vertices = draw(st.integers(1, 6))
    edges: list[tuple[int, int]] = []
    for target in range(1, vertices):
        sources = draw(st.sets(st.integers(0, target - 1), max_size=2))
        edges += [(source, target) for source in sorted(sources)]
    return [draw(st.integers(1, 3)) for _ in range(vertices)], edges


@given(graphs())
def test_everybody_is_released_once_consumers_before_producers_and_sources_together_at_the_end(
    graph: tuple[list[int], list[tuple[int, int]]],
) -> None:
    parallelism, edges = graph
    found = phases(len(parallelism), edges)
    assert sorted(v for phase in found for v in phase) == list(range(len(parallelism)))
    phase_of = {v: i for i, phase in enumerate(found) for v in phase}
    assert all(phase_of[target] < phase_of[source] for source, target in edges)
    sources = {v for v in range(len(parallelism)) if all(target != v for _, target in edges)}
    assert set(found[-1]) == sources


@dataclass
class _Channel:
    """(edge, producer, consumer): numbers of rows, barriers among them as negative checkpoint ids."""

    queue: deque[int] = field(default_factory=deque)
    emitted: int = 0
    applied: int = 0


@dataclass(frozen=True)
class _Edge:
    index: int


class _Gate:
    def __init__(self, edges: list[int], channels: list[_Channel], layers: int) -> None:
        self.edge_of = [_Edge(edge) for edge in edges]
        self.channels = channels
        self.layers = [_Layer(layers)]


@dataclass
class _Layer:
    rows: int

    @property
    def read(self) -> bool:
        return self.rows == 0


class _Partition:
    def __init__(self, edge: _Edge, channels: list[_Channel]) -> None:
        self.edge = edge
        self.channels = channels

    @property
    def emitted(self) -> list[int]:
        return [c.emitted for c in self.channels]


class Model:
    """Subtasks hold rows, pass each row that they read on to a random consumer of every output edge, and answer
    checkpoints: a source by its trigger, the others once all their channels have delivered the barrier, or, unaligned,
    at the first, which has passed all rows."""

    def __init__(self, parallelism: list[int], edges: list[tuple[int, int]], random: Random, unaligned: bool) -> None:
        self.random = random
        self.unaligned = unaligned
        self.phase_of = {v: i for i, phase in enumerate(phases(len(parallelism), edges)) for v in phase}
        self.at_work: set[int] = set()
        self.slow = random.choice([0.0, 0.5, 0.8])
        """How often a barrier is not there yet when a subtask looks."""
        self.edges = edges
        self.draining = Draining(parallelism, edges)
        self.subtasks = [SubtaskId(v, s) for v, count in enumerate(parallelism) for s in range(count)]
        self.channels = {
            (e, p, c): _Channel()
            for e, (source, target) in enumerate(edges)
            for p in range(parallelism[source])
            for c in range(parallelism[target])
        }
        self.sides = {s: DrainGate(s, GENERATION, 0) for s in self.subtasks}
        self.inputs = {
            s: [k for k in self.channels if edges[k[0]][1] == s.vertex and k[2] == s.subtask] for s in self.subtasks
        }
        self.outputs = {
            s: [k for k in self.channels if edges[k[0]][0] == s.vertex and k[1] == s.subtask] for s in self.subtasks
        }
        self.gates = {
            s: _Gate([k[0] for k in keys], [self.channels[k] for k in keys], random.randrange(4) if keys else 0)
            for s, keys in self.inputs.items()
        }
        for side in self.sides.values():
            side.hold()
        self.reports: list[DrainReport] = []
        self.mail: dict[SubtaskId, deque[object]] = {s: deque() for s in self.subtasks}
        self.pending: dict[int, set[SubtaskId]] = {}
        self.barriers: dict[tuple[SubtaskId, int], set[tuple[int, int, int]]] = {}
        self.blocked: dict[tuple[int, int, int], int] = {}
        self.cuts: dict[int, dict[SubtaskId, tuple[bool, dict[Any, int], dict[Any, int]]]] = {}
        self.live_rows = {s: 3 for s in self.subtasks if not self.inputs[s]}
        self.checkpoints = 0
        self._release(self.draining.start())

    # ---- the JobMaster ------------------------------------------------------------------------------------------

    def _release(self, release: ReleaseVertices) -> None:
        for subtask in self.subtasks:
            if release.is_last or subtask.vertex in release.vertices:
                self.mail[subtask].append((release.is_last, sorted(self.pending)))

    def trigger(self) -> None:
        self.checkpoints += 1
        self.pending[self.checkpoints] = set(self.subtasks)
        self.cuts[self.checkpoints] = {}
        for subtask in self.subtasks:
            if not self.inputs[subtask]:
                self.mail[subtask].append(self.checkpoints)

    def hear(self) -> None:
        report = self.reports.pop(self.random.randrange(len(self.reports)))
        following = self.draining.on_report(report)
        if following is not None:
            self._release(following)

    # ---- a subtask ----------------------------------------------------------------------------------------------

    def step(self, subtask: SubtaskId) -> None:
        side, gate = self.sides[subtask], self.gates[subtask]
        while self.mail[subtask]:
            item = self.mail[subtask].popleft()
            if isinstance(item, int):
                self._snapshot(subtask, item)
            else:
                assert isinstance(item, tuple)
                side.on_release(*item)
        while self._take_barrier(subtask):
            pass
        if side.held:
            return
        layer = gate.layers[0]
        if not layer.read:
            self._works(subtask)
            layer.rows -= 1
            self._pass_on(subtask)
            return
        queues = {k: self.channels[k].queue for k in self.inputs[subtask] if k not in self.blocked}
        waiting = [k for k, queue in queues.items() if queue and queue[0] >= 0]
        if waiting:
            self._works(subtask)
            channel = self.channels[self.random.choice(waiting)]
            channel.queue.popleft()
            channel.applied += 1
            self._pass_on(subtask)
            return
        if self.live_rows.get(subtask, 0):
            self._works(subtask)
            self.live_rows[subtask] -= 1
            self._pass_on(subtask)
            return
        applied: dict[int, int] = {}
        for key in self.inputs[subtask]:
            applied[key[0]] = applied.get(key[0], 0) + self.channels[key].applied
        emitted = {
            edge: sum(self.channels[k].emitted for k in self.outputs[subtask] if k[0] == edge)
            for edge in {k[0] for k in self.outputs[subtask]}
        }
        report = side.report(applied, emitted, all(layer.read for layer in gate.layers), True)
        if report is not None:
            self.reports.append(report)

    def _works(self, subtask: SubtaskId) -> None:
        """Check that when the first of a phase begins, all below it have come to rest."""
        phase = self.phase_of[subtask.vertex]
        if phase <= max(self.at_work, default=-1):
            return
        self.at_work.add(phase)
        below = [s for s in self.subtasks if self.phase_of[s.vertex] < phase]
        assert all(self.gates[s].layers[0].read for s in below), f"{subtask} works before recovered rows are read"
        sent = [self.channels[key] for s in below for key in self.outputs[s]]
        assert all(c.applied == c.emitted for c in sent), f"{subtask} works while older rows are on their way"

    def _pass_on(self, subtask: SubtaskId) -> None:
        for edge in {k[0] for k in self.outputs[subtask]}:
            channel = self.channels[self.random.choice([k for k in self.outputs[subtask] if k[0] == edge])]
            channel.queue.append(channel.emitted)
            channel.emitted += 1

    def _take_barrier(self, subtask: SubtaskId) -> bool:
        for key in self.inputs[subtask]:
            queue = self.channels[key].queue
            is_slow = self.random.random() < self.slow
            if queue and queue[0] < 0 and key not in self.blocked and not is_slow:
                checkpoint_id = -queue.popleft()
                if self.unaligned:
                    if subtask not in self.cuts[checkpoint_id]:
                        self._snapshot(subtask, checkpoint_id)
                    return True
                self.blocked[key] = checkpoint_id
                arrived = self.barriers.setdefault((subtask, checkpoint_id), set())
                arrived.add(key)
                if len(arrived) == len(self.inputs[subtask]):
                    for other in arrived:
                        del self.blocked[other]
                    self._snapshot(subtask, checkpoint_id)
                return True
        return False

    def _snapshot(self, subtask: SubtaskId, checkpoint_id: int) -> None:
        applied = {k: self.channels[k].applied for k in self.inputs[subtask]}
        emitted = {k: self.channels[k].emitted for k in self.outputs[subtask]}
        self.cuts[checkpoint_id][subtask] = (self.gates[subtask].layers[0].rows > 0, applied, emitted)
        for key in self.outputs[subtask]:
            queue = self.channels[key].queue
            older = sum(x < 0 for x in queue)
            queue.insert(older if self.unaligned else len(queue), -checkpoint_id)
        self.sides[subtask].on_checkpoint_ended(checkpoint_id)
        self.pending[checkpoint_id].discard(subtask)
        if not self.pending[checkpoint_id]:
            del self.pending[checkpoint_id]

    def check_cuts(self) -> None:
        """Check that in one cut no subtask has recovered rows and younger ones on a channel."""
        for checkpoint_id, cut in self.cuts.items():
            if checkpoint_id in self.pending:
                continue
            for subtask in self.subtasks:
                has_layers, applied, _ = cut[subtask]
                for key in self.inputs[subtask]:
                    emitted = cut[SubtaskId(self.edges[key[0]][0], key[1])][2][key]
                    assert applied[key] <= emitted
                    assert not has_layers or emitted == 0, f"checkpoint {checkpoint_id}: a younger row at {subtask}"


@settings(max_examples=150, deadline=None)
@given(graphs(), st.integers(0, 2**32), st.floats(0.0, 0.2), st.floats(0.05, 1.0), st.booleans())
def test_nothing_younger_reaches_who_has_recovered_rows_and_draining_ends(
    graph: tuple[list[int], list[tuple[int, int]]], seed: int, triggers: float, hearing: float, unaligned: bool
) -> None:
    random = Random(seed)
    parallelism, edges = graph
    model = Model(parallelism, edges, random, unaligned)
    for _ in range(10_000):
        may_trigger = not model.draining.is_over and model.checkpoints < 8 and len(model.pending) < 2
        if may_trigger and random.random() < triggers:
            model.trigger()
        if model.reports and random.random() < hearing:
            model.hear()
        model.step(random.choice(model.subtasks))
        if model.draining.is_over and not model.pending and all(s.is_over for s in model.sides.values()):
            break
    else:
        raise AssertionError("draining never ends")
    for gate in model.gates.values():
        assert gate.layers[0].read
    for (edge, _, _), channel in model.channels.items():
        assert channel.applied <= channel.emitted, f"edge {edge}"
    model.check_cuts()
