"""Defines keyed and broadcast state: the descriptors that name it, and the handles that read and write it.

A descriptor may give entries a time to live (`StateTtlConfig`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from enum import Enum
from typing import Any, Callable, Generic, Iterable, Iterator, TypeAlias, TypeVar

from penstock.common.time import Duration, Time
from penstock.common.typeinfo import TypeInformation

__all__ = [
    "AggregatingState", "AggregatingStateDescriptor", "AppendingState", "BroadcastState", "ListState", "StateTtlConfig",
    "ListStateDescriptor", "MapState", "MapStateDescriptor", "MergingState", "ReadOnlyBroadcastState", "ReducingState",
    "ReducingStateDescriptor", "State", "StateDescriptor", "ValueState", "ValueStateDescriptor",
]  # fmt: skip

T = TypeVar("T")
K = TypeVar("K")
V = TypeVar("V")
IN = TypeVar("IN")
OUT = TypeVar("OUT")


class State(ABC):
    """Holds a value of any shape for each key. Every method reads or writes that of the current key."""

    @abstractmethod
    def clear(self) -> None:
        """Remove the value of the current key."""


class ValueState(State, Generic[T]):
    """Holds a single value per key."""

    @abstractmethod
    def value(self) -> T | None:
        """Return the value, or None if there is none."""

    @abstractmethod
    def update(self, value: T) -> None:
        """Set the value.

        Args:
            value: The value. None is the same as `clear()`.
        """


class AppendingState(State, Generic[IN, OUT]):
    """Holds values that are added."""

    @abstractmethod
    def get(self) -> OUT:
        """Return the aggregate of the added values."""

    @abstractmethod
    def add(self, value: IN) -> None:
        """Add a value.

        Args:
            value: The value.
        """


class MergingState(AppendingState[IN, OUT]):
    """Holds values that are added, as `AppendingState` does."""


class ReducingState(MergingState[T, T]):
    """Holds the value that all added values reduce to. `get()` returns None if none was added."""


class AggregatingState(MergingState[IN, OUT]):
    """Holds the aggregate of all added values. `get()` returns None if none was added."""


class ListState(MergingState[T, Iterable[T]]):
    """Holds a list per key. `get()` returns an iterable, which is empty if there are no values; `add()` appends one."""

    @abstractmethod
    def update(self, values: list[T]) -> None:
        """Replace the list.

        Args:
            values: The new values.
        """

    @abstractmethod
    def add_all(self, values: list[T]) -> None:
        """Append several values.

        Args:
            values: The values.
        """

    def __iter__(self) -> Iterator[T]:
        return iter(self.get())


class MapState(State, Generic[K, V]):
    """Holds a map per key. It can be used like a dict: `state[k]`, `state[k] = v`, `del state[k]`, `k in state`."""

    @abstractmethod
    def get(self, key: K) -> V | None:
        """Return the value of an entry. `state[key]` does the same.

        Args:
            key: The key of the entry.

        Returns:
            The value, or None if there is no entry.
        """

    @abstractmethod
    def put(self, key: K, value: V) -> None:
        """Set the value of an entry.

        Args:
            key: The key of the entry.
            value: The value.
        """

    @abstractmethod
    def put_all(self, dict_value: dict[K, V]) -> None:
        """Set the values of several entries.

        Args:
            dict_value: The values by key.
        """

    @abstractmethod
    def remove(self, key: K) -> None:
        """Remove an entry, if there is one.

        Args:
            key: The key of the entry.
        """

    @abstractmethod
    def contains(self, key: K) -> bool:
        """Test whether there is an entry.

        Args:
            key: The key of the entry.

        Returns:
            True if there is one.
        """

    @abstractmethod
    def items(self) -> Iterable[tuple[K, V]]:
        """Return the entries as (key, value)."""

    @abstractmethod
    def keys(self) -> Iterable[K]:
        """Return the keys of the entries."""

    @abstractmethod
    def values(self) -> Iterable[V]:
        """Return the values of the entries."""

    @abstractmethod
    def is_empty(self) -> bool:
        """Return True if there are no entries."""

    def __getitem__(self, key: K) -> V | None:
        return self.get(key)

    def __setitem__(self, key: K, value: V) -> None:
        self.put(key, value)

    def __delitem__(self, key: K) -> None:
        self.remove(key)

    def __contains__(self, key: K) -> bool:
        return self.contains(key)

    def __iter__(self) -> Iterator[K]:
        return iter(self.keys())


class ReadOnlyBroadcastState(State, Generic[K, V]):
    """Holds a map that every subtask has, and that belongs to no key. A call that would change it raises `StateError`.

    It can be read like a dict: `state[k]`, `k in state`. Values that it returns must not be changed.
    """

    @abstractmethod
    def get(self, key: K) -> V | None:
        """Return the value of an entry, or None if there is no entry. `state[key]` does the same.

        Args:
            key: The key of the entry.

        Returns:
            The value, or None.
        """

    @abstractmethod
    def contains(self, key: K) -> bool:
        """Test whether there is an entry.

        Args:
            key: The key of the entry.

        Returns:
            True if there is one.
        """

    @abstractmethod
    def items(self) -> Iterable[tuple[K, V]]:
        """Return the entries as (key, value)."""

    @abstractmethod
    def keys(self) -> Iterable[K]:
        """Return the keys of the entries."""

    @abstractmethod
    def values(self) -> Iterable[V]:
        """Return the values of the entries."""

    @abstractmethod
    def is_empty(self) -> bool:
        """Return True if there are no entries."""

    def __getitem__(self, key: K) -> V | None:
        return self.get(key)

    def __contains__(self, key: K) -> bool:
        return self.contains(key)

    def __iter__(self) -> Iterator[K]:
        return iter(self.keys())


class BroadcastState(ReadOnlyBroadcastState[K, V]):
    """Holds a map that every subtask has, and that belongs to no key. It can be changed like a dict, too."""

    @abstractmethod
    def put(self, key: K, value: V) -> None:
        """Set the value of an entry.

        Args:
            key: The key of the entry.
            value: The value.
        """

    @abstractmethod
    def put_all(self, dict_value: dict[K, V]) -> None:
        """Set the values of several entries.

        Args:
            dict_value: The values by key.
        """

    @abstractmethod
    def remove(self, key: K) -> None:
        """Remove an entry, if there is one.

        Args:
            key: The key of the entry.
        """

    def __setitem__(self, key: K, value: V) -> None:
        self.put(key, value)

    def __delitem__(self, key: K) -> None:
        self.remove(key)


class TtlCleanupStrategies:
    """Describes the removal of expired entries, besides those that are read."""

    class Strategies(Enum):
        """Lists the strategies."""

        FULL_STATE_SCAN_SNAPSHOT = 0
        INCREMENTAL_CLEANUP = 1
        ROCKSDB_COMPACTION_FILTER = 2

    class CleanupStrategy:
        """Holds the settings of a strategy."""

    class EmptyCleanupStrategy(CleanupStrategy):
        """Has no settings."""

    class IncrementalCleanupStrategy(CleanupStrategy):
        """Looks at some entries of state in memory for each access to it."""

        def __init__(self, cleanup_size: int, run_cleanup_for_every_record: bool) -> None:
            if not isinstance(cleanup_size, int) or cleanup_size < 1:
                raise ValueError(f"cleanup_size is a number of entries, 1 or more, not {cleanup_size!r}")
            self._cleanup_size = cleanup_size
            self._run_cleanup_for_every_record = bool(run_cleanup_for_every_record)

        def get_cleanup_size(self) -> int:
            """Return the number of entries that a cleanup looks at."""
            return self._cleanup_size

        def run_cleanup_for_every_record(self) -> bool:
            """Return whether rows that do not use the state count as accesses, too."""
            return self._run_cleanup_for_every_record

    class RocksdbCompactFilterCleanupStrategy(CleanupStrategy):
        """Looks at two entries of state in RocksDB for each access to it. The settings have no effect."""

        def __init__(self, query_time_after_num_entries: int, periodic_compaction_time: Any = None) -> None:
            self._query_time_after_num_entries = query_time_after_num_entries
            self._periodic_compaction_time = (
                Duration.of_days(30) if periodic_compaction_time is None else periodic_compaction_time
            )

        def get_query_time_after_num_entries(self) -> int:
            """Return the number of entries that `cleanup_in_rocksdb_compact_filter` was given."""
            return self._query_time_after_num_entries

        def get_periodic_compaction_time(self) -> Duration:
            """Return the time that `cleanup_in_rocksdb_compact_filter` was given, or 30 days."""
            found: Duration = self._periodic_compaction_time
            return found

    EMPTY_STRATEGY = EmptyCleanupStrategy()

    def __init__(self, strategies: dict[Strategies, CleanupStrategy], is_cleanup_in_background: bool) -> None:
        self._strategies: dict[TtlCleanupStrategies.Strategies, Any] = dict(strategies)
        self._is_cleanup_in_background = is_cleanup_in_background

    def is_cleanup_in_background(self) -> bool:
        """Return whether backends clean up as they do by default."""
        return self._is_cleanup_in_background

    def in_full_snapshot(self) -> bool:
        """Return whether expired entries are left out of full snapshots."""
        return self.Strategies.FULL_STATE_SCAN_SNAPSHOT in self._strategies

    def get_incremental_cleanup_strategy(self) -> IncrementalCleanupStrategy | None:
        """Return the cleanup of state in memory; None: only what is read."""
        found: TtlCleanupStrategies.IncrementalCleanupStrategy | None
        found = self._strategies.get(self.Strategies.INCREMENTAL_CLEANUP)
        if found is None and self._is_cleanup_in_background:
            return self.IncrementalCleanupStrategy(5, False)
        return found

    def get_rocksdb_compact_filter_cleanup_strategy(self) -> RocksdbCompactFilterCleanupStrategy | None:
        """Return the cleanup of state in RocksDB; None: only what is read."""
        found: TtlCleanupStrategies.RocksdbCompactFilterCleanupStrategy | None
        found = self._strategies.get(self.Strategies.ROCKSDB_COMPACTION_FILTER)
        if found is None and self._is_cleanup_in_background:
            return self.RocksdbCompactFilterCleanupStrategy(1000)
        return found


class TtlConfigBuilder:
    """Builds a `StateTtlConfig`."""

    def __init__(self, ttl: Time | Duration) -> None:
        self._ttl = ttl
        self._update_type = StateTtlConfig.UpdateType.OnCreateAndWrite
        self._state_visibility = StateTtlConfig.StateVisibility.NeverReturnExpired
        self._ttl_time_characteristic = StateTtlConfig.TtlTimeCharacteristic.ProcessingTime
        self._is_cleanup_in_background = True
        self._strategies: dict[Any, Any] = {}

    def set_update_type(self, update_type: StateTtlConfig.UpdateType) -> TtlConfigBuilder:
        """Set the kind of access that prolongs the life of an entry.

        Args:
            update_type: `OnCreateAndWrite` (default), `OnReadAndWrite` or `Disabled`.
        """
        self._update_type = StateTtlConfig.UpdateType(update_type)
        return self

    def update_ttl_on_create_and_write(self) -> TtlConfigBuilder:
        """Let writes prolong the life of an entry. Returns the builder."""
        return self.set_update_type(StateTtlConfig.UpdateType.OnCreateAndWrite)

    def update_ttl_on_read_and_write(self) -> TtlConfigBuilder:
        """Let reads and writes prolong the life of an entry. Returns the builder."""
        return self.set_update_type(StateTtlConfig.UpdateType.OnReadAndWrite)

    def set_state_visibility(self, state_visibility: StateTtlConfig.StateVisibility) -> TtlConfigBuilder:
        """Set whether an expired entry that is still there can be read.

        Args:
            state_visibility: `NeverReturnExpired` (default) or `ReturnExpiredIfNotCleanedUp`.
        """
        self._state_visibility = StateTtlConfig.StateVisibility(state_visibility)
        return self

    def return_expired_if_not_cleaned_up(self) -> TtlConfigBuilder:
        """Let an expired entry that is still there be read, for the last time. Returns the builder."""
        return self.set_state_visibility(StateTtlConfig.StateVisibility.ReturnExpiredIfNotCleanedUp)

    def never_return_expired(self) -> TtlConfigBuilder:
        """Let no expired entry be read. Returns the builder."""
        return self.set_state_visibility(StateTtlConfig.StateVisibility.NeverReturnExpired)

    def set_ttl_time_characteristic(
        self, ttl_time_characteristic: StateTtlConfig.TtlTimeCharacteristic
    ) -> TtlConfigBuilder:
        """Set the clock by which entries expire.

        Args:
            ttl_time_characteristic: `ProcessingTime`; there is no other.
        """
        self._ttl_time_characteristic = StateTtlConfig.TtlTimeCharacteristic(ttl_time_characteristic)
        return self

    def use_processing_time(self) -> TtlConfigBuilder:
        """Use processing time, as without this call. Returns the builder."""
        return self.set_ttl_time_characteristic(StateTtlConfig.TtlTimeCharacteristic.ProcessingTime)

    def cleanup_full_snapshot(self) -> TtlConfigBuilder:
        """Leave expired entries out of savepoints, and of checkpoints that store everything. Returns the builder."""
        strategies = TtlCleanupStrategies
        self._strategies[strategies.Strategies.FULL_STATE_SCAN_SNAPSHOT] = strategies.EMPTY_STRATEGY
        return self

    def cleanup_incrementally(self, cleanup_size: int, run_cleanup_for_every_record: bool) -> TtlConfigBuilder:
        """Look at some more entries for each access to the state, and remove the expired ones; with state in memory.

        Args:
            cleanup_size: How many entries for each access. By default it is 5.
            run_cleanup_for_every_record: Whether rows that do not use the state count as accesses, too.

        Raises:
            ValueError: `cleanup_size` is less than 1.
        """
        strategies = TtlCleanupStrategies
        settings = strategies.IncrementalCleanupStrategy(cleanup_size, run_cleanup_for_every_record)
        self._strategies[strategies.Strategies.INCREMENTAL_CLEANUP] = settings
        return self

    def cleanup_in_rocksdb_compact_filter(
        self, query_time_after_num_entries: int, periodic_compaction_time: Duration | None = None
    ) -> TtlConfigBuilder:
        """Look at two more entries for each access to the state, and remove the expired ones; with state in RocksDB.

        It is done between two slices of rows, not by a compaction, so the arguments have no effect.

        Args:
            query_time_after_num_entries: A number of entries.
            periodic_compaction_time: A duration.
        """
        strategies = TtlCleanupStrategies
        settings = strategies.RocksdbCompactFilterCleanupStrategy(
            query_time_after_num_entries, periodic_compaction_time
        )
        self._strategies[strategies.Strategies.ROCKSDB_COMPACTION_FILTER] = settings
        return self

    def disable_cleanup_in_background(self) -> TtlConfigBuilder:
        """Turn off the default cleanup.

        Expired entries are still removed when they are read, and by the strategies that other calls add.
        """
        self._is_cleanup_in_background = False
        return self

    def set_ttl(self, ttl: Time | Duration) -> TtlConfigBuilder:
        """Set the time to live of entries.

        Args:
            ttl: The time to live.
        """
        self._ttl = ttl
        return self

    def build(self) -> StateTtlConfig:
        """Return the config.

        Raises:
            TypeError: The time to live is neither a `Time` nor a `Duration`.
            ValueError: It is less than a millisecond.
        """
        strategies = TtlCleanupStrategies(self._strategies, self._is_cleanup_in_background)
        return StateTtlConfig(
            self._update_type, self._state_visibility, self._ttl_time_characteristic, self._ttl, strategies
        )


class StateTtlConfig:
    """Sets the time to live of a state's entries after their last use, in processing time.

    A list's elements and a map's entries live each on its own. Make one with `StateTtlConfig.new_builder(ttl)`, and
    give it to a descriptor's `enable_time_to_live`.

    Example:
        config = StateTtlConfig.new_builder(Time.hours(1)).update_ttl_on_read_and_write().build()
        descriptor = ValueStateDescriptor("last login", Types.LONG())
        descriptor.enable_time_to_live(config)
    """

    class UpdateType(Enum):
        """Names the kind of access that prolongs the life of an entry. `Disabled`: the state has no time to live."""

        Disabled = 0
        OnCreateAndWrite = 1
        OnReadAndWrite = 2

    class StateVisibility(Enum):
        """Says whether an expired entry that is still there can be read."""

        ReturnExpiredIfNotCleanedUp = 0
        NeverReturnExpired = 1

    class TtlTimeCharacteristic(Enum):
        """Names the clock by which entries get old. There is only processing time."""

        ProcessingTime = 0

    CleanupStrategies: TypeAlias = TtlCleanupStrategies
    Builder: TypeAlias = TtlConfigBuilder

    def __init__(
        self,
        update_type: UpdateType,
        state_visibility: StateVisibility,
        ttl_time_characteristic: TtlTimeCharacteristic,
        ttl: Time | Duration,
        cleanup_strategies: TtlCleanupStrategies,
    ) -> None:
        if not isinstance(ttl, (Time, Duration)):
            raise TypeError(f"a time to live is a Time or a Duration, e.g. Time.hours(1); got {ttl!r}")
        if _milliseconds(ttl) < 1:
            raise ValueError(f"a time to live is at least 1 ms, got {_milliseconds(ttl)} ms")
        self._update_type = update_type
        self._state_visibility = state_visibility
        self._ttl_time_characteristic = ttl_time_characteristic
        self._ttl = ttl
        self._cleanup_strategies = cleanup_strategies

    @staticmethod
    def new_builder(ttl: Time | Duration) -> TtlConfigBuilder:
        """Begin a config. Without further calls only writes prolong the life of an entry, and expired ones are hidden.

        Args:
            ttl: How long entries live.

        Returns:
            The builder.
        """
        return TtlConfigBuilder(ttl)

    def get_update_type(self) -> UpdateType:
        """Return the kind of access that prolongs the life of an entry."""
        return self._update_type

    def get_state_visibility(self) -> StateVisibility:
        """Return whether an expired entry that is still there can be read."""
        return self._state_visibility

    def get_ttl(self) -> Time | Duration:
        """Return the time to live, as it was given."""
        return self._ttl

    def get_ttl_time_characteristic(self) -> TtlTimeCharacteristic:
        """Return the clock by which entries get old."""
        return self._ttl_time_characteristic

    def is_enabled(self) -> bool:
        """Return whether the state has a time to live: the update type is not `Disabled`."""
        return self._update_type is not StateTtlConfig.UpdateType.Disabled

    def get_cleanup_strategies(self) -> TtlCleanupStrategies:
        """Return the cleanup of expired entries."""
        return self._cleanup_strategies

    def __repr__(self) -> str:
        return (
            f"StateTtlConfig<update_type={self._update_type}, state_visibility={self._state_visibility}, "
            f"ttl_time_characteristic={self._ttl_time_characteristic}, ttl={self._ttl}>"
        )


def _milliseconds(ttl: Time | Duration) -> int:
    """Return a time to live in whole milliseconds."""
    return ttl.to_milliseconds() if isinstance(ttl, Time) else ttl.to_millis()


class StateDescriptor:
    """Names a state, and describes its values.

    The name is unique within the operator. State is restored by the operator's uid and this name. A type of None:
    values are pickled. `kind` is "value", "list", "map", "reducing" or "aggregating", as in a checkpoint's metadata.
    """

    kind: str = ""

    def __init__(self, name: str, type_info: TypeInformation | None) -> None:
        if not isinstance(name, str) or not name:
            raise TypeError(f"a state's name is a non-empty string, got {name!r}")
        if type_info is not None and not isinstance(type_info, TypeInformation):
            raise TypeError(f"the type of state {name!r} is made by Types, e.g. Types.LONG(); got {type_info!r}")
        self.name, self.type_info = name, type_info
        self.ttl_config: StateTtlConfig | None = None

    def get_name(self) -> str:
        """Return the name of the state."""
        return self.name

    def enable_time_to_live(self, ttl_config: StateTtlConfig) -> None:
        """Let entries of the state expire. Call it before the state is asked for.

        Args:
            ttl_config: Made by `StateTtlConfig.new_builder(ttl)`.

        Raises:
            TypeError: It is not a `StateTtlConfig`.
        """
        if not isinstance(ttl_config, StateTtlConfig):
            raise TypeError(f"state {self.name!r}: StateTtlConfig.new_builder(ttl).build() wanted, got {ttl_config!r}")
        self.ttl_config = ttl_config

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r}, {self.type_info})"


class ValueStateDescriptor(StateDescriptor):
    """Describes a single value per key.

    `value_type_info` is the type of the value, made by `Types`; None: it is pickled.

    Example:
        self.total = runtime_context.get_state(ValueStateDescriptor("total", Types.DOUBLE()))
    """

    kind = "value"

    def __init__(self, name: str, value_type_info: TypeInformation | None = None) -> None:
        super().__init__(name, value_type_info)


class ListStateDescriptor(StateDescriptor):
    """Describes a list per key.

    `elem_type_info` is the type of an element, made by `Types`; None: elements are pickled.

    Example:
        self.recent = runtime_context.get_list_state(ListStateDescriptor("recent", Types.STRING()))
    """

    kind = "list"

    def __init__(self, name: str, elem_type_info: TypeInformation | None = None) -> None:
        super().__init__(name, elem_type_info)


class MapStateDescriptor(StateDescriptor):
    """Describes a map per key, or broadcast state: a map that every subtask has.

    `key_type_info` and `value_type_info` are the types of its entries, made by `Types`; None: they are pickled.

    Example:
        self.counts = runtime_context.get_map_state(MapStateDescriptor("counts", Types.STRING(), Types.LONG()))
    """

    kind = "map"

    def __init__(
        self, name: str, key_type_info: TypeInformation | None = None, value_type_info: TypeInformation | None = None
    ) -> None:
        super().__init__(name, value_type_info)
        if key_type_info is not None and not isinstance(key_type_info, TypeInformation):
            raise TypeError(f"the key type of state {name!r} is made by Types, got {key_type_info!r}")
        self.key_type_info, self.value_type_info = key_type_info, value_type_info


class ReducingStateDescriptor(StateDescriptor):
    """Describes a value per key that added values are reduced to.

    `reduce_function` is a `ReduceFunction`, or a function (result so far, value) -> result; `type_info` is the type of
    the values.

    Example:
        descriptor = ReducingStateDescriptor("largest", max, Types.LONG())
    """

    kind = "reducing"

    def __init__(self, name: str, reduce_function: Any, type_info: TypeInformation | None = None) -> None:
        super().__init__(name, type_info)
        reduce = getattr(reduce_function, "reduce", reduce_function)
        if not callable(reduce):
            raise TypeError(f"state {name!r} needs a ReduceFunction or a callable, got {reduce_function!r}")
        self.reduce_function = reduce_function
        self._reduce: Callable[[Any, Any], Any] = reduce

    def get_reduce_function(self) -> Callable[[Any, Any], Any]:
        """Return the function (result so far, value) -> result."""
        return self._reduce


class AggregatingStateDescriptor(StateDescriptor):
    """Describes an accumulator per key that values are added to.

    `agg_function` is an `AggregateFunction`; `state_type_info` is the type of its accumulator; None: it is pickled.
    """

    kind = "aggregating"

    def __init__(self, name: str, agg_function: Any, state_type_info: TypeInformation | None = None) -> None:
        super().__init__(name, state_type_info)
        for method in ("create_accumulator", "add", "get_result"):
            if not callable(getattr(agg_function, method, None)):
                raise TypeError(f"state {name!r} needs an AggregateFunction, got {agg_function!r}")
        self.agg_function = agg_function

    def get_agg_function(self) -> Any:
        """Return the `AggregateFunction`."""
        return self.agg_function
