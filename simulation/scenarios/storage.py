"""Tests sections 3, 4 and 11 for faults of checkpoint storage: an error that no restart mends ends the job, and the
message names the object."""

from __future__ import annotations

from typing import Any

from penstock.storage.layout import LOG_FOLDER, metadata_path
from penstock.storage.store import StoreError
from simulation.checkers.log_checker import LogChecker
from simulation.faults.fault_plan import FaultPlan
from simulation.scenarios.scenario import UNALIGNED, Scenario


class StoreIgnoresConditions(Scenario):
    """A store lets an object be created twice. Two drivers could own the job, so it is refused at the start, before
    anything runs."""

    section = 11
    rules = ("11.10",)

    def observe(self, what: str, who: Any, detail: Any) -> None:
        self.cluster.shared.ignores_conditions = True
        self.cluster.job.expected_failure = "create"

    def has_happened(self) -> bool:
        return self.cluster.is_over and not self.cluster.output.pending


class SegmentIsDamaged(Scenario):
    """A bit of a segment has flipped when a slot is lost. The job fails. Its message names the segment and the range,
    and says how to continue; it never goes back to an older checkpoint by itself, because output may be committed.
    """

    section = 3
    rules = ("3.6a",)
    options = UNALIGNED | {"execution.checkpointing.num-retained": 2}

    def observe(self, what: str, who: Any, detail: Any) -> None:
        log = self.cluster.job.log
        assert log is not None
        if what == "create" and detail.startswith(LOG_FOLDER) and log.published == 2 and not self.count:
            self.cluster.world.after(0.0, None, self._flip)

    def _flip(self) -> None:
        """Flip a bit in every segment, so that it does not matter which checkpoint is the newest by then."""
        self.count += 1
        objects = self.cluster.shared.objects
        for name in [n for n in objects if "/shared/" in n]:
            data = bytearray(objects[name])
            data[len(data) // 2] ^= 0x10
            objects[name] = bytes(data)
        self.cluster.job.expected_failure = "damaged"
        self.cluster.fault_injector.stop_checkpoints()
        self.cluster.fault_injector.inject("kill_slot")


class NewJobFromACheckpoint(Scenario):
    """A job is killed, and a new one starts from one of its checkpoints, under another id. It reads the old job's
    segments, commits what that checkpoint had prepared, and leaves the old directory as it is."""

    section = 3
    rules = ("3.8a",)
    options = UNALIGNED
    faults = FaultPlan(kinds=("kill_slot",), count=2, gap_ms=120.0)

    def __init__(self) -> None:
        super().__init__()
        self._before: dict[str, bytes] = {}

    def observe(self, what: str, who: Any, detail: Any) -> None:
        log = self.cluster.job.log
        assert log is not None
        if what == "create" and detail.startswith(LOG_FOLDER) and len(log.entries) == 4 and not self.count:
            self.count += 1
            self.cluster.world.after(0.0, None, self._start_from_newest)

    def _start_from_newest(self) -> None:
        cluster, log = self.cluster, self.cluster.job.log
        assert log is not None
        cluster.fault_injector.kill_driver_and_slots()
        self._before = dict(cluster.shared.objects)
        newest = log.entries[-1].path.partition("/")[0]
        cluster.start_new_job("beef" * 8, f"{cluster.job.directory}/{newest}")

    def has_happened(self) -> bool:
        objects = self.cluster.shared.objects
        if any(objects.get(name) != data for name, data in self._before.items()):
            self.cluster.world.violate("the new job has changed the directory of the one that it started from")
        return self.count > 0


class ClaimOutlivesItsDriver(Scenario):
    """A job starts from a checkpoint and claims it. Its driver is killed behind the job's first own checkpoint, when
    the claimed one is still retained: the next driver restores the own one, and reads no other."""

    section = 3
    rules = ("3.8b",)
    options = UNALIGNED | {
        "execution.checkpointing.num-retained": 3,
        "execution.state-recovery.claim-mode": "CLAIM",
    }

    def __init__(self) -> None:
        super().__init__()
        self._first: LogChecker | None = None

    def observe(self, what: str, who: Any, detail: Any) -> None:
        log = self.cluster.job.log
        if what != "create" or not detail.startswith(LOG_FOLDER) or log is None or self.count:
            return
        if self._first is None and log.published == 2:
            self._first = log
            self.cluster.world.after(0.0, None, self._start_from_newest)
        elif self._first not in (None, log) and log.published == 1:
            self.count += 1
            self.cluster.world.after(0.0, None, self.cluster.fault_injector.inject, "kill_driver")

    def _start_from_newest(self) -> None:
        cluster, log = self.cluster, self._first
        assert log is not None and log.newest is not None
        cluster.fault_injector.kill_driver_and_slots()
        cluster.start_new_job("beef" * 8, f"{cluster.job.directory}/chk-{log.newest.checkpoint_id}")


class KilledWhileItDeletesWhatItClaimed(ClaimOutlivesItsDriver):
    """A job has claimed the checkpoint that it started from, and its driver is killed behind the first object of that
    which it deletes. The metadata are still there, so the next driver knows what is left of it, and deletes it."""

    rules = ("3.8c",)

    def __init__(self) -> None:
        super().__init__()
        self._claimed: set[str] = set()
        """The paths of all that is claimed."""
        self._killed: Any = None
        """The process that is killed in the middle of a step: nothing that it does from then on is carried out."""

    def observe(self, what: str, who: Any, detail: Any) -> None:
        if who is self._killed and what in ("create", "delete", "get", "list"):
            raise StoreError(f"{who.name} has been killed")
        log = self.cluster.job.log
        if self._first is None and log is not None and log.published == 2:
            self._first = log
            self.cluster.world.after(0.0, None, self._start_from_newest)
        elif what == "delete" and detail in self._claimed and not self.count:
            self.count += 1
            self._killed = who
            self.cluster.world.after(0.0, None, self.cluster.fault_injector.inject, "kill_driver")

    def _start_from_newest(self) -> None:
        super()._start_from_newest()
        assert self._first is not None and self._first.newest is not None
        newest = self._first.newest
        self._claimed = {metadata_path(newest.checkpoint_id), *(segment.path for segment in newest.segments)}

    def has_happened(self) -> bool:
        assert self._first is not None
        names = {f"{self._first.directory}/{path}" for path in self._claimed}
        if left := sorted(names & self.cluster.shared.objects.keys()):
            self.cluster.world.violate(f"the job owned {left}, and nobody has deleted them")
        return self.count > 0


SCENARIOS: list[type[Scenario]] = [
    StoreIgnoresConditions, SegmentIsDamaged, NewJobFromACheckpoint, ClaimOutlivesItsDriver,
    KilledWhileItDeletesWhatItClaimed,
]  # fmt: skip
