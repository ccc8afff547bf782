"""Tests section 11 for deletion: unneeded objects are deleted, no matter which driver wrote them and however the
job has ended.
"""

from __future__ import annotations

from typing import Any

from penstock.protocol.values.log_entries import Ended
from penstock.protocol.values.messages import Restored
from penstock.storage.layout import LOG_FOLDER, METADATA_NAME, SHARED_FOLDER, MetadataName, parse
from penstock.storage.metadata_file import decode_metadata
from simulation.scenarios.scenario import UNALIGNED, Scenario


class WithLeftovers(Scenario):
    section = 11

    def has_ended(self) -> bool:
        """Return whether the job's end is in its log."""
        log = self.cluster.job.log
        return log is not None and any(isinstance(entry, Ended) for entry in log.entries)

    def leftovers(self) -> set[str]:
        """Return segments that no metadata names, and metadata above the newest published checkpoint."""
        log, start = self.cluster.job.log, len(self.cluster.job.directory) + 1
        assert log is not None
        newest_id = log.newest.checkpoint_id if log.newest is not None else 0
        objects = {name[start:]: data for name, data in self.cluster.shared.objects.items()}
        found = {path for path in objects if path.startswith(SHARED_FOLDER)}
        for path, data in objects.items():
            name = parse(path)
            if isinstance(name, MetadataName) and name.checkpoint_id > newest_id:
                found.add(path)
            elif isinstance(name, MetadataName):
                found -= {segment.path for segment in decode_metadata(data, path).segments}
        return found


class JobEndsBeforeTheNextSweep(WithLeftovers):
    """Segments of a checkpoint that was given up stay for ever: their writer was told that it had failed, so nobody
    knows of them, and the job ends before its next sweep. (Found by a random seed.)"""

    rules = ("11.11b",)
    options = UNALIGNED

    def __init__(self) -> None:
        super().__init__()
        self._segments = 0

    def observe(self, what: str, who: Any, detail: Any) -> None:
        if what == "create" and detail.startswith(SHARED_FOLDER):
            self._segments += 1
            if self._segments in (2, 7, 12):
                self.cluster.fail_next_store_call(is_carried_out=True)
        elif what == "list" and self.has_ended():
            self.count += len(self.leftovers())


class OneObjectCannotBeDeleted(JobEndsBeforeTheNextSweep):
    """The store refuses to delete one of the objects that the job leaves behind, and all the others stay with it.
    (Found by a random seed.)"""

    rules = ("11.11b",)

    def __init__(self) -> None:
        super().__init__()
        self._refused: str | None = None

    def observe(self, what: str, who: Any, detail: Any) -> None:
        if what != "delete":
            super().observe(what, who, detail)
        elif self.count and self._refused in (None, detail):
            self._refused = detail
            self.cluster.fail_next_store_call()

    def has_happened(self) -> bool:
        if others := self.leftovers() - {self._refused}:
            self.cluster.world.violate(f"{self._refused} could not be deleted, and these were not: {sorted(others)}")
        return self.count > 1 and self._refused is not None


class FencedDriverLeavesMetadata(WithLeftovers):
    """A driver has written metadata, and is fenced before it has put them in the log. The job ends before any of its
    checkpoints has a larger number, and the metadata stay for ever. (Found by a random seed.)"""

    rules = ("11.11b",)
    options = UNALIGNED | {"execution.checkpointing.interval": "40 ms"}

    def __init__(self) -> None:
        super().__init__()
        self._restored = 0

    def observe(self, what: str, who: Any, detail: Any) -> None:
        cluster, log = self.cluster, self.cluster.job.log
        if what == "create" and detail.endswith(METADATA_NAME) and len(cluster.drivers) == 1:
            if log is not None and log.published:
                cluster.fault_injector.inject_now("pause_driver", 20_000.0)
                cluster.world.after(1.0, None, cluster.start_driver)
        elif what == "up" and isinstance(detail, Restored) and len(cluster.drivers) == 2 and not self._restored:
            self._restored += 1
            cluster.world.after(20.0, None, cluster.fault_injector.inject, "cancel")
        elif what == "list" and self.has_ended():
            self.count += any(path.endswith(METADATA_NAME) for path in self.leftovers())


class ResumedAfterItsEnd(WithLeftovers):
    """A driver dies while it deletes what an ended job does not need any more, and another one resumes the job from
    what is left. It says that the job has ended, and changes nothing: only its fence is new in the log. (Found by a
    random seed.)"""

    rules = ("11.11",)
    options = UNALIGNED

    def __init__(self) -> None:
        super().__init__()
        self._left: dict[str, bytes] = {}

    def observe(self, what: str, who: Any, detail: Any) -> None:
        if what == "delete" and not self.count and self.has_ended():
            self.count += 1
            self.cluster.world.after(0.0, None, self._resume)

    def _resume(self) -> None:
        self.cluster.fault_injector.kill_driver_and_slots()
        self._left = dict(self.cluster.shared.objects)
        self.cluster.start_driver()

    def has_happened(self) -> bool:
        objects = self.cluster.shared.objects
        changed = [name for name, data in self._left.items() if objects.get(name) != data]
        changed += [name for name in objects.keys() - self._left.keys() if f"/{LOG_FOLDER}/" not in name]
        if self.count and changed:
            self.cluster.world.violate(f"a driver has changed the directory of a job that had ended: {sorted(changed)}")
        return self.count > 0


SCENARIOS: list[type[Scenario]] = [
    JobEndsBeforeTheNextSweep, OneObjectCannotBeDeleted, FencedDriverLeavesMetadata, ResumedAfterItsEnd,
]  # fmt: skip
