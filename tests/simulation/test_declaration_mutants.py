"""The simulation finds broken rules of state that is declared otherwise than it was stored."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from penstock.common.row_types import type_evolution
from penstock.common.row_types.composite_types import RowType
from penstock.state import restored
from penstock.state.rocksdb.rocksdb_backend import RocksDBStateBackend
from penstock.state.ttl import TimeToLive
from tests.simulation.finding import assert_found
from tests.simulation.proofs import breaks

Patch = Callable[[Any, str, Any], None]


@breaks("8.5")
def fields_of_rows_are_found_by_their_place(patch: Patch) -> None:
    fields = type_evolution._fields_evolution

    def by_place(stored: Any, declared: Any, path: str) -> Any:
        if not isinstance(stored, RowType):
            return fields(stored, declared, path)
        others = [name for name in stored.field_names if name not in declared.field_names]
        names = [name if name in stored.field_names or not others else others.pop(0) for name in declared.field_names]
        try:
            convert = fields(stored, RowType(declared.field_types, tuple(names)), path)
        except type_evolution.IncompatibleType:
            return fields(stored, declared, path)
        arrow_fields = list(declared.arrow_type)
        return lambda array: pa.StructArray.from_arrays(convert(array).flatten(), fields=arrow_fields)

    patch(type_evolution, "_fields_evolution", by_place)


@breaks("8.5")
def added_fields_take_the_number_of_the_row(patch: Patch) -> None:
    fields = type_evolution._fields_evolution

    def filled(stored: Any, declared: Any, path: str) -> Any:
        convert = fields(stored, declared, path)
        added = [i for i, name in enumerate(declared.field_names) if name not in stored.field_names]

        def converted(array: Any) -> Any:
            columns = convert(array).flatten()
            for i in added:
                columns[i] = columns[declared.field_names.index("number")].cast(columns[i].type)
            return pa.StructArray.from_arrays(columns, fields=list(declared.arrow_type))

        return converted

    patch(type_evolution, "_fields_evolution", filled)


@breaks("8.5")
def the_newest_run_is_left_out_where_types_have_changed(patch: Patch) -> None:
    fitted = restored.RestoringBackend._fitted

    def without(self: Any, name: Any, evolution: Any) -> Any:
        runs = self._runs.get(name, [])
        if len({run.declared for run in runs}) == 1 and len(runs) > 1:
            kind, _, codec = runs[0].declared.partition(" ")
            if evolution(kind, codec) is not None:
                runs.pop()
        return fitted(self, name, evolution)

    patch(restored.RestoringBackend, "_fitted", without)


@breaks("8.5")
def a_change_of_the_backend_restores_the_first_run_only(patch: Patch) -> None:
    made = RocksDBStateBackend._new_table
    patch(RocksDBStateBackend, "_new_table", lambda self, declared, codec, runs: made(self, declared, codec, runs[:1]))


@breaks("8.5")
def the_longest_time_to_live_counts(patch: Patch) -> None:
    of, longest_ms = TimeToLive.of, [0]

    def longest(config: Any) -> TimeToLive | None:
        ttl = of(config)
        if ttl is None:
            return None
        longest_ms[0] = max(longest_ms[0], ttl.ttl_ms)
        return replace(ttl, ttl_ms=longest_ms[0])

    patch(TimeToLive, "of", staticmethod(longest))


FOUND = r"is found where .* was kept"
MUTANTS: list[tuple[Callable[[Patch], None], str | list[int], str]] = [
    # (mutant, schedule or seeds, the violation that it must cause)
    (fields_of_rows_are_found_by_their_place, "declared-types-change-at-every-resume", FOUND),
    (added_fields_take_the_number_of_the_row, "declared-types-change-at-every-resume", FOUND),
    (added_fields_take_the_number_of_the_row, list(range(60)), FOUND),
    (the_newest_run_is_left_out_where_types_have_changed, "declared-types-change-at-every-resume", FOUND),
    (
        the_longest_time_to_live_counts,
        "declared-types-change-at-every-resume",
        r"are returned of .* although they live for \d+ ms",
    ),
    (a_change_of_the_backend_restores_the_first_run_only, "declared-types-change-at-every-resume", FOUND),
]
_IDS = [f"{mutant.__name__}, {where if isinstance(where, str) else 'seeds'}" for mutant, where, _ in MUTANTS]


@pytest.mark.parametrize(("mutant", "where", "violation"), MUTANTS, ids=_IDS)
def test_a_broken_rule_is_found(
    mutant: Callable[[Patch], None], where: str | list[int], violation: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    mutant(monkeypatch.setattr)
    assert_found(where, violation)
