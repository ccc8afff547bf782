"""Defines the functions that read the state of a savepoint, and those that make state for one."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, Iterable, Protocol

from penstock.datastream.functions import CheckpointedFunction, Function
from penstock.datastream.state import BroadcastState, MapStateDescriptor
from penstock.datastream.timerservice import TimerService


class KeyedStateReaderFunction(Function):
    """Reads the keyed state of one operator, key by key.

    `open()` asks for the states by the descriptors that the job's function has. Registering them is what makes them
    readable: a key is visited if one of them has an entry for it.
    """

    class Context(Protocol):
        """Gives access to the timers of the current key."""

        def registered_event_time_timers(self) -> set[int]:
            """Return the times (ms) of the key's timers in event time."""

        def registered_processing_time_timers(self) -> set[int]:
            """Return the times (ms) of the key's timers in processing time."""

    @abstractmethod
    def read_key(self, key: Any, ctx: KeyedStateReaderFunction.Context) -> Iterable[Any] | None:
        """Yield the results for one key. State handles are those of this key.

        Args:
            key: The key.
            ctx: Gives access to the key's timers.
        """


class KeyedStateBootstrapFunction(Function):
    """Makes keyed state of rows. Asks for its states in `open()`, by the descriptors that the job's function has."""

    class Context(Protocol):
        """Gives access to the current key, and to its timers."""

        def timer_service(self) -> TimerService:
            """Return the service that registers timers of the current key: they fire in the job."""

        def get_current_key(self) -> Any:
            """Return the key of the row."""

    @abstractmethod
    def process_element(self, value: Any, ctx: KeyedStateBootstrapFunction.Context) -> None:
        """Change the state of the row's key.

        Args:
            value: The row.
            ctx: Gives access to the key and to timers.
        """


class StateBootstrapFunction(Function, CheckpointedFunction):
    """Makes operator state of rows: its lists are asked for in `initialize_state` and written in `snapshot_state`."""

    @abstractmethod
    def process_element(self, value: Any, ctx: Any) -> None:
        """Take a row.

        Args:
            value: The row.
            ctx: Has nothing yet.
        """


class BroadcastStateBootstrapFunction(Function):
    """Makes broadcast state of rows."""

    class Context(Protocol):
        """Gives access to broadcast state."""

        def get_broadcast_state(self, state_descriptor: MapStateDescriptor) -> BroadcastState[Any, Any]:
            """Return the broadcast state that a descriptor names."""

    @abstractmethod
    def process_element(self, value: Any, ctx: BroadcastStateBootstrapFunction.Context) -> None:
        """Change broadcast state.

        Args:
            value: The row.
            ctx: Gives access to the state.
        """
