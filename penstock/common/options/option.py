"""Defines an option: a key, a type that reads its text, a default and a description."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum
from typing import Any, Callable, Generic, TypeVar

from penstock.common.time import Duration

T = TypeVar("T")


class OptionError(ValueError):
    """Reports an option that does not exist or has a value that makes no sense. `key` is None if there is no key."""

    def __init__(self, message: str, key: str | None = None) -> None:
        super().__init__(message)
        self.key = key


@dataclass(frozen=True)
class OptionType(Generic[T]):
    """Describes the values of an option: `parse` reads a value from text, `text` writes one. Both raise ValueError."""

    name: str
    parse: Callable[[str], T]
    text: Callable[[Any], str]


@dataclass(frozen=True, eq=False)
class ConfigOption(Generic[T]):
    """Describes an option: its key, type, default (None: not set) and purpose.

    `check` is a function of a value that returns why it is refused, or None. `deprecated_keys` are keys of older
    versions.
    """

    key: str
    type: OptionType[Any]
    default: T
    description: str
    deprecated_keys: tuple[str, ...] = ()
    check: Callable[[Any], str | None] | None = None

    def parse(self, text: str) -> T:
        """Read a value from text.

        Args:
            text: The text.

        Returns:
            The value.

        Raises:
            OptionError: The text is no value of this option. The message names the key.
        """
        try:
            value: T = self.type.parse(text.strip())
        except ValueError as error:
            raise OptionError(f"{self.key}: {error}", self.key) from None
        refused = self.check(value) if self.check else None
        if refused:
            raise OptionError(f"{self.key}: {text!r} is refused: {refused}", self.key)
        return value

    def text(self, value: Any) -> str:
        """Write a value as text that `parse` can read.

        Args:
            value: A value, or its text.

        Returns:
            The text.

        Raises:
            OptionError: The value is none of this option.
        """
        try:
            text = value if isinstance(value, str) else self.type.text(value)
        except (ValueError, TypeError, AttributeError) as error:
            raise OptionError(f"{self.key}: {value!r} is no {self.type.name}: {error}", self.key) from None
        self.parse(text)
        return text

    @property
    def default_text(self) -> str:
        """Return the default as text; "(none)" if there is none."""
        return "(none)" if self.default is None else self.type.text(self.default)


def _boolean(text: str) -> bool:
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    raise ValueError(f"{text!r} is no boolean: write true or false")


def _integer(text: str) -> int:
    if re.fullmatch(r"[+-]?\d+", text):
        return int(text)
    raise ValueError(f"{text!r} is no whole number")


def _floating(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise ValueError(f"{text!r} is no number") from None


_MEMORY_UNITS = {"": 1, "b": 1, "bytes": 1}
for _power, _names in enumerate(("k kb kibibytes", "m mb mebibytes", "g gb gibibytes", "t tb tebibytes"), start=1):
    _MEMORY_UNITS.update(dict.fromkeys(_names.split(), 1024**_power))


def _memory(text: str) -> int:
    found = re.fullmatch(r"(\d+)\s*([a-z]*)", text.lower())
    if found is None or found[2] not in _MEMORY_UNITS:
        raise ValueError(f"{text!r} is no amount of memory: write a whole number and a unit, e.g. '32 kb' or '5 mb'")
    return int(found[1]) * _MEMORY_UNITS[found[2]]


def _memory_text(size_bytes: int) -> str:
    for unit, size in (("gb", 1024**3), ("mb", 1024**2), ("kb", 1024)):
        if size_bytes and size_bytes % size == 0:
            return f"{size_bytes // size} {unit}"
    return f"{int(size_bytes)} bytes"


def _ports(text: str) -> tuple[range, ...]:
    ranges = []
    for part in text.split(","):
        found = re.fullmatch(r"\s*(\d+)\s*(?:-\s*(\d+)\s*)?", part)
        first, last = (int(found[1]), int(found[2] or found[1])) if found else (1, 0)
        if first > last or last > 65535:
            raise ValueError(
                f"{text!r} is no port range: write '0' (any free port), '50100', '50100-50200' or a list "
                "of those with commas"
            )
        ranges.append(range(first, last + 1))
    return tuple(ranges)


def _ports_text(ranges: Any) -> str:
    if isinstance(ranges, int):
        return str(ranges)
    return ",".join(str(r[0]) if len(r) == 1 else f"{r[0]}-{r[-1]}" for r in ranges)


def _mapping(text: str) -> dict[str, str]:
    pairs = {}
    for part in filter(None, (p.strip() for p in text.split(","))):
        key, colon, value = part.partition(":")
        if not colon:
            raise ValueError(f"{part!r} is no 'key:value' pair; pairs are separated by commas")
        pairs[key.strip()] = value.strip()
    return pairs


BOOLEAN = OptionType("boolean", _boolean, lambda v: str(bool(v)).lower())
INTEGER = OptionType("integer", _integer, lambda v: str(int(v)))
FLOATING = OptionType("double", _floating, lambda v: repr(float(v)))
STRING = OptionType("string", str, str)
DURATION = OptionType("duration", Duration.parse, lambda v: str(Duration.of(v)))
MEMORY = OptionType("memory size", _memory, _memory_text)
PORTS = OptionType("port range", _ports, _ports_text)
MAPPING = OptionType("map", _mapping, lambda v: ",".join(f"{k}:{x}" for k, x in v.items()))
STRINGS = OptionType(
    "list of strings",
    lambda text: tuple(p.strip() for p in text.replace(";", ",").split(",") if p.strip()),
    lambda v: ",".join(v),
)
"""The type of options that are a tuple of strings, separated in text by commas or semicolons."""


def enumeration(enum: type[Enum]) -> OptionType[Any]:
    """Make the type of options whose values are members of an enum, named without regard to case, as in Flink.

    Args:
        enum: The enum.

    Returns:
        The type.

    Raises:
        ValueError: Its `parse` was given another name.
    """

    def parse(text: str) -> Enum:
        name = text.upper().replace("-", "_")
        if name in enum.__members__:
            return enum[name]
        raise ValueError(f"{text!r} is none of {', '.join(enum.__members__)}")

    return OptionType("enum: " + ", ".join(enum.__members__), parse, lambda v: enum(v).name)


def choice(*names: str, aliases: dict[str, str] | None = None) -> OptionType[str]:
    """Make the type of options whose values are one of a few words.

    Args:
        names: The words.
        aliases: Other words, and the word that each means.

    Returns:
        The type.

    Raises:
        ValueError: Its `parse` was given another word.
    """

    def parse(text: str) -> str:
        word = (aliases or {}).get(text.lower(), text.lower())
        if word in names:
            return word
        raise ValueError(f"{text!r} is none of {', '.join(names)}")

    return OptionType("one of " + ", ".join(names), parse, str)


def positive(value: Any) -> str | None:
    """Check that a value is more than 0.

    Args:
        value: A number or a `Duration`.

    Returns:
        Why it is refused, or None.
    """
    amount = value.nanoseconds if isinstance(value, Duration) else value
    return None if amount > 0 else "it must be more than 0"


def not_negative(value: Any) -> str | None:
    """Check that a value is not negative.

    Args:
        value: A number.

    Returns:
        Why it is refused, or None.
    """
    return None if value >= 0 else "it must not be negative"


def at_least(minimum: Any, label: str) -> Callable[[Any], str | None]:
    """Make a check that a value is not less than a minimum.

    Args:
        minimum: The minimum.
        label: The minimum as text.

    Returns:
        A function of a value that returns why it is refused, or None.
    """
    return lambda value: None if value >= minimum else f"it must be at least {label}"
