"""Keeps keyed state on the slot's disk, in RocksDB, and caches entries in memory (Flink's `rocksdb`)."""
