"""Hands out splits: the enumerators of all sources of a job, in one generation.

A checkpoint's snapshot of the enumerators is taken right before its trigger is sent, and splits travel to a slot on
the connection that the trigger takes. So what was handed out before the snapshot arrives before the trigger, and what
is handed out later arrives later: every split is in the snapshot of either the enumerator or a reader.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from penstock.datastream.connectors.base import PermanentError, SplitEnumerator
from penstock.graph.job_graph import JobGraph, Operator
from penstock.protocol.values.elements import SubtaskId
from penstock.protocol.values.metadata import EnumeratorState

ASK_AGAIN_MS = 200.0

T = TypeVar("T")


class EnumeratorFailed(Exception):
    """Wraps what a source's enumerator raised. The message names the source."""

    @property
    def restartable(self) -> bool:
        return not isinstance(self.__cause__, PermanentError)


@dataclass
class _Source:
    operator: Operator
    enumerator: SplitEnumerator


class SplitDistribution:
    """Distributes the splits of one generation. `assign(subtask, splits, no_more)` sends them. Every method may raise
    `EnumeratorFailed`.
    """

    def __init__(
        self,
        graph: JobGraph,
        restored: Sequence[EnumeratorState],
        assign: Callable[[SubtaskId, list[bytes], bool], None],
    ) -> None:
        self._assign = assign
        self._waiting: dict[SubtaskId, None] = {}
        self._ask_again_ms: float | None = None
        self._sources: dict[int, _Source] = {}
        states = {state.operator: state.data for state in restored}
        for vertex in graph.vertices:
            if vertex.is_source:
                head = vertex.operators[0]
                data = states.get(head.uid)
                create = partial(head.function.create_enumerator, vertex.parallelism, data)
                enumerator = _guarded(head, create)
                self._sources[vertex.index] = _Source(head, enumerator)

    def on_requested(self, subtask: SubtaskId, now_ms: float) -> None:
        source = self._sources.get(subtask.vertex)
        if source is None:
            return
        splits = _guarded(source.operator, lambda: source.enumerator.next_splits(subtask.subtask))
        if splits is None:
            self._waiting.pop(subtask, None)
            self._assign(subtask, [], True)
        elif splits:
            self._waiting.pop(subtask, None)
            self._assign(subtask, splits, False)
        else:
            self._waiting[subtask] = None
            if self._ask_again_ms is None:
                self._ask_again_ms = now_ms + ASK_AGAIN_MS

    def next_deadline_ms(self) -> float | None:
        return self._ask_again_ms

    def on_time(self, now_ms: float) -> None:
        """Let readers that found nothing ask again."""
        if self._ask_again_ms is None or self._ask_again_ms > now_ms:
            return
        self._ask_again_ms = None
        for subtask in list(self._waiting):
            self.on_requested(subtask, now_ms)

    def snapshot(self) -> list[EnumeratorState]:
        return [
            EnumeratorState(s.operator.uid, _guarded(s.operator, s.enumerator.snapshot)) for s in self._sources.values()
        ]


def _guarded(operator: Operator, call: Callable[[], T]) -> T:
    try:
        return call()
    except Exception as error:
        raise EnumeratorFailed(
            f"the enumerator of source '{operator.name}', which lists what to read, failed: "
            f"{type(error).__name__}: {error}"
        ) from error
