"""Provides a function of simulated jobs that keeps numbers in state that expires.

Next to each such state it keeps, in state that does not expire, what was written there and when. So it sees what a user
would: an expired entry that is returned, one that is gone before its time, one that is older than the newest. The
clocks of all processes agree as far as entries are concerned, so each judgement is exact, unless drivers have had other
times to live: then an entry that had expired in one of them may be there or not.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from penstock.common.time import Time
from penstock.common.types import Types
from penstock.datastream.functions import KeyedProcessFunction, RuntimeContext
from penstock.datastream.state import (
    ListStateDescriptor,
    MapStateDescriptor,
    StateDescriptor,
    StateTtlConfig,
    ValueStateDescriptor,
)
from simulation import simulated_functions as f
from simulation import world_hooks
from simulation.world_hooks import Row

Entry = tuple[int, int]
"""(time of the last use in ms, number)"""
_LISTED_MAX = 12


class Expire(f.Busy, KeyedProcessFunction):
    """Passes rows; each one writes or reads some of the key's state."""

    def __init__(
        self,
        name: str,
        ttl_ms: int,
        updates_on_read: bool,
        returns_expired: bool,
        cleanup: str,
        salt: int,
        cost_ms: float,
    ) -> None:
        super().__init__(cost_ms)
        self.name = name
        self.ttl_ms = self.ttl_least_ms = self._first_ttl_ms = ttl_ms
        self.updates_on_read = updates_on_read
        self.returns_expired = returns_expired
        self.cleanup = cleanup
        self.salt = salt

    def live_for(self, share: float, share_least: float) -> None:
        """Let entries live for a multiple of the time that was said at first. `share_least`: the shortest so far."""
        self.ttl_ms = max(1, int(self._first_ttl_ms * share))
        self.ttl_least_ms = max(1, int(self._first_ttl_ms * share_least))

    def open(self, runtime_context: RuntimeContext) -> None:
        self._value = runtime_context.get_state(self._expiring(ValueStateDescriptor("value", Types.LONG())))
        self._list = runtime_context.get_list_state(self._expiring(ListStateDescriptor("list", Types.LONG())))
        self._map = runtime_context.get_map_state(
            self._expiring(MapStateDescriptor("map", Types.STRING(), Types.LONG()))
        )
        self._written = runtime_context.get_state(ValueStateDescriptor("written"))
        self._steps: tuple[Callable[[dict[str, list[Entry]], int, int], None], ...] = (
            self._write_value, self._read_value, self._add_to_list, self._read_list, self._put_into_map,
            self._read_of_map, self._read_map,
        )  # fmt: skip

    def _expiring(self, descriptor: Any) -> Any:
        builder = StateTtlConfig.new_builder(Time.milliseconds(self.ttl_ms))
        if self.updates_on_read:
            builder.update_ttl_on_read_and_write()
        if self.returns_expired:
            builder.return_expired_if_not_cleaned_up()
        if self.cleanup != "background":
            builder.disable_cleanup_in_background()
        if self.cleanup == "each row":
            builder.cleanup_incrementally(3, True).cleanup_in_rocksdb_compact_filter(1000)
        elif self.cleanup == "full snapshots":
            builder.cleanup_full_snapshot()
        declared: StateDescriptor = descriptor
        declared.enable_time_to_live(builder.build())
        return descriptor

    def process_element(self, value: Row, ctx: KeyedProcessFunction.Context) -> Iterator[Row]:
        self._key = value[2]
        for part in range(3):
            self.work()
            drawn = f.scrambled(value, self.salt + part)
            numbers, kept = self._written.value() or (0, {})
            # Nothing passes between here and the end of the step: both see the same time.
            self._steps[drawn % 7](kept, numbers + 1, int(world_hooks.current().now_ms()))
            self._written.update((numbers + 1, kept))
        yield value

    # ---- steps --------------------------------------------------------------------------------------------------

    def _write_value(self, kept: dict[str, list[Entry]], number: int, now_ms: int) -> None:
        self._value.update(number)
        kept["value"] = [(now_ms, number)]

    def _read_value(self, kept: dict[str, list[Entry]], _: int, now_ms: int) -> None:
        found = self._value.value()
        self._judge(kept, "value", [] if found is None else [found], now_ms)

    def _add_to_list(self, kept: dict[str, list[Entry]], number: int, now_ms: int) -> None:
        if len(kept.get("list", [])) >= _LISTED_MAX:
            self._list.clear()
            kept["list"] = []
        self._list.add(number)
        kept.setdefault("list", []).append((now_ms, number))

    def _read_list(self, kept: dict[str, list[Entry]], _: int, now_ms: int) -> None:
        self._judge(kept, "list", list(self._list.get()), now_ms)

    def _put_into_map(self, kept: dict[str, list[Entry]], number: int, now_ms: int) -> None:
        entry = f"map {number % 4}"
        self._map.put(entry, number)
        kept[entry] = [(now_ms, number)]

    def _read_of_map(self, kept: dict[str, list[Entry]], number: int, now_ms: int) -> None:
        entry = f"map {number * 7 % 4}"
        found = self._map.get(entry)
        self._judge(kept, entry, [] if found is None else [found], now_ms)

    def _read_map(self, kept: dict[str, list[Entry]], _: int, now_ms: int) -> None:
        found: dict[str, int] = dict(self._map.items())
        for entry in sorted({*found, *(name for name in kept if name.startswith("map "))}):
            self._judge(kept, entry, [found[entry]] if entry in found else [], now_ms)

    # ---- what is right ------------------------------------------------------------------------------------------

    def _judge(self, kept: dict[str, list[Entry]], what: str, found: list[int], now_ms: int) -> None:
        """Compare what was found with what was written: all that has not expired, and nothing that has, unless it may
        be seen. Then note what the read leaves.
        """
        entries = kept.get(what, [])
        unexpired = _younger(entries, now_ms - self.ttl_ms)
        never_expired = _younger(entries, now_ms - min(self.ttl_ms, self.ttl_least_ms))
        shown = entries if self.returns_expired else unexpired
        told = f"{self.name}: key {self._key}: {what}: at {now_ms} ms"
        complain = world_hooks.current().violate
        if lost := [entry for entry in never_expired if entry[1] not in found]:
            complain(f"{told}, {lost} (time, number) are lost before {self.ttl_ms} ms are over")
        elif Counter(found) - Counter(number for _, number in shown):
            complain(
                f"{told}, {found} are returned of {entries} (time, number), although they live for {self.ttl_ms} ms"
            )
        left = [entry for entry in unexpired if entry[1] in found]
        if self.updates_on_read:
            kept[what] = [(now_ms, number) for _, number in left]
        elif what != "list" or not left:
            kept[what] = left  # of a list only the whole is removed


def _younger(entries: Iterable[Entry], expired_ms: int) -> list[Entry]:
    return [entry for entry in entries if entry[0] > expired_ms]
