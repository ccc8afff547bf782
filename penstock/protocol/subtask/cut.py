"""Holds the cut of a subtask through its channels, from its snapshot until nothing of it can come any more."""

from __future__ import annotations

from dataclasses import dataclass, field

from penstock.protocol.channel.captured import Captured
from penstock.protocol.values.elements import Barrier, ChannelId, SnapshotKind


@dataclass
class Cut:
    """Cuts the channels of one subtask for one checkpoint.

    `applied` and `emitted`: the numbers of all channels, in the order of the inputs and of the outputs. `inputs` and
    `outputs`: the elements in flight. `windows_open`: the positions of inputs that are still captured.
    `barriers_missing`: until all barriers are in. `outputs_open`: an aligned barrier that may still turn stands in an
    output queue.
    """

    barrier: Barrier
    unaligned: bool
    taken_ms: float
    start_delay_ms: float
    applied: dict[ChannelId, int]
    emitted: dict[ChannelId, int]
    inputs: dict[ChannelId, Captured] = field(default_factory=dict)
    outputs: dict[ChannelId, Captured] = field(default_factory=dict)
    windows_open: set[int] = field(default_factory=set)
    barriers_missing: bool = True
    outputs_open: bool = False
    alignment_ms: float = 0.0
    checkpoint_id: int = field(init=False)

    def __post_init__(self) -> None:
        self.checkpoint_id = self.barrier.checkpoint_id

    @property
    def stores(self) -> bool:
        """Return whether anything but committables belongs to the checkpoint."""
        return self.barrier.kind is not SnapshotKind.COMMITS_ONLY

    @property
    def is_closed(self) -> bool:
        """Return whether nothing can come any more: all windows are closed, all barriers in, and none waits to turn."""
        return not (self.windows_open or self.barriers_missing or self.outputs_open)

    @property
    def output_deadline_ms(self) -> float | None:
        """Return the time at which barriers in output queues turn: the alignment timeout counts from the trigger."""
        timeout_ms = self.barrier.alignment_timeout_ms
        if not self.outputs_open or timeout_ms is None:
            return None
        return self.taken_ms + max(0.0, timeout_ms - self.barrier.age_ms)
