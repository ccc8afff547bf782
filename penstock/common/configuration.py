"""Defines Configuration: a job's options as text, read by typed options.

Settings of the program override `-D key=value` of the command line, and those override `config.yaml` (or Flink's
`flink-conf.yaml`) in `$PENSTOCK_CONF_DIR`.
"""

from __future__ import annotations

import base64
import warnings
from typing import AbstractSet, Any, Callable, Iterable, Mapping, TypeVar, overload

from penstock.common.options.foreign import is_foreign
from penstock.common.options.option import BOOLEAN, FLOATING, INTEGER, ConfigOption, OptionError
from penstock.common.options.registry import DEPRECATED, OPTIONS, check_key
from penstock.common.options.stores import is_secret

T = TypeVar("T")


class OptionWarning(UserWarning):
    """Warns of an option that has a new name, or that has no effect here."""


class Configuration:
    """Holds the options of a job as text, by key. A key of Flink 1.x is kept under the key that has replaced it.

    `get(option)` reads a typed value or the default. The getters and setters by key are PyFlink's. `validate`, which
    the environment calls, checks keys and values.

    Example:
        configuration = Configuration()
        configuration.set(CheckpointingOptions.CHECKPOINTING_INTERVAL, Duration.of_seconds(10))
        configuration.set("execution.checkpointing.dir", "/data/checkpoints")
    """

    def __init__(self, options: Mapping[str, Any] | Configuration | None = None) -> None:
        self._texts: dict[str, str] = {}
        self._old_keys: dict[str, str] = {}
        if isinstance(options, Configuration):
            self.add_all(options)
            return
        for key, value in (options or {}).items():
            self.set(key, value)

    @classmethod
    def from_dict(cls, map: Mapping[str, Any]) -> Configuration:
        """Make a configuration of options by key.

        Args:
            map: The options.

        Returns:
            The configuration.
        """
        return cls(map)

    # ---- typed options ----------------------------------------------------------------------------------------

    @overload
    def get(self, option: ConfigOption[T]) -> T: ...
    @overload
    def get(self, option: str) -> Any: ...

    def get(self, option: ConfigOption[Any] | str) -> Any:
        """Read an option in its own type: a `Duration`, an int for bytes, an enum.

        Args:
            option: The option, or its key.

        Returns:
            The value, or the option's default.

        Raises:
            OptionError: The value cannot be read, or no option has this key.
        """
        if isinstance(option, str):
            key = DEPRECATED.get(option, option)
            check_key(key)
            if key not in OPTIONS:
                raise OptionError(f"{key} has no type here; read it by get_string", key)
            option = OPTIONS[key]
        text = self._texts.get(option.key)
        return option.default if text is None else option.parse(text)

    def set(self, option: ConfigOption[Any] | str, value: Any) -> Configuration:
        """Set an option.

        Args:
            option: The option, or its key.
            value: A text, a value of the option's type, or an equivalent: a timedelta or a number of milliseconds for a
                duration.

        Returns:
            This configuration. Raises `OptionError` if the value makes no sense for the option.

        Raises:
            TypeError: The key is no text.
        """
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
        """Test whether an option was set.

        Args:
            option: The option.

        Returns:
            True if it was set, even to its default.
        """
        return option.key in self._texts

    # ---- PyFlink's ---------------------------------------------------------------------------------------------

    def get_string(self, key: str, default_value: str) -> str:
        """Read an option as text.

        Args:
            key: The key.
            default_value: Returned if the option is not set.

        Returns:
            The text.
        """
        return self._texts.get(DEPRECATED.get(key, key), default_value)

    def set_string(self, key: str, value: str) -> Configuration:
        """Set an option to a text.

        Args:
            key: The key.
            value: The text.

        Returns:
            This configuration.
        """
        return self.set(key, value)

    def get_integer(self, key: str, default_value: int) -> int:
        """Read an option as a whole number. Raises `OptionError` if its text is none.

        Args:
            key: The key.
            default_value: Returned if the option is not set.

        Returns:
            The number.
        """
        return self._typed(key, INTEGER.parse, default_value)

    def set_integer(self, key: str, value: int) -> Configuration:
        """Set an option to a whole number.

        Args:
            key: The key.
            value: The number.

        Returns:
            This configuration.
        """
        return self.set(key, value)

    def get_boolean(self, key: str, default_value: bool) -> bool:
        """Read an option as a boolean. Raises `OptionError` if its text is neither true nor false.

        Args:
            key: The key.
            default_value: Returned if the option is not set.

        Returns:
            The boolean.
        """
        return self._typed(key, BOOLEAN.parse, default_value)

    def set_boolean(self, key: str, value: bool) -> Configuration:
        """Set an option to a boolean.

        Args:
            key: The key.
            value: The boolean.

        Returns:
            This configuration.
        """
        return self.set(key, value)

    def get_float(self, key: str, default_value: float) -> float:
        """Read an option as a number. Raises `OptionError` if its text is none.

        Args:
            key: The key.
            default_value: Returned if the option is not set.

        Returns:
            The number.
        """
        return self._typed(key, FLOATING.parse, default_value)

    def set_float(self, key: str, value: float) -> Configuration:
        """Set an option to a number.

        Args:
            key: The key.
            value: The number.

        Returns:
            This configuration.
        """
        return self.set(key, value)

    def get_bytearray(self, key: str, default_value: bytearray) -> bytearray:
        """Read an option as bytes. Raises `OptionError` if it was not set by `set_bytearray`.

        Args:
            key: The key.
            default_value: Returned if the option is not set.

        Returns:
            The bytes.
        """
        return self._typed(key, _bytes, default_value)

    def set_bytearray(self, key: str, value: bytearray) -> Configuration:
        """Set an option to bytes, as the text of YAML's binary type.

        Args:
            key: The key.
            value: The bytes.

        Returns:
            This configuration.
        """
        return self.set(key, f"{_BINARY}{base64.b64encode(value).decode()}")

    @staticmethod
    def parse_list_value(value: str) -> list[Any]:
        """Read a list that was written as YAML, or with semicolons.

        Args:
            value: "[a, b]" or "a;b".

        Returns:
            The parts; none of an empty text.
        """
        if not value:
            return []
        import yaml  # imported here, because executors read no file, and may lack it

        found = yaml.safe_load(value)
        return found if isinstance(found, list) else value.split(";")

    def _typed(self, key: str, parse: Callable[[str], T], default: T) -> T:
        text = self._texts.get(DEPRECATED.get(key, key))
        if text is None:
            return default
        try:
            return parse(text.strip())
        except ValueError as error:
            raise OptionError(f"{key}: {error}", key) from None

    def key_set(self) -> AbstractSet[str]:
        """Return the keys of all options that were set."""
        return frozenset(self._texts)

    def contains_key(self, key: str) -> bool:
        """Test whether an option was set.

        Args:
            key: The key, or an older one of the same option.

        Returns:
            True if it was set.
        """
        return DEPRECATED.get(key, key) in self._texts

    def remove_config(self, key: str) -> bool:
        """Remove an option, so that its default counts again.

        Args:
            key: The key.

        Returns:
            True if it was set.
        """
        return self._texts.pop(DEPRECATED.get(key, key), None) is not None

    def add_all(self, other: Configuration, prefix: str | None = None) -> Configuration:
        """Set all options of another configuration, in place of those that are set here.

        Args:
            other: The other configuration.
            prefix: A text to put before each key.

        Returns:
            This configuration.
        """
        for key, text in other._texts.items():
            self.set((prefix or "") + key, text)
        self._old_keys.update(other._old_keys)
        return self

    def add_all_to_dict(self, target_dict: dict[str, str]) -> None:
        """Write all options to a dict, as texts by key.

        Args:
            target_dict: The dict.
        """
        target_dict.update(self._texts)

    def to_dict(self) -> dict[str, str]:
        """Return all options as texts by key."""
        return dict(self._texts)

    # ---- checks ------------------------------------------------------------------------------------------------

    def validate(self) -> None:
        """Check all keys and values.

        Warns (`OptionWarning`) of old keys, and once of all keys of Flink that have no effect here, at the program's
        line that called the environment. Raises `OptionError` for an unknown key or an impossible value.
        """
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
        """Return a configuration with the same options, which can be changed independently."""
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
        shown = {key: "***" if is_secret(key) else text for key, text in self._texts.items()}
        return f"Configuration({shown!r})"

    def __str__(self) -> str:
        shown = (f"{key}={'***' if is_secret(key) else text}" for key, text in self._texts.items())
        return f"{{{', '.join(shown)}}}"


_BINARY = "!!binary |-\n  "


def _bytes(text: str) -> bytearray:
    try:
        if text.startswith(_BINARY):
            return bytearray(base64.b64decode(text[len(_BINARY) :], validate=True))
    except ValueError:
        pass
    raise ValueError(f"{text!r:.80} are no bytes; set_bytearray() sets them")


def _plain_text(key: str, value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, (str, int, float)):
        return str(value)
    if isinstance(value, Iterable) and all(isinstance(v, (str, int, float)) for v in value):
        return ";".join(map(str, value))
    raise OptionError(f"{key}: {value!r} is no text, number or boolean", key)
