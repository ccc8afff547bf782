"""Who is slot 3.

A slot is played by a process of the newest submission of its Spark job. Within one submission it is the attempt that
registered first and is alive; later ones (speculative copies, retries that overlap) stand by until it is lost, and
neither return nor raise. Processes of older submissions are dismissed, whenever they come.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from penstock.protocol.messages import Register


@dataclass(frozen=True)
class Joined:
    """`process` plays the slot from now on. `replaced`: who has played it so far, and is to be dismissed."""

    slot: int
    process: str
    replaced: str | None = None


@dataclass(frozen=True)
class StandsBy:
    slot: int
    process: str


@dataclass(frozen=True)
class Dismissed:
    process: str
    reason: str


@dataclass(frozen=True)
class SlotLost:
    """The process that played the slot is gone. A `Joined` follows when another one stood by."""

    slot: int
    process: str


RosterChange = Joined | StandsBy | Dismissed | SlotLost


@dataclass
class _Slot:
    newest_submission: int = -1
    current: Register | None = None
    waiting: list[Register] = field(default_factory=list)


class SlotRoster:
    def __init__(self, slots: int) -> None:
        self._slots = [_Slot() for _ in range(slots)]
        self._slot_of: dict[str, int] = {}

    @property
    def registered(self) -> int:
        return sum(slot.current is not None for slot in self._slots)

    @property
    def missing(self) -> list[int]:
        return [i for i, slot in enumerate(self._slots) if slot.current is None]

    @property
    def processes(self) -> list[str]:
        """Of all slots, those that stand by included."""
        return list(self._slot_of)

    def member(self, slot: int) -> Register | None:
        return self._slots[slot].current

    def members(self) -> list[Register]:
        return [slot.current for slot in self._slots if slot.current is not None]

    def plays(self, process: str) -> int | None:
        """The slot that the process plays; None for one that stands by or is unknown."""
        slot = self._slot_of.get(process)
        if slot is None:
            return None
        current = self._slots[slot].current
        return slot if current is not None and current.process == process else None

    def register(self, register: Register) -> list[RosterChange]:
        if not 0 <= register.slot < len(self._slots):
            return [Dismissed(register.process, f"this job has slots 0 to {len(self._slots) - 1}, not {register.slot}")]
        slot = self._slots[register.slot]
        if register.process in self._slot_of:
            return []
        if register.submission < slot.newest_submission:
            return [Dismissed(register.process, f"slot {register.slot} was submitted again meanwhile")]
        changes: list[RosterChange] = []
        replaced = None
        if register.submission > slot.newest_submission:
            slot.newest_submission = register.submission
            for older in slot.waiting:
                changes.append(self._dismiss(older))
            slot.waiting.clear()
            if slot.current is not None:
                replaced = slot.current.process
                changes.append(self._dismiss(slot.current))
                slot.current = None
        self._slot_of[register.process] = register.slot
        if slot.current is None:
            slot.current = register
            return [*changes, Joined(register.slot, register.process, replaced)]
        slot.waiting.append(register)
        return [*changes, StandsBy(register.slot, register.process)]

    def _dismiss(self, register: Register) -> Dismissed:
        self._slot_of.pop(register.process, None)
        return Dismissed(register.process, f"slot {register.slot} was submitted again meanwhile")

    def lose(self, process: str) -> list[RosterChange]:
        """The process has gone, or is given up."""
        number = self._slot_of.pop(process, None)
        if number is None:
            return []
        slot = self._slots[number]
        if slot.current is None or slot.current.process != process:
            slot.waiting = [w for w in slot.waiting if w.process != process]
            return []
        slot.current = slot.waiting.pop(0) if slot.waiting else None
        changes: list[RosterChange] = [SlotLost(number, process)]
        if slot.current is not None:
            changes.append(Joined(number, slot.current.process))
        return changes
