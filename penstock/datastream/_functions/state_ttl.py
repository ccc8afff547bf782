"""Defines the time to live of a state's entries: PyFlink's `StateTtlConfig`."""

from __future__ import annotations

from enum import Enum
from typing import Any, TypeAlias

from penstock.common.time import Duration, Time


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

        Returns:
            The builder.
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

        Returns:
            The builder.
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
        """Set which time it is.

        Args:
            ttl_time_characteristic: `ProcessingTime`.

        Returns:
            The builder.
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

        Returns:
            The builder.

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

        Returns:
            The builder.
        """
        strategies = TtlCleanupStrategies
        settings = strategies.RocksdbCompactFilterCleanupStrategy(
            query_time_after_num_entries, periodic_compaction_time
        )
        self._strategies[strategies.Strategies.ROCKSDB_COMPACTION_FILTER] = settings
        return self

    def disable_cleanup_in_background(self) -> TtlConfigBuilder:
        """Turn off the default cleanup, except for entries that are read and by other calls of the builder. Returns the
        builder."""
        self._is_cleanup_in_background = False
        return self

    def set_ttl(self, ttl: Time | Duration) -> TtlConfigBuilder:
        """Set the time to live of entries.

        Args:
            ttl: The time to live.

        Returns:
            The builder.
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
        if milliseconds(ttl) < 1:
            raise ValueError(f"a time to live is at least 1 ms, got {milliseconds(ttl)} ms")
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


def milliseconds(ttl: Time | Duration) -> int:
    """Return a time to live in whole milliseconds."""
    return ttl.to_milliseconds() if isinstance(ttl, Time) else ttl.to_millis()
