"""Configuration: a job's options as text, read by typed options, and where they come from.

What the program sets counts before `-D key=value` of the command line, and that before `config.yaml` (or Flink's
`flink-conf.yaml`) in `$PENSTOCK_CONF_DIR`.
"""

from __future__ import annotations

import warnings
from typing import AbstractSet, Any, Callable, Iterable, Mapping, TypeVar, overload

from penstock.common.options.foreign import is_foreign
from penstock.common.options.option import BOOLEAN, FLOATING, INTEGER, ConfigOption, OptionError
from penstock.common.options.registry import DEPRECATED, OPTIONS, check_key

T = TypeVar("T")


class OptionWarning(UserWarning):
    """An option that is old, or that has no effect here."""


class Configuration:
    """Options by key. A key of Flink 1.x is kept under the one that has taken its place.

    `get(option)` reads a typed value or the default. The getters and setters by key are PyFlink's. Keys and values
    are checked by `validate`, which the environment calls.
    """

    def __init__(self, options: Mapping[str, Any] | None = None) -> None:
        self._texts: dict[str, str] = {}
        self._old_keys: dict[str, str] = {}
        for key, value in (options or {}).items():
            self.set(key, value)

    # ---- typed options ----------------------------------------------------------------------------------------

    @overload
    def get(self, option: ConfigOption[T]) -> T: ...
    @overload
    def get(self, option: str) -> Any: ...

    def get(self, option: ConfigOption[Any] | str) -> Any:
        """The value in its own type: Duration, bytes as int, enum, ... Raises `OptionError`."""
        if isinstance(option, str):
            key = DEPRECATED.get(option, option)
            check_key(key)
            if key not in OPTIONS:
                raise OptionError(f"{key} has no type here; read it by get_string", key)
            option = OPTIONS[key]
        text = self._texts.get(option.key)
        return option.default if text is None else option.parse(text)

    def set(self, option: ConfigOption[Any] | str, value: Any) -> Configuration:
        """The value as text or in its own type (or a plain equivalent: a timedelta, a number of milliseconds)."""
        key = option if isinstance(option, str) else option.key
        if not isinstance(key, str) or not key:
            raise TypeError(f"an option's key is a non-empty string, got {key!r}")
        new_key = DEPRECATED.get(key, key)
        if new_key != key:
            self._old_keys[key] = new_key
        known = OPTIONS.get(new_key)
        self._texts[new_key] = known.text(value) if known else _plain_text(key, value)
        return self

    def contains(self, option: ConfigOption[Any]) -> bool:
        return option.key in self._texts

    # ---- PyFlink's ---------------------------------------------------------------------------------------------

    def get_string(self, key: str, default_value: str) -> str:
        return self._texts.get(DEPRECATED.get(key, key), default_value)

    def set_string(self, key: str, value: str) -> Configuration:
        return self.set(key, value)

    def get_integer(self, key: str, default_value: int) -> int:
        return self._typed(key, INTEGER.parse, default_value)

    def set_integer(self, key: str, value: int) -> Configuration:
        return self.set(key, value)

    def get_boolean(self, key: str, default_value: bool) -> bool:
        return self._typed(key, BOOLEAN.parse, default_value)

    def set_boolean(self, key: str, value: bool) -> Configuration:
        return self.set(key, value)

    def get_float(self, key: str, default_value: float) -> float:
        return self._typed(key, FLOATING.parse, default_value)

    def set_float(self, key: str, value: float) -> Configuration:
        return self.set(key, value)

    def _typed(self, key: str, parse: Callable[[str], T], default: T) -> T:
        text = self._texts.get(DEPRECATED.get(key, key))
        if text is None:
            return default
        try:
            return parse(text.strip())
        except ValueError as error:
            raise OptionError(f"{key}: {error}", key) from None

    def key_set(self) -> AbstractSet[str]:
        return frozenset(self._texts)

    def contains_key(self, key: str) -> bool:
        return DEPRECATED.get(key, key) in self._texts

    def remove_config(self, key: str) -> bool:
        """Whether there was one."""
        return self._texts.pop(DEPRECATED.get(key, key), None) is not None

    def add_all(self, other: Configuration, prefix: str | None = None) -> None:
        """What `other` says counts before what is here."""
        for key, text in other._texts.items():
            self.set((prefix or "") + key, text)
        self._old_keys.update(other._old_keys)

    def add_all_to_dict(self, target_dict: dict[str, str]) -> None:
        target_dict.update(self._texts)

    def to_dict(self) -> dict[str, str]:
        return dict(self._texts)

    # ---- checks ------------------------------------------------------------------------------------------------

    def validate(self) -> None:
        """Reads every value once. Warns of old keys, and (one warning for all) of keys that have no effect here, at the
        line of the program that called the environment.

        Raises `OptionError` for an unknown key or an impossible value."""
        foreign = []
        for key, text in self._texts.items():
            check_key(key)
            if key in OPTIONS:
                OPTIONS[key].parse(text)
            elif is_foreign(key):
                foreign.append(key)
        for old, new in self._old_keys.items():
            warnings.warn(f"the option {old} is now called {new}", OptionWarning, stacklevel=4)
        self._old_keys.clear()
        if foreign:
            warnings.warn(
                f"options of Flink that have no effect here: {', '.join(sorted(foreign))}", OptionWarning, stacklevel=4
            )

    def copy(self) -> Configuration:
        twin = Configuration()
        twin._texts.update(self._texts)
        twin._old_keys.update(self._old_keys)
        return twin

    def __deepcopy__(self, memo: Any) -> Configuration:
        return self.copy()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Configuration) and self._texts == other._texts

    def __hash__(self) -> int:
        return hash(frozenset(self._texts.items()))

    def __repr__(self) -> str:
        return f"Configuration({self._texts!r})"


def _plain_text(key: str, value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, (str, int, float)):
        return str(value)
    if isinstance(value, Iterable) and all(isinstance(v, (str, int, float)) for v in value):
        return ";".join(map(str, value))
    raise OptionError(f"{key}: {value!r} is no text, number or boolean", key)
