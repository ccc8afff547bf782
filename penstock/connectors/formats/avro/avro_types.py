"""Describes the types of an Avro schema, and the types of rows that they become."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from importlib import import_module
from typing import Any

from penstock.common.row_types.columns import ColumnType
from penstock.common.row_types.composite_types import RowType
from penstock.common.types import Types

_PLAIN = {
    "boolean": Types.BOOLEAN(),
    "int": Types.INT(),
    "long": Types.LONG(),
    "float": Types.FLOAT(),
    "double": Types.DOUBLE(),
    "bytes": Types.PRIMITIVE_ARRAY(Types.BYTE()),
    "string": Types.STRING(),
}

_LOGICAL = {
    "date": (("int",), Types.SQL_DATE()),
    "time-millis": (("int",), Types.SQL_TIME()),
    "time-micros": (("long",), Types.SQL_TIME()),
    "timestamp-millis": (("long",), Types.SQL_TIMESTAMP()),
    "timestamp-micros": (("long",), Types.SQL_TIMESTAMP()),
    "local-timestamp-millis": (("long",), Types.SQL_TIMESTAMP()),
    "local-timestamp-micros": (("long",), Types.SQL_TIMESTAMP()),
    "decimal": (("bytes", "fixed"), Types.BIG_DEC()),
}
"""Logical types by name: the types that may carry each, and the type of its values. Others are ignored, as Avro wants
it."""

_OF_LOGICAL = ("logicalType", "precision", "scale")


@dataclass(frozen=True)
class AvroType:
    """Describes values of one place in a schema.

    `kind` is Avro's name. A union of null and one other type is the other type: `value_branch` and `null_branch` are
    the branch numbers of the type and of null in the union; None if there is none.
    """

    kind: str
    type: ColumnType
    value_branch: int | None = None
    null_branch: int | None = None
    fields: tuple[tuple[str, AvroType], ...] = ()
    element: AvroType | None = None
    symbols: tuple[str, ...] = ()
    size: int = 0
    logical: str | None = None
    scale: int = 0


def avro_library() -> Any:
    """Import the library of Avro. Raises `ImportError`, which says what to install."""
    try:
        return import_module("fastavro")
    except ImportError as error:
        raise ImportError(f"Avro's library is not installed ({error}): pip install 'penstock[avro]'") from None


@dataclass(frozen=True)
class AvroSchema:
    """Holds the text of a schema. `referenced` are the texts of those that it refers to, the innermost first."""

    text: str
    referenced: tuple[str, ...] = ()

    @cached_property
    def record(self) -> AvroType:
        """Return the type of the record.

        Raises:
            ValueError: The text is no schema.
            TypeError: It is no record, or a field cannot be one of a row. The message names it.
        """
        schema = self._parsed(json.loads)
        named = schema.get("__named_schemas", {}) if isinstance(schema, dict) else {}
        found = _described(schema, "the schema", dict(named), ())
        if found.kind != "record" or found.value_branch is not None:
            raise TypeError(f"rows of Avro are records, but the schema is of type {found.kind!r}")
        return found

    @cached_property
    def physical(self) -> Any:
        """Return the schema without logical types, as fastavro has it, its defaults as it writes them."""
        parsed = self._parsed(lambda text: _without_logical(json.loads(text)))
        named = dict(parsed.get("__named_schemas", {})) if isinstance(parsed, dict) else {}
        for schema in (parsed, *named.values()):
            _set_defaults(schema, named)
        return parsed

    @cached_property
    def canonical(self) -> str:
        """Return the parsing canonical form. Records of equal ones are the same bytes."""
        return str(avro_library().schema.to_parsing_canonical_form(self._parsed(json.loads)))

    def _parsed(self, read: Callable[[str], Any]) -> Any:
        library = avro_library()
        named: dict[str, Any] = {}
        try:
            for other in self.referenced:
                library.parse_schema(read(other), named)
            return library.parse_schema(read(self.text), named)
        except (library.schema.SchemaParseException, library.schema.UnknownType, ValueError, KeyError) as error:
            what = f"{type(error).__name__}: {error}"
            raise ValueError(f"it is no Avro schema ({what}). It begins: {self.text[:100]!r}") from None


def _without_logical(schema: Any) -> Any:
    if isinstance(schema, dict):
        return {key: _without_logical(value) for key, value in schema.items() if key not in _OF_LOGICAL}
    return [_without_logical(each) for each in schema] if isinstance(schema, list) else schema


def _set_defaults(schema: Any, named: dict[str, Any]) -> None:
    """Replace the defaults of all fields by values that can be written. fastavro takes them as they are in JSON, where
    bytes are a string.
    """
    if isinstance(schema, list):
        for branch in schema:
            _set_defaults(branch, named)
    if not isinstance(schema, dict):
        return
    if schema.get("name") is not None:
        named.setdefault(schema["name"], schema)
    for part in ("type", "items", "values"):
        _set_defaults(schema.get(part), named)
    for field in schema.get("fields", ()):
        _set_defaults(field["type"], named)
        if "default" in field:
            field["default"] = _value_of_default(field["type"], field["default"], named)


def _value_of_default(schema: Any, default: Any, named: dict[str, Any]) -> Any:
    if isinstance(schema, list):
        if default is None:
            return None
        return _value_of_default(next(branch for branch in schema if branch != "null"), default, named)
    kind = schema if isinstance(schema, str) else schema["type"]
    if isinstance(schema, str) and schema in named:
        return _value_of_default(named[schema], default, named)
    if isinstance(kind, (dict, list)):
        return _value_of_default(kind, default, named)
    match kind:
        case "bytes" | "fixed":
            return default.encode("latin-1") if isinstance(default, str) else default
        case "array":
            return [_value_of_default(schema["items"], item, named) for item in default]
        case "map":
            return {key: _value_of_default(schema["values"], item, named) for key, item in default.items()}
        case "record" | "error":
            types = {field["name"]: field["type"] for field in schema["fields"]}
            return {name: _value_of_default(types[name], item, named) for name, item in default.items()}
    return default


def other_unit(ours: AvroType, theirs: AvroType, where: str = "") -> str | None:
    """Return which value would be another one: both schemas hold it as a number, but of another unit or scale.

    Avro's rules for reading records of another schema see the numbers only.

    Args:
        ours: The type that records are read as.
        theirs: The type that they were written as.
        where: The field.

    Returns:
        The field and both units; None if all values stay the same.
    """
    if ours.logical != theirs.logical or ours.scale != theirs.scale:
        units = [
            f"{kind.logical or kind.kind}{f' of scale {kind.scale}' if kind.scale else ''}" for kind in (theirs, ours)
        ]
        if None not in (ours.logical, theirs.logical):
            return f"field {where!r} was written as {units[0]}, and is read as {units[1]}"
    if ours.element is not None and theirs.element is not None:
        return other_unit(ours.element, theirs.element, where)
    written = dict(theirs.fields)
    for name, kind in ours.fields:
        if name in written and (found := other_unit(kind, written[name], f"{where}.{name}" if where else name)):
            return found
    return None


def _described(schema: Any, where: str, named: dict[str, Any], inside: tuple[str, ...]) -> AvroType:
    if isinstance(schema, list):
        return _of_union(schema, where, named, inside)
    if isinstance(schema, str) and schema not in _PLAIN:
        if schema not in named:
            raise TypeError(f"{where} is of type {schema!r}, which no column can be. Unions of null and one type can")
        schema = named[schema]
    kind = schema if isinstance(schema, str) else schema["type"]
    if isinstance(kind, (dict, list)):
        return _described(kind, where, named, inside)
    if isinstance(schema, str):
        return AvroType(kind, _PLAIN[kind])
    if kind in ("record", "enum", "fixed", "error"):
        named[schema["name"]] = schema
    if (logical := schema.get("logicalType")) in _LOGICAL and kind in _LOGICAL[logical][0]:
        scale = schema.get("scale", 0)
        type = _decimal(schema.get("precision", 0), scale) if logical == "decimal" else _LOGICAL[logical][1]
        return AvroType(kind, type, logical=logical, scale=scale, size=schema.get("size", 0))
    match kind:
        case "record" | "error":
            return _of_record(schema, where, named, inside)
        case "enum":
            return AvroType(kind, Types.STRING(), symbols=tuple(schema["symbols"]))
        case "fixed":
            return AvroType(kind, _PLAIN["bytes"], size=schema["size"])
        case "array":
            element = _described(schema["items"], f"an element of {where}", named, inside)
            return AvroType(kind, Types.OBJECT_ARRAY(element.type), element=element)
        case "map":
            element = _described(schema["values"], f"a value of {where}", named, inside)
            return AvroType(kind, Types.MAP(Types.STRING(), element.type), element=element)
        case _:
            return _described(kind, where, named, inside)


def _decimal(precision: int, scale: int) -> ColumnType:
    """Return the type of decimals: BIG_DEC for those of more digits than a column of numbers can have."""
    try:
        return Types.DECIMAL(precision, scale)
    except ValueError:
        return Types.BIG_DEC()


def _of_record(schema: Any, where: str, named: dict[str, Any], inside: tuple[str, ...]) -> AvroType:
    name = schema["name"]
    if name in inside:
        raise TypeError(f"{where} is a record {name!r} inside of itself, which no column can be")
    fields = tuple(
        (f["name"], _described(f["type"], f"field {f['name']!r}", named, (*inside, name))) for f in schema["fields"]
    )
    if not fields:
        raise TypeError(f"{where} is a record without fields, which no column can be")
    return AvroType("record", RowType(tuple(t.type for _, t in fields), tuple(n for n, _ in fields)), fields=fields)


def _of_union(schema: list[Any], where: str, named: dict[str, Any], inside: tuple[str, ...]) -> AvroType:
    values = [index for index, branch in enumerate(schema) if branch != "null"]
    if len(values) != 1 or len(schema) > 2:
        names = [b if isinstance(b, str) else str(b.get("name", b["type"])) for b in schema]
        raise TypeError(f"{where} is a union of {', '.join(names)}: only unions of null and one type can be a column")
    found = _described(schema[values[0]], where, named, inside)
    return replace(found, value_branch=values[0], null_branch=schema.index("null") if len(schema) == 2 else None)
