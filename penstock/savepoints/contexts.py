"""Gives functions that read or make state what the functions of a job get from their subtask."""

from __future__ import annotations

import time
from typing import Any

from penstock.common.configuration import Configuration
from penstock.common.options import PipelineOptions
from penstock.common.types import Types
from penstock.datastream.functions import RuntimeContext
from penstock.datastream.state import MapStateDescriptor
from penstock.datastream.timerservice import TimerService
from penstock.protocol.channel.watermark_valve import WATERMARK_MIN_MS
from penstock.protocol.values.elements import WATERMARK_MAX_MS
from penstock.protocol.values.key_encoding import decode, encode
from penstock.protocol.values.keys import key_group, key_hash, owner
from penstock.state.backend import KeyedStateBackend
from penstock.state.reading.checkpoint import EVENT_TIMERS, PROCESSING_TIMERS


class StateContext(RuntimeContext):
    """Gives a function the keyed state of one operator, in backends of several subtasks. None: it has no keys."""

    def __init__(
        self,
        operator: str,
        name: str,
        configuration: Configuration,
        max_parallelism: int,
        backends: list[KeyedStateBackend] | None = None,
    ) -> None:
        self._operator = operator
        self._name = name
        self._configuration = configuration
        self._max_parallelism = max_parallelism
        self.backends = backends
        self._handles: dict[str, _Handles] = {}
        self.current = 0
        """The subtask of the current key."""

    # ---- the current key ----------------------------------------------------------------------------------------

    def set_key(self, key: Any) -> None:
        """Make this key the current one. Raises `UnsupportedKey`."""
        assert self.backends is not None
        canonical = decode(encode(key))
        group = key_group(key_hash(key), self._max_parallelism)
        self.current = owner(group, self._max_parallelism, len(self.backends))
        self.backends[self.current].set_current_key(canonical, group)

    def current_key(self) -> Any:
        """Return the current key."""
        assert self.backends is not None
        return self.backends[self.current].current_key()

    # ---- state --------------------------------------------------------------------------------------------------

    def get_state(self, state_descriptor: Any) -> Any:
        return self._state(state_descriptor)

    get_list_state = get_map_state = get_reducing_state = get_aggregating_state = get_state

    def _state(self, descriptor: Any) -> Any:
        if self.backends is None:
            raise RuntimeError(
                f"'{self._name}' asks for state '{descriptor.get_name()}', but its rows have no key: put key_by(...) "
                "before transform(...)"
            )
        name = descriptor.get_name()
        if name not in self._handles:
            found = [backend.state(self._operator, descriptor) for backend in self.backends]
            self._handles[name] = _Handles(self, found)
        return self._handles[name]

    @property
    def registered(self) -> list[str]:
        """Return the names of the states that have been asked for."""
        return list(self._handles)

    def timers(self, name: str) -> Any:
        """Return the timers of one kind, a map by time."""
        return self._state(MapStateDescriptor(name, Types.LONG(), Types.BOOLEAN()))

    # ---- facts --------------------------------------------------------------------------------------------------

    def get_task_name(self) -> str:
        return self._name

    def get_number_of_parallel_subtasks(self) -> int:
        return 1

    def get_max_number_of_parallel_subtasks(self) -> int:
        return self._max_parallelism

    def get_index_of_this_subtask(self) -> int:
        return 0

    def get_attempt_number(self) -> int:
        return 0

    def get_task_name_with_subtasks(self) -> str:
        return f"{self._name} (1/1)"

    def get_job_parameter(self, key: str, default_value: str) -> str:
        parameters = self._configuration.get(PipelineOptions.GLOBAL_JOB_PARAMETERS)
        return dict(parameters or {}).get(key, default_value)


class _Handles:
    """Passes every call to the handle of the subtask that has the current key."""

    def __init__(self, context: StateContext, handles: list[Any]) -> None:
        self._context = context
        self._handles = handles

    def __getattr__(self, name: str) -> Any:
        return getattr(self._handles[self._context.current], name)

    def __getitem__(self, key: Any) -> Any:
        return self._handles[self._context.current][key]

    def __setitem__(self, key: Any, value: Any) -> None:
        self._handles[self._context.current][key] = value

    def __delitem__(self, key: Any) -> None:
        del self._handles[self._context.current][key]

    def __contains__(self, key: Any) -> bool:
        return key in self._handles[self._context.current]

    def __iter__(self) -> Any:
        return iter(self._handles[self._context.current])


class BootstrapContext(TimerService):
    """Gives a bootstrap function the current key, and a service that stores timers as the job's operator does."""

    def __init__(self, context: StateContext) -> None:
        self._context = context

    def timer_service(self) -> TimerService:
        """Return the service that registers timers of the current key."""
        return self

    def get_current_key(self) -> Any:
        """Return the key of the row."""
        return self._context.current_key()

    def current_processing_time(self) -> int:
        return int(time.time() * 1000)

    def current_watermark(self) -> int:
        return WATERMARK_MIN_MS

    def register_event_time_timer(self, timestamp: int) -> None:
        self._context.timers(EVENT_TIMERS).put(_checked(timestamp), True)

    def register_processing_time_timer(self, timestamp: int) -> None:
        self._context.timers(PROCESSING_TIMERS).put(_checked(timestamp), True)

    def delete_event_time_timer(self, timestamp: int) -> None:
        self._context.timers(EVENT_TIMERS).remove(_checked(timestamp))

    def delete_processing_time_timer(self, timestamp: int) -> None:
        self._context.timers(PROCESSING_TIMERS).remove(_checked(timestamp))


class ReaderContext:
    """Gives a reader function the timers of the current key. `names`: the names of the kinds of timers that the
    savepoint has."""

    def __init__(self, context: StateContext, names: frozenset[str]) -> None:
        self._timers = {name: context.timers(name) for name in sorted(names)}

    def registered_event_time_timers(self) -> set[int]:
        """Return the times of the key's timers in event time."""
        return self._of(EVENT_TIMERS)

    def registered_processing_time_timers(self) -> set[int]:
        """Return the times of the key's timers in processing time."""
        return self._of(PROCESSING_TIMERS)

    def _of(self, name: str) -> set[int]:
        return set(self._timers[name].keys()) if name in self._timers else set()


def _checked(timestamp: Any) -> int:
    if not isinstance(timestamp, int):
        raise TypeError(f"a timer's time is an int (milliseconds), got {timestamp!r:.80}")
    if not WATERMARK_MIN_MS <= timestamp <= WATERMARK_MAX_MS:
        raise ValueError(f"a timer's time (milliseconds) must fit in 64 bits, got {timestamp}")
    return timestamp
