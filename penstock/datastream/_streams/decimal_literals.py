"""Types the whole numbers that stand next to decimals in an expression.

Arrow gives the literal 2 the type int8 and cannot convert it to a decimal: `pc.field("price") * 2` fails. Here such a
literal becomes a decimal with just its own digits, so that the result has no more digits than it needs.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from decimal import Decimal

import pyarrow as pa
import pyarrow.compute as pc

TypeOf = Callable[[pc.Expression], pa.DataType]

_COMPARISONS = frozenset({"equal", "not_equal", "less", "less_equal", "greater", "greater_equal"})
_ARITHMETIC = frozenset(
    f"{name}{checked}"
    for name in ("add", "subtract", "multiply", "divide", "modulo", "remainder")
    for checked in ("", "_checked")
)
_CHOICES = frozenset({"if_else", "coalesce", "case_when", "max_element_wise", "min_element_wise"})
_TYPED = _COMPARISONS | _ARITHMETIC | _CHOICES
_LOOKUP = "is_in"
_DIGITS_MAX = 38

_Pair = tuple[bytes, bytes]


@dataclass
class _Node:
    """Holds a part of an expression: a call if it has a function, else a field or a literal.

    `pairs`: a field, as it is serialized.
    """

    function: str = ""
    arguments: tuple[_Node, ...] = ()
    options: pa.Array | None = None
    literal: pa.Array | None = None
    pairs: tuple[_Pair, ...] = ()


def with_decimal_literals(expression: pc.Expression, schema: pa.Schema, type_of: TypeOf) -> pc.Expression:
    """Return an expression in which whole numbers next to decimals are decimals.

    Args:
        expression: The expression.
        schema: The columns.
        type_of: Returns the type of an expression over the columns.

    Returns:
        The expression: the same one if no column is a decimal, or if no number has to change.

    Raises:
        pa.ArrowException: A part of the expression does not fit the columns.
    """
    if not any(_has_decimals(field.type) for field in schema):
        return expression
    try:
        make, (data, *_) = expression.__reduce__()
        batch = pa.ipc.open_file(data).get_batch(0)
    except pa.ArrowException:  # Arrow cannot serialize fields that are named by their number
        return expression
    rest = iter(_metadata(batch.schema))
    given = _parsed(*next(rest), rest, batch)
    typed = _typed(given, lambda node: type_of(make(_serialized(node))))
    return expression if typed is given else make(_serialized(typed))


def _has_decimals(type: pa.DataType) -> bool:
    return pa.types.is_decimal(type) or any(_has_decimals(type.field(i).type) for i in range(type.num_fields))


def _typed(node: _Node, type_of: Callable[[_Node], pa.DataType]) -> _Node:
    arguments = tuple(_typed(argument, type_of) for argument in node.arguments)
    if node.function in _TYPED and any(_is_whole(argument) for argument in arguments):
        types = [type_of(argument) for argument in arguments if not _is_whole(argument)]
        decimals = [type for type in types if pa.types.is_decimal(type)]
        if decimals and not any(pa.types.is_floating(type) for type in types):
            arguments = tuple(_as_decimal(argument, node.function, decimals) for argument in arguments)
    options = node.options
    if node.function == _LOOKUP and options is not None:
        options = _looked_up(options, type_of(arguments[0]))
    if options is node.options and all(now is before for now, before in zip(arguments, node.arguments)):
        return node
    return _Node(node.function, arguments, options)


def _looked_up(options: pa.StructArray, type: pa.DataType) -> pa.StructArray:
    """Return the options of `isin` with the numbers in the type of the column, which Arrow would cast to theirs."""
    values = options.field("value_set").flatten()
    if not pa.types.is_decimal(type) or not (pa.types.is_integer(values.type) or pa.types.is_decimal(values.type)):
        return options
    kept = [value for value in values.to_pylist() if value is None or _fits(Decimal(value), type)]
    # A number that the column cannot hold is equal to none of its values.
    values = pa.array([None if value is None else Decimal(value) for value in kept], type)
    fields = [field.name for field in options.type]
    columns = [options.field(name) for name in fields]
    columns[fields.index("value_set")] = pa.ListArray.from_arrays(pa.array([0, len(values)], pa.int32()), values)
    return pa.StructArray.from_arrays(columns, names=fields)


def _fits(number: Decimal, type: pa.DataType) -> bool:
    try:
        pa.scalar(number, type)
    except pa.ArrowException:
        return False
    return True


def _is_whole(node: _Node) -> bool:
    return node.literal is not None and pa.types.is_integer(node.literal.type) and not node.literal.null_count


def _as_decimal(node: _Node, function: str, decimals: list[pa.DataType]) -> _Node:
    if not _is_whole(node):
        return node
    assert node.literal is not None
    number = node.literal[0].as_py()
    digits, scale = len(str(abs(number))), max(type.scale for type in decimals)
    if function in _CHOICES:
        # A choice has kernels only for arguments of one type, which has to hold the number.
        if digits + scale > _DIGITS_MAX:
            raise pa.ArrowInvalid(f"Decimal precision out of range [1, {_DIGITS_MAX}]: {digits + scale}")
        whole = max(digits, *(type.precision - type.scale for type in decimals))
        return _Node(literal=pa.array([Decimal(number)], pa.decimal128(min(whole + scale, _DIGITS_MAX), scale)))
    # A comparison has no digits, so it may be made with more of them than a column may have.
    wide = function in _COMPARISONS and digits + scale > _DIGITS_MAX
    return _Node(literal=pa.array([Decimal(number)], (pa.decimal256 if wide else pa.decimal128)(digits, 0)))


# ---- how Arrow serializes an expression: a batch with the literals, and the tree in the schema's metadata ----------


def _parsed(key: bytes, value: bytes, rest: Iterator[_Pair], batch: pa.RecordBatch) -> _Node:
    """Return the part that begins with a pair, and read to its end."""
    if key == b"literal":
        return _Node(literal=batch.column(int(value)))
    if key != b"call":
        return _Node(pairs=tuple(_field(key, value, rest)))
    function, options = value.decode(), None
    arguments: list[_Node] = []
    for key, value in rest:
        if key == b"end":
            break
        if key == b"options":
            options = batch.column(int(value))
        else:
            arguments.append(_parsed(key, value, rest, batch))
    return _Node(function, tuple(arguments), options)


def _field(key: bytes, value: bytes, rest: Iterator[_Pair]) -> Iterator[_Pair]:
    yield key, value
    if key == b"nested_field_ref":
        for _ in range(int(value)):
            yield from _field(*next(rest), rest)


def _serialized(node: _Node) -> pa.Buffer:
    columns: list[pa.Array] = []
    pairs = list(_pairs(node, columns))
    metadata = pa.KeyValueMetadata(pairs)
    schema = pa.schema([("", column.type) for column in columns], metadata=metadata)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, schema) as writer:
        writer.write_batch(pa.RecordBatch.from_arrays(columns, schema=schema) if columns else _without_columns(schema))
    return sink.getvalue()


def _without_columns(schema: pa.Schema) -> pa.RecordBatch:
    one = pa.StructArray.from_arrays([], fields=[], mask=pa.array([False]))
    return pa.RecordBatch.from_struct_array(one).replace_schema_metadata(schema.metadata)


def _pairs(node: _Node, columns: list[pa.Array]) -> Iterator[_Pair]:
    if node.literal is not None:
        columns.append(node.literal)
        yield b"literal", str(len(columns) - 1).encode()
        return
    if not node.function:
        yield from node.pairs
        return
    yield b"call", node.function.encode()
    for argument in node.arguments:
        yield from _pairs(argument, columns)
    if node.options is not None:
        columns.append(node.options)
        yield b"options", str(len(columns) - 1).encode()
    yield b"end", node.function.encode()


class _CSchema(ctypes.Structure):
    """Represents the beginning of `ArrowSchema`, of Arrow's C data interface."""

    _fields_ = [("format", ctypes.c_void_p), ("name", ctypes.c_void_p), ("metadata", ctypes.c_void_p)]


def _metadata(schema: pa.Schema) -> list[_Pair]:
    """Return the metadata with repeated keys, of which `schema.metadata` keeps the last."""
    capsule = schema.__arrow_c_schema__()
    pointer = ctypes.pythonapi.PyCapsule_GetPointer
    pointer.restype, pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    at = _CSchema.from_address(pointer(capsule, b"arrow_schema")).metadata
    if not at:
        return []

    def number() -> int:
        nonlocal at
        read = ctypes.c_int32.from_address(at).value
        at += 4
        return read

    def text() -> bytes:
        nonlocal at
        size = number()
        read = ctypes.string_at(at, size)
        at += size
        return read

    return [(text(), text()) for _ in range(number())]
