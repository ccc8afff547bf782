"""Reads the options of RocksDB, once."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Mapping

from penstock.common.configuration import Configuration
from penstock.common.options import RocksDBNativeMetricOptions, RocksDBOptions
from penstock.storage.local_directory import temporary_directories


@dataclass(frozen=True)
class RocksDBSettings:
    """Holds the options. `directories`: where subtasks make theirs. `batch_bytes`: about how much changed state waits
    in memory; `cached_bytes`: how much state that is hot a subtask keeps there as objects; `metrics`: the names of the
    figures that are shown.
    """

    directories: tuple[str, ...]
    memory_bytes: int = 256 * 1024 * 1024
    write_buffer_ratio: float = 0.5
    threads: int = 2
    batch_bytes: int = 2 * 1024 * 1024
    write_buffer_bytes: int = 16 * 1024 * 1024
    write_buffers: int = 6
    write_buffers_merged: int = 4
    block_bytes: int = 4096
    bloom_bits_per_key: float = 10.0
    compression: str = "none"
    files_open: int = -1
    level_base_bytes: int = 256 * 1024 * 1024
    file_base_bytes: int = 64 * 1024 * 1024
    cached_bytes: int = 64 * 1024 * 1024
    metrics: tuple[str, ...] = ()
    range_bytes: int = 4 * 1024 * 1024
    restores_lazily: bool = True

    @staticmethod
    def of(configuration: Configuration, environment: Mapping[str, str] = os.environ) -> RocksDBSettings:
        get = configuration.get
        return RocksDBSettings(
            directories=local_directories(configuration, environment),
            memory_bytes=get(RocksDBOptions.FIX_PER_SLOT_MEMORY_SIZE),
            write_buffer_ratio=get(RocksDBOptions.WRITE_BUFFER_RATIO),
            threads=get(RocksDBOptions.THREAD_NUM),
            batch_bytes=get(RocksDBOptions.WRITE_BATCH_SIZE),
            write_buffer_bytes=get(RocksDBOptions.WRITE_BUFFER_SIZE),
            write_buffers=get(RocksDBOptions.WRITE_BUFFER_COUNT),
            write_buffers_merged=min(get(RocksDBOptions.WRITE_BUFFER_MERGE), get(RocksDBOptions.WRITE_BUFFER_COUNT)),
            block_bytes=get(RocksDBOptions.BLOCK_SIZE),
            bloom_bits_per_key=(
                get(RocksDBOptions.BLOOM_FILTER_BITS_PER_KEY) if get(RocksDBOptions.USE_BLOOM_FILTER) else 0.0
            ),
            compression=get(RocksDBOptions.COMPRESSION).removesuffix("_compression").removeprefix("no") or "none",
            files_open=get(RocksDBOptions.FILES_OPEN),
            level_base_bytes=get(RocksDBOptions.MAX_SIZE_LEVEL_BASE),
            file_base_bytes=get(RocksDBOptions.TARGET_FILE_SIZE_BASE),
            cached_bytes=get(RocksDBOptions.OBJECT_CACHE_SIZE),
            range_bytes=get(RocksDBOptions.RANGE_SIZE),
            restores_lazily=get(RocksDBOptions.LAZY_RESTORE),
            metrics=tuple(name for name, option in RocksDBNativeMetricOptions.BY_NAME.items() if get(option)),
        )


def local_directories(configuration: Configuration, environment: Mapping[str, str]) -> tuple[str, ...]:
    """Return the directories for a slot's databases."""
    named = configuration.get(RocksDBOptions.LOCAL_DIRECTORIES)
    return tuple(named) if named else temporary_directories(configuration, environment)
