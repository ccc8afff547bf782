"""Reads RocksDB's own metrics."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from penstock.common.options.rocksdb_metrics import NATIVE_METRICS


class NativeMetrics:
    """Reads the figures of one database. `names`: the names of the options, without their prefix; `options`: the
    RocksDB options that the database will be opened with.
    """

    def __init__(self, names: Iterable[str], options: Any) -> None:
        asked = [metric for metric in NATIVE_METRICS if metric.name in set(names)]
        self._properties = [shown for metric in asked if metric.ticker is None for shown in metric.shown]
        self._tickers = {metric.ticker: metric.shown[0] for metric in asked if metric.ticker is not None}
        self._options = options
        if self._tickers:
            options.enable_statistics()

    def read(self, db: Any) -> dict[str, int]:
        """Return the figures by their names. Raises what RocksDB raises, as after it was closed."""
        found = {name: value for name in self._properties if (value := db.property_int_value(name)) is not None}
        if self._tickers:
            found |= self._counted(self._options.get_statistics() or "")
        return found

    def _counted(self, statistics: str) -> dict[str, int]:
        """Return the tickers in a text of lines `rocksdb.bytes.read COUNT : 5`."""
        counted: dict[str, int] = {}
        for line in statistics.splitlines():
            ticker, _, rest = line.partition(" ")
            if (name := self._tickers.get(ticker)) is not None:
                counted[name] = int(rest.rpartition(" ")[2])
        return counted
