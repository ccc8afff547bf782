"""Provides functions whose state expires or is declared otherwise after a resume, and changes what they declare, and
where state is kept, from one driver to the next."""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from random import Random
from typing import Any

from penstock.common.configuration import Configuration
from penstock.common.options import StateBackendOptions
from penstock.common.row_types.row import Row as NamedRow
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
from penstock.graph.logical import LogicalGraph
from simulation.jobs import simulated_functions as f
from simulation.world import world_hooks
from simulation.world.world_hooks import Row

Entry = tuple[int, int]
"""(time of the last use in ms, number)"""
_EXPIRING_MAX = 12
"""Numbers in a list of `Expire`."""


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
        if len(kept.get("list", [])) >= _EXPIRING_MAX:
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
        """Compare the found entries with the written ones: all that has not expired, and nothing that has, unless it
        may be seen. Then note the entries that the read leaves.
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
            kept[what] = left  # a list is only removed as a whole


def _younger(entries: Iterable[Entry], expired_ms: int) -> list[Entry]:
    return [entry for entry in entries if entry[0] > expired_ms]


WIDTHS = (Types.BYTE, Types.SHORT, Types.INT, Types.LONG)
_NUMBERS = 100
"""Numbers are smaller, so that they fit all widths."""
_EVOLVING_MAX = 4
"""Rows in a list of `Evolve`."""
_Written = tuple[int, dict[str, Any], list[dict[str, Any]], dict[int, dict[str, Any]]]
"""The last write: the number, and the rows of the value, the list and the map"""


@dataclass(frozen=True)
class DeclaredTypes:
    """Says which fields rows have besides their number, and how wide numbers are (see `WIDTHS`). `named`: how many
    fields have had a name so far.
    """

    fields: tuple[str, ...] = ("field 0", "field 1")
    width: int = 0
    named: int = 2


class Evolve(f.Busy, KeyedProcessFunction):
    """Passes rows. `types`: what is declared."""

    def __init__(self, name: str, cost_ms: float) -> None:
        super().__init__(cost_ms)
        self.name = name
        self.types = DeclaredTypes()

    def open(self, runtime_context: RuntimeContext) -> None:
        number, fields = WIDTHS[self.types.width](), self.types.fields
        texts = [Types.STRING() if int(field.split()[1]) % 2 else number for field in fields]
        row = Types.ROW_NAMED(["number", *fields], [number, *texts])
        self._number = runtime_context.get_state(ValueStateDescriptor("number", number))
        self._row = runtime_context.get_state(ValueStateDescriptor("row", row))
        self._list = runtime_context.get_list_state(ListStateDescriptor("list", row))
        self._map = runtime_context.get_map_state(MapStateDescriptor("map", number, row))
        self._written = runtime_context.get_state(ValueStateDescriptor("written"))

    def process_element(self, value: Row, ctx: KeyedProcessFunction.Context) -> Iterator[Row]:
        self.work()
        self._key = value[2]
        before: _Written | None = self._written.value()
        number, rows, listed, mapped = before or (0, {}, [], {})
        self._compare("number", {"number": number} if number else {}, self._number.value())
        self._compare("row", rows, self._row.value())
        found = list(self._list.get())
        if len(found) != len(listed):
            world_hooks.current().violate(f"{self.name}: key {self._key}: list: {len(found)} of {len(listed)} rows")
        for kept, row in zip(listed, found):
            self._compare("list", kept, row)
        place = number % 3
        self._compare("map", mapped.get(place, {}), self._map.get(place))

        number = number % _NUMBERS + 1
        written = self._values(number)
        self._number.update(number)
        self._row.update(NamedRow(**written))
        if len(listed) >= _EVOLVING_MAX:
            self._list.clear()
            listed = []
        self._list.add(NamedRow(**written))
        self._map.put(place, NamedRow(**written))
        self._written.update((number, written, [*listed, written], {**mapped, place: written}))
        yield value

    def _values(self, number: int) -> dict[str, Any]:
        """Return the fields of the row that is kept with a number."""
        texts = {field: int(field.split()[1]) % 2 for field in self.types.fields}
        return {"number": number} | {field: f"{field} {number}" if t else number % 7 for field, t in texts.items()}

    def _compare(self, what: str, written: dict[str, Any], found: Any) -> None:
        """Compare the written value with the found one: fields that both have are equal, and added ones are None."""
        if found is None:
            shown = {}
        elif isinstance(found, NamedRow):
            shown = {name: found[name] for name in ("number", *self.types.fields)}
        else:
            shown = {what: found}
        expected = {name: written.get(name) for name in shown} if written else {}
        if shown != expected:
            world_hooks.current().violate(
                f"{self.name}: key {self._key}: {what}: {shown} is found where {expected} was kept"
            )


_FIELDS_MAX = 5
_TTL_SHARES = (0.4, 1.0, 3.0)


@dataclass(frozen=True)
class Declarations:
    """Holds the declarations of the next driver's program, and its backend."""

    types: DeclaredTypes
    backend: str
    ttl_share: float = 1.0
    """The time to live, as a multiple of what it was at first."""
    ttl_share_least: float = 1.0
    """The shortest that any driver has had."""


class DeclaredChanges:
    """Changes declared types in place. `changes_backend`: also where state is kept."""

    def __init__(
        self, random: Random, graph: LogicalGraph, configuration: Configuration, changes_backend: bool
    ) -> None:
        self._random = random
        self._evolving = [node for node in graph.nodes if isinstance(node.function, Evolve)]
        self._expiring = [node for node in graph.nodes if isinstance(node.function, Expire)]
        self._configuration = configuration
        self._changes_backend = changes_backend
        self.state = Declarations(DeclaredTypes(), configuration.get(StateBackendOptions.STATE_BACKEND))

    def draw(self) -> bool:
        """Change something. Returns whether anything was changed; `apply` carries it out."""
        before = self.state
        if self._evolving:
            self.state = replace(before, types=self._drawn(before.types))
        if self._changes_backend and self._random.random() < 0.4:
            self.state = replace(self.state, backend="rocksdb" if before.backend == "hashmap" else "hashmap")
        if self._expiring and self._random.random() < 0.5:
            share = self._random.choice(_TTL_SHARES)
            least = min(share, before.ttl_share_least)
            self.state = replace(self.state, ttl_share=share, ttl_share_least=least)
        return self.state != before

    def _drawn(self, types: DeclaredTypes) -> DeclaredTypes:
        random = self._random
        fields, named = list(types.fields), types.named
        if len(fields) > 1 and random.random() < 0.5:
            fields.remove(random.choice(fields))
        while len(fields) < _FIELDS_MAX and random.random() < 0.5:
            fields.append(f"field {named}")
            named += 1
        random.shuffle(fields)
        is_wider = types.width + 1 < len(WIDTHS) and random.random() < 0.4
        return DeclaredTypes(tuple(fields), types.width + is_wider, named)

    def apply(self) -> None:
        """Set the graph's functions and the configured backend to those of `state`. Drivers that still run have
        functions of their own.
        """
        state = self.state
        for node in self._evolving:
            evolving = copy.copy(node.function)
            assert isinstance(evolving, Evolve)
            evolving.types = state.types
            node.function = evolving
        for node in self._expiring:
            expiring = copy.copy(node.function)
            assert isinstance(expiring, Expire)
            expiring.live_for(state.ttl_share, state.ttl_share_least)
            node.function = expiring
        if self._changes_backend:
            self._configuration.set(StateBackendOptions.STATE_BACKEND, self.state.backend)
