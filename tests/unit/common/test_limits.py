"""Tests that each limit reaches a part: one that nobody reads would make a simulated run less than it says it is."""

from __future__ import annotations

import ast
from dataclasses import fields

import numpy as np
import pyarrow as pa

from penstock.common.limits import USUAL, Limits
from penstock.runtime.input.deficit_round_robin import DeficitRoundRobin
from penstock.state.columnar.column_table import ColumnTable
from tests.unit.source_imports import python_files


def test_every_limit_is_read_by_a_part() -> None:
    read = {
        node.attr
        for path in python_files("penstock")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Attribute) and ast.unparse(node.value).endswith("limits")
    }
    assert {field.name for field in fields(Limits)} <= read


def test_no_limit_is_usual() -> None:
    assert all(getattr(USUAL, field.name) is None for field in fields(Limits))


def test_a_channels_turn_ends_after_its_quantum() -> None:
    turns = DeficitRoundRobin(2, quantum_bytes=10)
    taken = []
    for _ in range(6):
        participant = turns.next(lambda _: True)
        assert participant is not None
        turns.used(participant, 5)
        taken.append(participant)
    assert taken == [1, 1, 0, 0, 1, 1]


def test_a_snapshot_of_a_table_is_cut_into_blocks_of_the_limit() -> None:
    keys = pa.schema([("n", pa.int64())])
    table = ColumnTable(keys, [], block_bytes=64)
    table.find_or_insert(table.rows([pa.array(range(100))]), np.zeros(100, np.uint16))
    assert len(list(table.view().blocks())) > 5
