"""Explains which stream, or which other method, has the method that a stream does not have.

The errors are AttributeErrors, so that `hasattr` stays true.
"""

from __future__ import annotations

import difflib
from typing import Any

import pyarrow as pa
import pyarrow.types as kinds

from penstock.common.missing_names import advice_for
from penstock.common.types import PICKLED
from penstock.datastream._streams.stream import Stream

_WINDOW = "window(TumblingEventTimeWindows.of(Duration.of_minutes(1)))"
_KEYED = {
    "window": _WINDOW,
    "reduce": "reduce(lambda a, b: ...)",
    "sum": "sum({value!r})",
    "min": "min({value!r})",
    "max": "max({value!r})",
    "min_by": "min_by({value!r})",
    "max_by": "max_by({value!r})",
}
"""The methods that only keyed streams have, each with an example."""
_FOR_ALL_ROWS = {"window": "; windows of all rows, in one subtask, are window_all(...)"}
_KEYED_BY_COLUMNS = {"aggregate": "aggregate(total=sum_({value!r}))", "count": "count()", "mean": "mean({value!r})"}
_WINDOWED_BY_COLUMNS = {
    **_KEYED_BY_COLUMNS, "sum": _KEYED["sum"], "min": _KEYED["min"], "max": _KEYED["max"],
}  # fmt: skip


def of_stream(stream: Stream, name: str) -> AttributeError:
    """Return the error for a name that this stream, keyed or not, does not have."""
    is_keyed = stream._partitioner is not None
    text = f"{type(stream).__name__!r} object has no attribute {name!r}"
    if name in _KEYED_BY_COLUMNS:
        by = "is keyed by a selector" if is_keyed else "is not keyed"
        text = (
            f"{name}() belongs to streams that are keyed by columns, and {origin(stream)} {by}: "
            f"{_call(stream, _KEYED_BY_COLUMNS[name])}{_untyped(stream)}"
        )
    elif name in _KEYED and not is_keyed:
        example = _call(stream, _KEYED[name], by_selector=True) + _FOR_ALL_ROWS.get(name, "")
        text = (
            f"{name}() belongs to keyed streams, and {origin(stream)} is not keyed: call key_by() before it, with "
            f"a column or a function of a row, e.g. {example}"
        )
    elif (advice := advice_for(type(stream), name)) is not None:
        text = f"a stream has no {name}(): {advice}"
    else:
        text += _similar(stream, name)
    return AttributeError(text)


def of_windows(windowed: Any, stream: Stream, name: str) -> AttributeError:
    """Return the error for a name that a windowed stream does not have. `stream`: the keyed one that it was made of."""
    text = f"{type(windowed).__name__!r} object has no attribute {name!r}"
    if name in _WINDOWED_BY_COLUMNS:
        text = aggregate_of_windows(stream, name)
    elif (advice := advice_for(type(windowed), name)) is not None:
        text = f"windows have no {name}(): {advice}"
    else:
        text += _similar(windowed, name)
    return AttributeError(text)


def aggregate_of_windows(stream: Stream, name: str) -> str:
    """Explain why windows whose keys a selector makes have no built-in aggregates."""
    call = _call(stream, f"{_WINDOW}.{_WINDOWED_BY_COLUMNS[name]}")
    return (
        f"{name}() over columns belongs to windows of streams that are keyed by columns, and {origin(stream)} is "
        f"keyed by a selector: {call}{_untyped(stream)}; functions of rows go to reduce(), aggregate() and "
        "process()"
    )


def of_connected(connected: Any, name: str) -> AttributeError:
    """Return the error for a name that connected streams do not have."""
    text = f"{type(connected).__name__!r} object has no attribute {name!r}"
    if name in _KEYED or name in _KEYED_BY_COLUMNS or name in ("filter", "select", "union", "print", "sink_to"):
        text = (
            f"two connected streams have no {name}(): bring their rows into one stream first, with map(), "
            "flat_map() or process(), e.g. connected.map(CoMapFunction)"
        )
    else:
        text += _similar(connected, name)
    return AttributeError(text)


def of_broadcast(broadcast: Any, name: str) -> AttributeError:
    """Return the error for a name that a broadcast stream with state does not have."""
    return AttributeError(
        f"{type(broadcast).__name__!r} object has no attribute {name!r}: its rows go to the function of "
        "stream.connect(broadcast_stream).process(...); broadcast() without a state descriptor returns a stream"
    )


def _similar(stream: Any, name: str) -> str:
    found = difflib.get_close_matches(name, [n for n in dir(type(stream)) if not n.startswith("_")], n=1)
    return f"; did you mean {found[0]!r}?" if found else ""


def origin(stream: Stream) -> str:
    """Return "the stream of operator 'Map'", or of several."""
    names = list(dict.fromkeys(repr(i.node.name) for i in stream._inputs))
    if len(names) == 1:
        return f"the stream of operator {names[0]}"
    return f"the union of {', '.join(names[:-1])} and {names[-1]}"


def _call(stream: Stream, example: str, by_selector: bool = False) -> str:
    """Return an example call, with the stream's own columns. `by_selector`: if it has none, use a selector."""
    schema = _schema(stream)
    if schema is None:
        key, value = ("lambda row: ...", 1) if by_selector else ("'user'", "amount")
    else:
        numbers = [f.name for f in schema if kinds.is_integer(f.type) or kinds.is_floating(f.type)]
        name = schema.names[0]
        key, value = repr(name), next((n for n in numbers if n != name), name)
    return f"stream.key_by({key}).{example.format(value=value)}"


def _untyped(stream: Stream) -> str:
    if _schema(stream) is not None:
        return ""
    return (
        "; its rows have no columns yet, so give that operator an output_type, e.g. "
        "Types.ROW_NAMED(['user', 'amount'], [Types.STRING(), Types.LONG()])"
    )


def _schema(stream: Stream) -> pa.Schema | None:
    return None if stream._type is None or stream._type == PICKLED else stream._type.schema
