"""Provides a function of simulated jobs whose declared types change from one driver to the next.

It keeps rows with named fields, and numbers, in every kind of state. Next to them it keeps what it has written, in
state whose type stays. So it sees whether a field has kept its value, whether an added one is empty, and whether a
number has survived being widened.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from penstock.common.row import Row as NamedRow
from penstock.common.types import Types
from penstock.datastream.functions import KeyedProcessFunction, RuntimeContext
from penstock.datastream.state import ListStateDescriptor, MapStateDescriptor, ValueStateDescriptor
from simulation import simulated_functions as f
from simulation import world_hooks
from simulation.world_hooks import Row

WIDTHS = (Types.BYTE, Types.SHORT, Types.INT, Types.LONG)
_NUMBERS = 100
"""Numbers are smaller, so that they fit all widths."""
_LISTED_MAX = 4
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
        if len(listed) >= _LISTED_MAX:
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
        """Compare what was written with what is found: fields that both have are equal, and added ones are None."""
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
