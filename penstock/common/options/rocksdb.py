"""Defines the options of the state backend that keeps state on disk."""

from __future__ import annotations

from penstock.common.options.option import (
    BOOLEAN,
    FLOATING,
    INTEGER,
    MEMORY,
    STRINGS,
    ConfigOption,
    at_least,
    choice,
    positive,
)


def _share(value: float) -> str | None:
    return None if 0 < value <= 1 else "it must be more than 0, and 1 at most"


class RocksDBOptions:
    """Holds the options of state in RocksDB. The files are no part of a checkpoint: they are a slot's working copy."""

    LOCAL_DIRECTORIES: ConfigOption[tuple[str, ...] | None] = ConfigOption(
        "state.backend.rocksdb.localdir",
        STRINGS,
        None,
        "Directories of the slots' machines, with commas, for RocksDB's files. Each subtask makes its own there, "
        "and deletes it at the end. Not set: io.tmp.dirs.",
    )
    FIX_PER_SLOT_MEMORY_SIZE = ConfigOption(
        "state.backend.rocksdb.memory.fixed-per-slot",
        MEMORY,
        256 * 1024 * 1024,
        "How much memory RocksDB takes in a slot: one block cache and one manager of write buffers for all subtasks.",
        check=at_least(8 * 1024 * 1024, "8 mb"),
    )
    WRITE_BUFFER_RATIO = ConfigOption(
        "state.backend.rocksdb.memory.write-buffer-ratio",
        FLOATING,
        0.5,
        "The share of that memory that write buffers may take; the rest is for blocks that were read.",
        check=_share,
    )
    THREAD_NUM = ConfigOption(
        "state.backend.rocksdb.thread.num",
        INTEGER,
        2,
        "How many threads flush and compact, per subtask.",
        check=positive,
    )
    WRITE_BATCH_SIZE = ConfigOption(
        "state.backend.rocksdb.write-batch-size",
        MEMORY,
        2 * 1024 * 1024,
        "About how many bytes of changed entries wait in memory before they are written at once.",
        check=positive,
    )
    LOCAL_COPY_SIZE = ConfigOption(
        "penstock.state.rocksdb.local-copy-size",
        MEMORY,
        16 * 1024 * 1024,
        "With execution.checkpointing.local-backup.enabled: a new local copy of a subtask's database is taken when a "
        "restart would have to insert so much besides the last one.",
        check=positive,
    )
    OBJECT_CACHE_SIZE = ConfigOption(
        "penstock.state.rocksdb.object-cache-size",
        MEMORY,
        64 * 1024 * 1024,
        "About how much memory a subtask takes for entries that were used lately, as Python objects or columns. They "
        "cost no access to RocksDB.",
        check=positive,
    )
    LAZY_RESTORE = ConfigOption(
        "penstock.state.rocksdb.lazy-restore",
        BOOLEAN,
        True,
        "With execution.checkpointing.incremental: a subtask that restores its own state runs as soon as some of it is "
        "there. The rest is loaded while it runs, what is asked for first.",
    )
    RANGE_SIZE = ConfigOption(
        "penstock.state.rocksdb.range-size",
        MEMORY,
        4 * 1024 * 1024,
        "About how many bytes of entries a checkpoint of everything stores in one range. A lazy restore loads a range "
        "at once, and state of one range is not restored lazily.",
        check=positive,
    )
    WRITE_BUFFER_SIZE = ConfigOption(
        "state.backend.rocksdb.writebuffer.size",
        MEMORY,
        16 * 1024 * 1024,
        "The size of one write buffer of a subtask. (Flink: 64 MB. A write costs more the larger the buffer is.)",
        check=positive,
    )
    WRITE_BUFFER_COUNT = ConfigOption(
        "state.backend.rocksdb.writebuffer.count",
        INTEGER,
        6,
        "How many write buffers a subtask has at most; with more that wait to become a file, writes wait. (Flink: 2.)",
        check=positive,
    )
    WRITE_BUFFER_MERGE = ConfigOption(
        "state.backend.rocksdb.writebuffer.number-to-merge",
        INTEGER,
        4,
        "So many full write buffers become one file. (Flink: 1, of larger ones.)",
        check=positive,
    )
    BLOCK_SIZE = ConfigOption(
        "state.backend.rocksdb.block.blocksize",
        MEMORY,
        4 * 1024,
        "About how many bytes are read from a file at once.",
        check=positive,
    )
    USE_BLOOM_FILTER = ConfigOption(
        "state.backend.rocksdb.use-bloom-filter",
        BOOLEAN,
        True,
        "Keep Bloom filters, so that a key without state is hardly ever looked for on disk. (Flink: false.)",
    )
    BLOOM_FILTER_BITS_PER_KEY = ConfigOption(
        "state.backend.rocksdb.bloom-filter.bits-per-key",
        FLOATING,
        10.0,
        "The size of the Bloom filters.",
        check=positive,
    )
    COMPRESSION = ConfigOption(
        "state.backend.rocksdb.compression.per.level",
        choice(
            "snappy_compression",
            "no_compression",
            "lz4_compression",
            "zstd_compression",
        ),
        "no_compression",
        "How RocksDB's files are compressed: one word for all levels. (Flink: snappy_compression. Most reads then "
        "decompress a block, which halves the throughput of state that is larger than RocksDB's memory.)",
    )
    FILES_OPEN = ConfigOption(
        "state.backend.rocksdb.files.open",
        INTEGER,
        -1,
        "How many files a subtask keeps open; -1: all.",
    )
    MAX_SIZE_LEVEL_BASE = ConfigOption(
        "state.backend.rocksdb.compaction.level.max-size-level-base",
        MEMORY,
        256 * 1024 * 1024,
        "The size of the first level of sorted files.",
        check=positive,
    )
    TARGET_FILE_SIZE_BASE = ConfigOption(
        "state.backend.rocksdb.compaction.level.target-file-size-base",
        MEMORY,
        64 * 1024 * 1024,
        "About how large a file of the first level becomes.",
        check=positive,
    )


class CoreOptions:
    """Holds the options that several parts share."""

    TMP_DIRS: ConfigOption[tuple[str, ...] | None] = ConfigOption(
        "io.tmp.dirs",
        STRINGS,
        None,
        "Directories of the slots' machines for temporary files, with commas. Not set: Spark's own local directories "
        "(SPARK_LOCAL_DIRS), else the system's temporary directory.",
        deprecated_keys=("taskmanager.tmp.dirs",),
    )
