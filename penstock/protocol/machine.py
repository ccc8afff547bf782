"""Gives the protocol's machines what they have in common: tables of transitions that hold, and a story.

A machine is a function of its events: `handle(event, now_ms)` returns effects, and nothing else goes in or out. Its
table says for every state which events may come, what they do, and which states may follow. The machine checks each
event against its table, so the table cannot drift from the code: an event that it does not have, or a state that it
does not name, raises `IllegalEvent`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from functools import partial
from typing import Generic, TypeVar


class MachineState(Enum):
    """Lists a machine's states. Tables find members by identity, which costs a tenth of the hash of their names."""

    __hash__ = object.__hash__


State = TypeVar("State", bound=MachineState)

STORY_LINES_MAX = 64
"""The number of its newest events that a machine remembers."""
STORY_LINES_SHOWN = 20
"""The number of its newest events that an error of a machine shows."""


class IllegalEvent(Exception):
    """Signals an event that the machine's table does not list for its state, or a state that the table does not name
    afterwards. It means a defect of ours, or of the other end of a connection.
    """

    def __init__(self, machine: str, state: str, event: str, story: Story, detail: str = "cannot come then") -> None:
        self.machine = machine
        self.state = state
        self.event = event
        super().__init__(f"{machine} is {state}, and the event '{event}' {detail}")
        story.add_to(self)


@dataclass(frozen=True)
class Cell(Generic[State]):
    """Describes one entry of a table. `does`: what the event does, in words. `to`: the states that may follow."""

    does: str
    to: tuple[State, ...]


class Table(Generic[State]):
    """Lists the legal events of a machine. `rows`: event -> state -> cell; what is missing is illegal. Only `step`
    checks a machine against its table.
    """

    def __init__(self, machine: str, rows: Mapping[str, Mapping[State, Cell[State]]]) -> None:
        self.machine = machine
        self.rows = rows

    def markdown(self) -> str:
        """Return the table as documents show it: a row for each event, a column for each state."""
        used = {state for cells in self.rows.values() for state in cells}
        states = [state for state in type(next(iter(used))) if state in used]
        lines = [
            "| event | " + " | ".join(str(state.value) for state in states) + " |",
            "|---" * (len(states) + 1) + "|",
        ]
        for event, cells in self.rows.items():
            told = [_told(cells[state], state) if state in cells else "–" for state in states]
            lines.append(f"| {event} | " + " | ".join(told) + " |")
        return "\n".join(lines)


def _told(cell: Cell[State], state: State) -> str:
    others = [str(to.value) for to in cell.to if to is not state]
    return f"{cell.does} → {', '.join(others)}" if others else cell.does


@dataclass(frozen=True)
class StoryEvent:
    """Records one event of a machine for its story. `cause`: where the event came from. `at_ms` None: the machine knows
    no time.
    """

    at_ms: float | None
    cause: str
    event: str
    before: str
    after: str
    effects: tuple[str, ...]

    def __str__(self) -> str:
        became = self.after if self.before == self.after else f"{self.before} → {self.after}"
        effects = f": {', '.join(self.effects)}" if self.effects else ""
        at = "" if self.at_ms is None else f"{self.at_ms:.1f} ms  "
        return f"{at}{self.event} ({self.cause})  {became}{effects}"


class Story:
    """Remembers the newest events of a machine, so that an error can show what led to it. `add` takes a function that
    describes an event: most events are never read.
    """

    def __init__(self, lines_max: int = STORY_LINES_MAX) -> None:
        self._told: deque[Callable[[], StoryEvent]] = deque(maxlen=lines_max)
        self.add = self._told.append

    @property
    def newest(self) -> Callable[[], StoryEvent] | None:
        """Return the description of the newest event, as a function; None before the first."""
        return self._told[-1] if self._told else None

    def __iter__(self) -> Iterator[StoryEvent]:
        return iter([tell() for tell in self._told])

    def text(self, lines_max: int = STORY_LINES_MAX) -> str:
        """Describe the newest events, one in a line, the newest at the end."""
        return "\n".join([str(tell()) for tell in list(self._told)[-lines_max:]])

    def add_to(self, error: Exception) -> None:
        """Add the newest events to an error. As a note: tracebacks show it, and the summary stays one line."""
        if self._told:
            error.add_note(f"The newest events before, the last one at the end:\n{self.text(STORY_LINES_SHOWN)}")


Effect = TypeVar("Effect")


def step(
    table: Table[State],
    story: Story,
    event: str,
    cause: str,
    now_ms: float | None,
    state: Callable[[], State],
    decide: Callable[[], list[Effect]],
    who: str = "",
    remembers: bool = True,
) -> list[Effect]:
    """Let a machine decide about an event: check the event and what follows against its table, and remember it in its
    story if anything came of it. It is the only way to check a table. Raises `IllegalEvent`.

    `state` returns the machine's state, before and after. `who` distinguishes it from others that have this table.
    `remembers` False: a machine around it tells the story. Returns the effects of `decide`.
    """
    before, cells = state(), table.rows[event]
    if before not in cells:
        raise IllegalEvent(f"{table.machine}{who}", str(before.value), event, story)
    effects = decide()
    after = state()
    if after not in cells[before].to:
        detail = f"must not lead to '{after.value}'"
        raise IllegalEvent(f"{table.machine}{who}", str(before.value), event, story, detail)
    if remembers and (effects or after is not before):
        story.add(partial(told, now_ms, cause, f"{event}{who}", before, after, tuple(map(type, effects))))
    return effects


def told(
    at_ms: float | None, cause: str, event: str, before: MachineState, after: MachineState, effects: tuple[type, ...]
) -> StoryEvent:
    """Return an event for a story. `effects`: their types."""
    return StoryEvent(at_ms, cause, event, str(before.value), str(after.value), tuple(e.__name__ for e in effects))
