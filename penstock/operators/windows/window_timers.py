"""Keeps the timers of windows: which windows of a key each timer of the key is for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from penstock.datastream.state import MapState


class WindowTimers:
    """Keeps the timers of one kind of time. `state`: time -> the windows of the current key, as state names them, in
    the order of registration. `register` and `delete` are those of the key's timers.
    """

    def __init__(
        self, state: MapState[int, list[Any]], register: Callable[[int], None], delete: Callable[[int], None]
    ) -> None:
        self._state = state
        self._register = register
        self._delete = delete

    def register(self, time_ms: int, window: Any) -> None:
        """Register a timer; a registered one stays as it is."""
        windows = self._state.get(time_ms)
        if windows is None:
            self._state.put(time_ms, [window])
            self._register(time_ms)
        elif window not in windows:
            self._state.put(time_ms, [*windows, window])

    def delete(self, time_ms: int, window: Any) -> bool:
        """Delete a timer; a missing one is no error. Returns whether it was there."""
        windows = self._state.get(time_ms)
        if windows is None or window not in windows:
            return False
        self._keep(time_ms, [w for w in windows if w != window])
        if len(windows) == 1:
            self._delete(time_ms)
        return True

    def take(self, time_ms: int) -> Any | None:
        """Remove the first timer of a time and return its window; None: there is none."""
        windows = self._state.get(time_ms)
        if windows is None:
            return None
        self._keep(time_ms, windows[1:])
        return windows[0]

    def _keep(self, time_ms: int, windows: list[Any]) -> None:
        if windows:
            self._state.put(time_ms, windows)
        else:
            self._state.remove(time_ms)

    def all(self) -> list[tuple[int, Any]]:
        """Return all timers of the current key with their windows, in the order of their times."""
        return [
            (time_ms, window) for time_ms in sorted(self._state.keys()) for window in self._state.get(time_ms) or ()
        ]

    def has(self, time_ms: int) -> bool:
        """Return whether the current key has a timer of this time."""
        return self._state.contains(time_ms)

    def is_empty(self) -> bool:
        """Return whether the current key has no timer."""
        return self._state.is_empty()
