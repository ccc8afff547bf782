"""Prints the contents of checkpoints and savepoints: the commands `penstock state ...`."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from rich.console import Console
from rich.table import Column, Table

from penstock.cli.checkpoint_tables import format_bytes
from penstock.cli.store_access import store_settings
from penstock.state import read_checkpoint
from penstock.state.reading.checkpoint import Checkpoint
from penstock.state.reading.checkpoint_location import checkpoints_of, find_checkpoint
from penstock.state.reading.difference import Difference, Example, StateDifference, compared
from penstock.state.reading.inspection import InFlight, KeyedStateSummary, in_flight, summarized
from penstock.state.reading.verification import Verified, verify
from penstock.storage.sealed import DamagedObject
from penstock.storage.store import ObjectMissing

_console = Console(soft_wrap=True, highlight=False, markup=False)
_CHANNELS_SHOWN_MAX = 20
_BARS = 40
_VALUE_SHOWN_MAX = 80


def print_inspection(path: str, largest: int, key_groups: bool, as_json: bool) -> None:
    """Print a summary of a checkpoint. Raises `StoreError`, `StateError`."""
    checkpoint = read_checkpoint(path)
    summaries = list(summarized(checkpoint, largest))
    channels = in_flight(checkpoint.metadata)
    if as_json:
        print(json.dumps(_inspection_json(checkpoint, summaries, channels), indent=2))
        return
    metadata = checkpoint.metadata
    what = "savepoint" if checkpoint.files.is_savepoint else "checkpoint"
    named = f"{what} {metadata.checkpoint_id} of job {metadata.job_id} ({metadata.job_name})"
    _console.print(f"{named} in {checkpoint.path}")
    _console.print(_operators(checkpoint))
    _console.print(_states(checkpoint, summaries))
    for summary in summaries:
        _print_largest(summary)
        if key_groups:
            _print_key_groups(summary)
    _print_channels(channels)


def _folded(name: str) -> Column:
    """Return a column whose texts continue in the next line where the terminal is narrow."""
    return Column(name, overflow="fold")


def _operators(checkpoint: Checkpoint) -> Table:
    table = Table(_folded("operator"), _folded("uid, or id"), "parallelism", "max parallelism", box=None)
    for o in checkpoint.operators:
        table.add_row(o.name, o.uid or o.id, str(o.vertex.parallelism), str(o.vertex.max_parallelism))
    return table


def _states(checkpoint: Checkpoint, summaries: list[KeyedStateSummary]) -> Table:
    found = {(s.state.operator.id, s.state.name): s for s in summaries}
    names = [_folded(name) for name in ("operator", "state", "kind", "type")]
    table = Table(*names, "keys", "bytes", "stored", "skew", box=None)
    for state in checkpoint.states():
        summary = found.get((state.operator.id, state.name))
        type = state.type if summary is None or not summary.classes else f"{state.type} of {', '.join(summary.classes)}"
        keys, size, skew = str(state.entries), "", ""
        if summary is not None:
            keys, size, skew = str(summary.keys), format_bytes(summary.size_bytes), f"{summary.skew:.1f}"
        stored = format_bytes(state.stored_bytes)
        kind = f"{state.kind}, TTL" if state.expires else state.kind
        table.add_row(state.operator.label, state.name, kind, type, keys, size, stored, skew)
    return table


def _print_largest(summary: KeyedStateSummary) -> None:
    if summary.largest:
        told = ", ".join(f"{k.key:.60} ({format_bytes(k.size_bytes)})" for k in summary.largest)
        state = summary.state
        _console.print(f"largest keys of '{state.name}' of '{state.operator.label}': {told}")


def _print_key_groups(summary: KeyedStateSummary) -> None:
    state = summary.state
    _console.print(f"key groups of '{state.name}' of '{state.operator.label}':")
    table = Table("key group", "keys", "bytes", "", box=None)
    most = max(int(summary.bytes_of_group.max()), 1)
    for group, (keys, size) in enumerate(zip(summary.keys_of_group.tolist(), summary.bytes_of_group.tolist())):
        if keys:
            table.add_row(str(group), str(keys), format_bytes(size), "#" * (size * _BARS // most))
    _console.print(table)


def _print_channels(channels: list[InFlight]) -> None:
    if not channels:
        _console.print("no rows were in flight")
        return
    rows, size = sum(c.rows for c in channels), sum(c.stored_bytes for c in channels)
    _console.print(f"in flight: {rows} rows ({format_bytes(size)}) in {len(channels)} channels")
    table = Table("from", "to", "rows", "stored", box=None)
    for channel in sorted(channels, key=lambda c: -c.rows)[:_CHANNELS_SHOWN_MAX]:
        ends = f"{channel.source} ({channel.producer})", f"{channel.target} ({channel.consumer})"
        table.add_row(
            *ends, f"{channel.rows}{' recovered' if channel.recovered else ''}", format_bytes(channel.stored_bytes)
        )
    _console.print(table)
    if len(channels) > _CHANNELS_SHOWN_MAX:
        _console.print(f"and {len(channels) - _CHANNELS_SHOWN_MAX} channels with fewer rows (--json shows all)")


def _inspection_json(
    checkpoint: Checkpoint, summaries: list[KeyedStateSummary], channels: list[InFlight]
) -> dict[str, Any]:
    found = {(s.state.operator.id, s.state.name): s for s in summaries}
    states = []
    for state in checkpoint.states():
        told: dict[str, Any] = {
            "operator": state.operator.label, "operator_id": state.operator.id, "name": state.name, "kind": state.kind,
            "type": state.type, "expires": state.expires, "entries": state.entries, "stored_bytes": state.stored_bytes,
        }  # fmt: skip
        if (summary := found.get((state.operator.id, state.name))) is not None:
            told |= {
                "keys": summary.keys, "bytes": summary.size_bytes, "skew": round(summary.skew, 3),
                "classes": summary.classes, "keys_of_group": summary.keys_of_group.tolist(),
                "bytes_of_group": summary.bytes_of_group.tolist(),
                "largest": [{"key": k.key, "key_group": k.key_group, "bytes": k.size_bytes} for k in summary.largest],
            }  # fmt: skip
        states.append(told)
    return {
        "path": checkpoint.path, "checkpoint_id": checkpoint.metadata.checkpoint_id,
        "job_id": checkpoint.metadata.job_id, "job_name": checkpoint.metadata.job_name,
        "operators": [
            {
                "id": o.id, "uid": o.uid, "name": o.name, "parallelism": o.vertex.parallelism,
                "max_parallelism": o.vertex.max_parallelism,
            }
            for o in checkpoint.operators
        ],
        "states": states,
        "in_flight": [vars(channel) for channel in channels],
    }  # fmt: skip


# ---- differences ------------------------------------------------------------------------------------------------


def print_difference(before: str, after: str, examples: int, as_json: bool) -> bool:
    """Print the differences between two checkpoints, and return whether there are any. Raises `StoreError`."""
    found = compared(read_checkpoint(before), read_checkpoint(after), examples)
    if as_json:
        told = {**vars(found), "states": [_difference_json(state) for state in found.states]}
        print(json.dumps(told, indent=2))
        return not found.is_none
    if found.is_none:
        _console.print("the state is the same")
        return False
    _print_names(found)
    table = Table(_folded("operator"), _folded("state"), "added", "removed", "changed", "same", box=None)
    for state in found.states:
        table.add_row(
            state.operator, state.name, str(state.added), str(state.removed), str(state.changed), str(state.same)
        )
    if found.states:
        _console.print(table)
    for state in found.states:
        _print_examples(state)
    return True


def _print_names(found: Difference) -> None:
    lines = (
        ("operators only in the first", found.operators_removed),
        ("operators only in the second", found.operators_added),
        ("states only in the first", [f"{o}/{n}" for o, n in found.states_removed]),
        ("states only in the second", [f"{o}/{n}" for o, n in found.states_added]),
        ("operator state that differs", [f"{o}/{n}" for o, n in found.operator_states_changed]),
    )
    for told, names in lines:
        if names:
            _console.print(f"{told}: {', '.join(names)}")


def _print_examples(state: StateDifference) -> None:
    if state.declared is not None:
        _console.print(
            f"'{state.name}' of '{state.operator}' is {state.declared[0]} in the first, {state.declared[1]} in the "
            "second, so only keys were compared"
        )
    for kind, examples in state.examples.items():
        if examples:
            shown = ", ".join(map(_example, examples))
            _console.print(f"{kind} in '{state.name}' of '{state.operator}': {shown}")


def _example(example: Example) -> str:
    values = [_cut(value) for value in (example.before, example.after) if value is not None]
    return f"{example.key[:60]}: {' -> '.join(values)}"


def _cut(text: str) -> str:
    return text if len(text) <= _VALUE_SHOWN_MAX else f"{text[:_VALUE_SHOWN_MAX]}..."


def _difference_json(state: StateDifference) -> dict[str, Any]:
    examples = {kind: [each._asdict() for each in found] for kind, found in state.examples.items()}
    return {**vars(state), "examples": examples}


# ---- verification -----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Checked:
    path: str
    found: Verified
    why: str | None = None


def print_verification(path: str, as_json: bool) -> bool:
    """Print every damaged range of a checkpoint, or of all that a job retains. Return whether all is whole. Raises
    `StoreError` if the store does not answer.
    """
    settings = store_settings()
    checked = []
    for place in checkpoints_of(path, settings):
        try:
            checked.append(_Checked(place, verify(find_checkpoint(place, settings))))
        except (DamagedObject, ObjectMissing) as error:
            checked.append(_Checked(place, Verified(), f"its metadata cannot be read: {error}"))
    if as_json:
        print(json.dumps([_verified_json(each) for each in checked], indent=2))
    else:
        for each in checked:
            _print_verified(each)
    return not any(each.why or each.found.damaged for each in checked)


def _print_verified(checked: _Checked) -> None:
    found = checked.found
    if checked.why is not None:
        _console.print(f"{checked.path} is damaged: {checked.why}")
        return
    read = f"{found.ranges} ranges, {format_bytes(found.stored_bytes)}"
    if not found.damaged:
        _console.print(f"{checked.path} is whole: {read}")
        return
    _console.print(f"{checked.path} is damaged: {len(found.damaged)} of {read}")
    for damage in found.damaged:
        _console.print(f"  {damage.message}")


def _verified_json(checked: _Checked) -> dict[str, Any]:
    found = checked.found
    damaged = [damage._asdict() for damage in found.damaged]
    told = {"path": checked.path, "ranges": found.ranges, "stored_bytes": found.stored_bytes, "damaged": damaged}
    return told if checked.why is None else {**told, "metadata": checked.why}
