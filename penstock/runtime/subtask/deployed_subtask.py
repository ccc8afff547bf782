"""Holds a subtask's parts from its deployment on: a mailbox, channels, and the machine of its checkpoints."""

from __future__ import annotations

from penstock.graph.job_graph import Vertex
from penstock.protocol.channel.watermark_valve import WatermarkValve
from penstock.protocol.subtask.drain_gate import DrainGate
from penstock.protocol.subtask.subtask_machine import SubtaskMachine
from penstock.protocol.values.elements import Generation, SubtaskId
from penstock.protocol.values.frames import CreditLimit, CreditWanted
from penstock.protocol.values.keys import key_group_range
from penstock.runtime.input.input_gate import InputGate
from penstock.runtime.output.result_partition import ResultPartition
from penstock.runtime.process.mailbox import Mailbox


class DeployedSubtask:
    """Receives frames before the subtask is opened: a neighbour that was faster may send already.

    Args:
        gate: All its input channels.
        partitions: Its output edges, side outputs included.
    """

    def __init__(
        self, vertex: Vertex, slot: int, generation: Generation, gate: InputGate, partitions: list[ResultPartition]
    ) -> None:
        self.id = SubtaskId(vertex.index, slot)
        self.vertex = vertex
        self.name = f"{vertex.name} ({slot + 1}/{vertex.parallelism})"
        self.key_groups = key_group_range(vertex.max_parallelism, vertex.parallelism, slot)
        self.mailbox = Mailbox()
        self.gate = gate
        self.partitions = partitions
        self._partition_of = {partition.edge.index: partition for partition in partitions}
        self.valve = WatermarkValve(len(gate.channels))
        self.draining = DrainGate(self.id, generation, slot)
        self.machine = SubtaskMachine(gate.channels, [c for p in partitions for c in p.channels], self.draining)

    def on_credit(self, frame: CreditLimit | CreditWanted) -> None:
        """Accept credit from a consumer, or a producer's report that its rows wait for some."""
        if isinstance(frame, CreditLimit):
            self._partition_of[frame.channel.edge].grant(frame.channel, frame.limit_bytes)
        else:
            self.gate.want(frame)
