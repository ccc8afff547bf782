"""Tests `StateTtlConfig` and its builder."""

from __future__ import annotations

import pytest

from penstock.common.time import Duration, Time
from penstock.datastream.state import StateTtlConfig, ValueStateDescriptor


def test_the_config_has_flinks_defaults_and_says_what_was_given() -> None:
    config = StateTtlConfig.new_builder(Time.seconds(3)).build()
    assert config.get_ttl() == Time.seconds(3)
    assert config.get_update_type() is StateTtlConfig.UpdateType.OnCreateAndWrite
    assert config.get_state_visibility() is StateTtlConfig.StateVisibility.NeverReturnExpired
    assert config.get_ttl_time_characteristic() is StateTtlConfig.TtlTimeCharacteristic.ProcessingTime
    assert config.is_enabled()
    cleanup = config.get_cleanup_strategies()
    assert cleanup.is_cleanup_in_background() and not cleanup.in_full_snapshot()
    incremental = cleanup.get_incremental_cleanup_strategy()
    assert incremental is not None
    assert (incremental.get_cleanup_size(), incremental.run_cleanup_for_every_record()) == (5, False)
    on_disk = cleanup.get_rocksdb_compact_filter_cleanup_strategy()
    assert on_disk is not None and on_disk.get_query_time_after_num_entries() == 1000
    assert on_disk.get_periodic_compaction_time() == Duration.of_days(30)


def test_the_config_keeps_only_the_clean_up_that_was_asked_for() -> None:
    builder = StateTtlConfig.new_builder(Time.seconds(3)).set_ttl(Duration.of_seconds(4)).use_processing_time()
    config = builder.disable_cleanup_in_background().cleanup_incrementally(7, True).cleanup_full_snapshot().build()
    cleanup = config.get_cleanup_strategies()
    assert config.get_ttl() == Duration.of_seconds(4)
    assert not cleanup.is_cleanup_in_background() and cleanup.in_full_snapshot()
    incremental = cleanup.get_incremental_cleanup_strategy()
    assert incremental is not None
    assert (incremental.get_cleanup_size(), incremental.run_cleanup_for_every_record()) == (7, True)
    assert cleanup.get_rocksdb_compact_filter_cleanup_strategy() is None
    builder.cleanup_in_rocksdb_compact_filter(500, Duration.of_days(1))
    on_disk = builder.build().get_cleanup_strategies().get_rocksdb_compact_filter_cleanup_strategy()
    assert on_disk is not None and on_disk.get_periodic_compaction_time() == Duration.of_days(1)


def test_what_is_no_time_to_live_is_refused() -> None:
    with pytest.raises(ValueError, match="at least 1 ms, got 0 ms"):
        StateTtlConfig.new_builder(Time.milliseconds(0)).build()
    with pytest.raises(TypeError, match="Time or a Duration"):
        StateTtlConfig.new_builder(1000).build()  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="cleanup_size"):
        StateTtlConfig.new_builder(Time.seconds(1)).cleanup_incrementally(0, False)
    with pytest.raises(TypeError, match=r"state 'v': StateTtlConfig.new_builder"):
        ValueStateDescriptor("v").enable_time_to_live(Time.seconds(1))  # type: ignore[arg-type]
