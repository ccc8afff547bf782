"""Defines the forms in which state names windows: values of a type that state can have as a key."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from io import BytesIO
from typing import Any

from penstock.common.serializer import TypeSerializer
from penstock.common.types import Types
from penstock.datastream._windows.window_assigners import MergingWindowAssigner, WindowAssigner
from penstock.datastream._windows.window_kinds import (
    CountWindow,
    CountWindowSerializer,
    GlobalWindow,
    GlobalWindowSerializer,
    TimeWindow,
    TimeWindowSerializer,
)
from penstock.operators.windows.assigners.assigner import Assigner, MergingAssigner


class WindowForm(ABC):
    """Turns windows into the keys that state has in their place, and back. It is pickled with the program."""

    type: Any
    """The type of these keys."""

    @abstractmethod
    def key_of(self, window: Any) -> Any:
        """Return the key of a window. Equal windows have equal keys."""

    @abstractmethod
    def window_of(self, key: Any) -> Any:
        """Return the window of a key."""


@dataclass(frozen=True)
class StartForm(WindowForm):
    """Names the windows that arithmetic finds by their starts, as the operators for these windows do."""

    rule: Assigner

    type = Types.LONG()

    def key_of(self, window: TimeWindow) -> int:
        return window.start

    def window_of(self, key: int) -> TimeWindow:
        return TimeWindow(key, self.rule.end_of(key))


@dataclass(frozen=True)
class TimeForm(WindowForm):
    """Names windows by start and end."""

    type = Types.TUPLE([Types.LONG(), Types.LONG()])

    def key_of(self, window: TimeWindow) -> tuple[int, int]:
        return window.start, window.end

    def window_of(self, key: tuple[int, int]) -> TimeWindow:
        return TimeWindow(*key)


@dataclass(frozen=True)
class CountForm(WindowForm):
    """Names windows of numbers of rows by their ids."""

    type = Types.LONG()

    def key_of(self, window: CountWindow) -> int:
        return window.id

    def window_of(self, key: int) -> CountWindow:
        return CountWindow(key)


@dataclass(frozen=True)
class GlobalForm(WindowForm):
    """Names the only window of each key 0."""

    type = Types.LONG()

    def key_of(self, window: GlobalWindow) -> int:
        return 0

    def window_of(self, key: int) -> GlobalWindow:
        return GlobalWindow()


@dataclass(frozen=True)
class SerializedForm(WindowForm):
    """Names windows of a program's own by the bytes of their serializer."""

    serializer: TypeSerializer[Any]

    type = Types.PRIMITIVE_ARRAY(Types.BYTE())

    def key_of(self, window: Any) -> bytes:
        stream = BytesIO()
        self.serializer.serialize(window, stream)
        return stream.getvalue()

    def window_of(self, key: bytes) -> Any:
        return self.serializer.deserialize(BytesIO(key))


_FORMS: dict[type, WindowForm] = {
    TimeWindowSerializer: TimeForm(),
    CountWindowSerializer: CountForm(),
    GlobalWindowSerializer: GlobalForm(),
}


def rule_of(assigner: WindowAssigner[Any, Any]) -> Assigner | MergingAssigner | None:
    """Return the rule of an assigner's windows; None if the program says itself to which windows a row belongs."""
    methods: list[Any] = [type(assigner).assign_windows]
    if isinstance(assigner, MergingWindowAssigner):
        methods.append(type(assigner).merge_windows)
    ours = WindowAssigner.__module__.rpartition(".")[0]
    if not all(method.__module__.startswith(ours) for method in methods):
        return None
    return assigner._assigner()


def form_of(assigner: WindowAssigner[Any, Any]) -> WindowForm:
    """Return the form in which state names an assigner's windows. Raises TypeError for a serializer that is none."""
    rule = rule_of(assigner)
    if isinstance(rule, Assigner):
        return StartForm(rule)
    serializer = assigner.get_window_serializer()
    if not isinstance(serializer, TypeSerializer):
        raise TypeError(
            f"{type(assigner).__name__}.get_window_serializer() returns a TypeSerializer, e.g. TimeWindowSerializer(); "
            f"got {serializer!r}"
        )
    return _FORMS.get(type(serializer)) or SerializedForm(serializer)
