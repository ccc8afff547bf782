"""Keeps keyed state on the slot's disk, in RocksDB, with what is hot in memory (Flink's `rocksdb`)."""
