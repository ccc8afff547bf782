"""Makes the lines of a run's trace: what they are about, how they are printed, and which of them tell a story.

A trace has three columns: the time in ms since the world began, who it happens to, and what happens. Who is a process
(`d0`: driver 0; `d0s3.1.0`: the process of its slot 3, submission 1, attempt 0), or one of `keeper` (starts
processes), `spark` (places for tasks), `log` (the job's log), `output` (what sinks commit), `user` (resumes the job),
FAULT and CHECK (a violation). docs/internals/testing.md lists what happens.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from penstock.protocol.values.frames import CreditLimit, Frame
from penstock.protocol.values.messages import Deploy, Message, SlotAck
from penstock.storage.layout import MetadataName, SegmentName, parse
from penstock.storage.metadata_file import decode_metadata

HEADER = f"{'time ms':>10} {'process':<12} what"


class About(NamedTuple):
    """Names the subject of a line. `subtasks`: (vertex, subtask). `everyone`: it belongs to every story."""

    checkpoints: tuple[int, ...] = ()
    subtasks: tuple[tuple[int, int], ...] = ()
    everyone: bool = False


NOTHING = About()
EVERYONE = About(everyone=True)


@dataclass(frozen=True, slots=True)
class TraceLine:
    """Describes an event, with its time and its subject."""

    at_ms: float
    process: str
    what: str
    about: About = NOTHING

    def __str__(self) -> str:
        return f"{self.at_ms:10.3f} {self.process:<12} {self.what}"


def about_message(message: Message) -> About:
    """Return the checkpoints and subtasks that a message names."""
    if isinstance(message, Deploy):
        restored = restored_checkpoint(message)
        return About(() if restored is None else (restored,), everyone=True)
    checkpoints = _checkpoints_of(message)
    if isinstance(message, SlotAck):
        return About(checkpoints, tuple((s.vertex, s.subtask) for s in message.subtasks))
    subtask = getattr(message, "subtask", None)
    return About(checkpoints, (tuple(subtask),) if isinstance(subtask, tuple) else ())


def restored_checkpoint(deploy: Deploy) -> int | None:
    """Return the checkpoint that a deployment restores; None where it starts from scratch."""
    return None if deploy.restore is None else decode_metadata(deploy.restore, "a deployment").checkpoint_id


def about_frame(frame: Frame, edges: Sequence[tuple[int, int]]) -> About:
    """Return the checkpoint of a barrier, and the subtask that a frame arrives at. `edges`: (source, target)."""
    edge, producer, consumer = frame.channel
    if edge >= len(edges):
        return About(_checkpoints_of(frame))
    source, target = edges[edge]
    end = (source, producer) if isinstance(frame, CreditLimit) else (target, consumer)
    return About(_checkpoints_of(frame), (end,))


def about_object(path: str) -> About:
    """Return the checkpoint that an object of the job's directory belongs to."""
    found = parse(path)
    return About((found.checkpoint_id,)) if isinstance(found, (SegmentName, MetadataName)) else NOTHING


def _checkpoints_of(what: Any) -> tuple[int, ...]:
    barrier = getattr(what, "barrier", None)
    checkpoint_id = getattr(what if barrier is None else barrier, "checkpoint_id", None)
    return (checkpoint_id,) if checkpoint_id is not None else tuple(getattr(what, "checkpoints", ()))


class Story(NamedTuple):
    """Selects the lines of a checkpoint, of a vertex's subtasks or of a process. None: of any."""

    checkpoint: int | None = None
    vertex: int | None = None
    subtask: int | None = None
    process: str | None = None

    def tells(self, line: TraceLine) -> bool:
        """Return whether the line belongs to the story. Faults and violations always do; so does what happens to the
        whole job (deployments, kills, a driver's start), unless a process is asked for."""
        if line.process in ("FAULT", "CHECK"):
            return True
        if self.process is not None and not f"{line.process}.".startswith(f"{self.process}."):
            return False
        about = line.about
        if about.everyone:
            return True
        if self.checkpoint is not None and self.checkpoint not in about.checkpoints:
            return False
        if self.vertex is None and self.subtask is None:
            return True
        if not about.subtasks:
            # The coordinator's part of a checkpoint is everybody's; other lines without a subtask are nobody's.
            return self.checkpoint is not None
        return any(
            self.vertex in (None, vertex) and self.subtask in (None, subtask) for vertex, subtask in about.subtasks
        )


def parse_story(words: Iterable[str]) -> Story:
    """Return the story that words like `checkpoint=17` ask for.

    Raises: ValueError: a word asks for something else."""
    asked: dict[str, Any] = {}
    for word in words:
        name, equals, value = word.partition("=")
        if not equals or name not in Story._fields or not (name == "process" or value.isdecimal()):
            raise ValueError(
                f"{word}: write checkpoint=N, vertex=N, subtask=N (from 0) or process=NAME, for example "
                "checkpoint=17 subtask=3"
            )
        asked[name] = value if name == "process" else int(value)
    return Story(**asked)
