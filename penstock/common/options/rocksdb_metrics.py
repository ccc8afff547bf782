"""Lists RocksDB's own metrics that a job reports, under Flink's names."""

from __future__ import annotations

from typing import NamedTuple

from penstock.common.options.option import BOOLEAN, ConfigOption

PREFIX = "state.backend.rocksdb.metrics."
LEVELS = 7
"""The number of levels that RocksDB sorts its files into."""


class NativeMetric(NamedTuple):
    """Describes one of the figures.

    `name`: the option's name without the prefix. `ticker`: what RocksDB's statistics call it, for those that are
    counted only if somebody asks; None for a property of the database.
    """

    name: str
    description: str
    ticker: str | None = None

    @property
    def shown(self) -> tuple[str, ...]:
        """Return the names under which Flink shows it: several for a figure of each level."""
        if self.ticker is not None:
            return (f"rocksdb.{self.name.replace('-', '_').replace('compaction_', 'compact_')}",)
        if self.name == "num-files-at-level":
            return tuple(f"rocksdb.{self.name}{level}" for level in range(LEVELS))
        return (f"rocksdb.{self.name}",)


NATIVE_METRICS = (
    NativeMetric("actual-delayed-write-rate", "Show how many bytes per second may be written at most; 0: any."),
    NativeMetric("background-errors", "Show how many flushes and compactions have failed."),
    NativeMetric("block-cache-capacity", "Show how large the block cache of the process is."),
    NativeMetric("block-cache-pinned-usage", "Show how many bytes of the block cache are in use just now."),
    NativeMetric("block-cache-usage", "Show how many bytes the block cache of the process holds."),
    NativeMetric("compaction-pending", "Show whether a compaction is due: 1 or 0."),
    NativeMetric("cur-size-active-mem-table", "Show how many bytes the memtable has that is written to."),
    NativeMetric("cur-size-all-mem-tables", "Show how many bytes all memtables have that are not flushed yet."),
    NativeMetric("estimate-live-data-size", "Show about how many bytes of the files are entries that count."),
    NativeMetric("estimate-num-keys", "Show about how many keys there are, of all states of the subtask."),
    NativeMetric("estimate-pending-compaction-bytes", "Show about how many bytes compactions have still to write."),
    NativeMetric("estimate-table-readers-mem", "Show about how much memory reading takes besides the block cache."),
    NativeMetric("is-write-stopped", "Show whether writes are stopped until flushes or compactions catch up: 1 or 0."),
    NativeMetric("live-sst-files-size", "Show how many bytes the files have that count now."),
    NativeMetric("mem-table-flush-pending", "Show whether a flush is due: 1 or 0."),
    NativeMetric("num-deletes-active-mem-table", "Show how many deletions the memtable has that is written to."),
    NativeMetric("num-deletes-imm-mem-tables", "Show how many deletions the memtables have that wait for a flush."),
    NativeMetric("num-entries-active-mem-table", "Show how many entries the memtable has that is written to."),
    NativeMetric("num-entries-imm-mem-tables", "Show how many entries the memtables have that wait for a flush."),
    NativeMetric("num-files-at-level", "Show how many files each level has."),
    NativeMetric("num-immutable-mem-table", "Show how many memtables wait for a flush."),
    NativeMetric("num-live-versions", "Show how many sets of files are kept; iterators and compactions keep old ones."),
    NativeMetric("num-running-compactions", "Show how many compactions run."),
    NativeMetric("num-running-flushes", "Show how many flushes run."),
    NativeMetric("num-snapshots", "Show how many views of the database are open: those of checkpoints."),
    NativeMetric("size-all-mem-tables", "Show how many bytes all memtables have, also flushed ones that are kept."),
    NativeMetric("total-sst-files-size", "Show how many bytes all files have, also those that are kept for a view."),
    NativeMetric("block-cache-hit", "Count blocks that were found in the block cache.", "rocksdb.block.cache.hit"),
    NativeMetric("block-cache-miss", "Count blocks that were read from files.", "rocksdb.block.cache.miss"),
    NativeMetric("bloom-filter-useful", "Count reads that a Bloom filter has spared.", "rocksdb.bloom.filter.useful"),
    NativeMetric(
        "bloom-filter-full-positive",
        "Count reads that no Bloom filter has spared.",
        "rocksdb.bloom.filter.full.positive",
    ),
    NativeMetric(
        "bloom-filter-full-true-positive",
        "Count reads that no Bloom filter has spared, and that have found the key.",
        "rocksdb.bloom.filter.full.true.positive",
    ),
    NativeMetric("bytes-read", "Count the bytes of values that were read by key.", "rocksdb.bytes.read"),
    NativeMetric("bytes-written", "Count the bytes that were written, without compactions.", "rocksdb.bytes.written"),
    NativeMetric("compaction-read-bytes", "Count the bytes that compactions have read.", "rocksdb.compact.read.bytes"),
    NativeMetric(
        "compaction-write-bytes", "Count the bytes that compactions have written.", "rocksdb.compact.write.bytes"
    ),
    NativeMetric("iter-bytes-read", "Count the bytes that scans have read.", "rocksdb.db.iter.bytes.read"),
    NativeMetric("stall-micros", "Count the microseconds in which writes had to wait.", "rocksdb.stall.micros"),
)


class RocksDBNativeMetricOptions:
    """Holds an option for each figure: `ESTIMATE_NUM_KEYS` for `state.backend.rocksdb.metrics.estimate-num-keys`."""

    BY_NAME: dict[str, ConfigOption[bool]] = {
        metric.name: ConfigOption(PREFIX + metric.name, BOOLEAN, False, metric.description) for metric in NATIVE_METRICS
    }


for _name, _option in RocksDBNativeMetricOptions.BY_NAME.items():
    setattr(RocksDBNativeMetricOptions, _name.upper().replace("-", "_"), _option)
