"""Reports the positions of a job's last checkpoint outside the job, before it ends."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from penstock.jobmaster.current_job import CurrentJob
from penstock.jobmaster.master_ports import BlockingWork, MasterPorts
from penstock.jobmaster.sources import EnumeratorFailed, SplitDistribution
from penstock.protocol.values.elements import SubtaskId
from penstock.protocol.values.metadata import EnumeratorState, SubtaskSnapshot


class FinalPositions:
    """Reports by enumerators that are made for this alone: the generation may be over, or have been another driver's.

    What cannot be reported is a warning. `work`: where sources block.
    """

    def __init__(self, job: CurrentJob, work: BlockingWork, ports: MasterPorts) -> None:
        self._job = job
        self._work = work
        self._ports = ports

    def report(
        self, enumerators: Sequence[EnumeratorState], subtasks: Sequence[SubtaskSnapshot], then: Callable[[], None]
    ) -> None:
        """Report positions, then call `then`. Without this: a job that reads what its group has not committed begins
        where this one has begun.

        Args:
            enumerators: Of the last checkpoint.
            subtasks: Of the last checkpoint, with the splits of their readers.
            then: Ends the job.
        """
        if not any(part.name == "splits" and part.items for subtask in subtasks for part in subtask.parts):
            then()
            return
        warn = self._ports.console.warning
        try:
            sources = SplitDistribution(
                self._job.graph, enumerators, _assign, self._work, _failed, warn, self._ports.clock
            )
        except EnumeratorFailed as error:
            warn(f"the positions of the job's last checkpoint could not be reported: {error}")
            then()
            return
        sources.checkpoint_completed(subtasks)
        sources.when_reported(then)


def _assign(subtask: SubtaskId, splits: list[bytes], no_more: bool) -> None:
    """Do nothing: nobody has asked for splits."""


def _failed(error: EnumeratorFailed) -> None:
    """Do nothing: nothing is discovered."""
