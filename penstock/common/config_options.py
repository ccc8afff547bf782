"""Builds options of a program's own by PyFlink's `ConfigOptions.key(...)`."""

from __future__ import annotations

from typing import Any, Generic, TypeVar

from penstock.common.options.option import BOOLEAN, FLOATING, INTEGER, STRING, ConfigOption, OptionType

__all__ = ["ConfigOption", "ConfigOptions"]

T = TypeVar("T")


class ConfigOptions:
    """Makes options that `Configuration.get` and `set` take, besides those of Penstock.

    Example:
        option = ConfigOptions.key("words.path").string_type().default_value("/tmp/words")
        Configuration().get(option)
    """

    @staticmethod
    def key(key: str) -> ConfigOptions.OptionBuilder:
        """Begin an option.

        Args:
            key: Its key.

        Returns:
            The builder, which wants a type next.
        """
        return ConfigOptions.OptionBuilder(key)

    class OptionBuilder:
        """Chooses the type of an option."""

        def __init__(self, key: str) -> None:
            self._key = key

        def boolean_type(self) -> ConfigOptions.TypedConfigOptionBuilder[bool]:
            """Let the values be booleans."""
            return ConfigOptions.TypedConfigOptionBuilder(self._key, BOOLEAN)

        def int_type(self) -> ConfigOptions.TypedConfigOptionBuilder[int]:
            """Let the values be whole numbers."""
            return ConfigOptions.TypedConfigOptionBuilder(self._key, INTEGER)

        def long_type(self) -> ConfigOptions.TypedConfigOptionBuilder[int]:
            """Let the values be whole numbers."""
            return ConfigOptions.TypedConfigOptionBuilder(self._key, INTEGER)

        def float_type(self) -> ConfigOptions.TypedConfigOptionBuilder[float]:
            """Let the values be numbers."""
            return ConfigOptions.TypedConfigOptionBuilder(self._key, FLOATING)

        def double_type(self) -> ConfigOptions.TypedConfigOptionBuilder[float]:
            """Let the values be numbers."""
            return ConfigOptions.TypedConfigOptionBuilder(self._key, FLOATING)

        def string_type(self) -> ConfigOptions.TypedConfigOptionBuilder[str]:
            """Let the values be texts."""
            return ConfigOptions.TypedConfigOptionBuilder(self._key, STRING)

    class TypedConfigOptionBuilder(Generic[T]):
        """Chooses the default of an option."""

        def __init__(self, key: str, type: OptionType[Any]) -> None:
            self._key = key
            self._type = type

        def default_value(self, value: T) -> ConfigOption[T]:
            """Make the option.

            Args:
                value: The value that counts if none is set.

            Returns:
                The option.
            """
            return ConfigOption(self._key, self._type, value, "An option of the program.")

        def no_default_value(self) -> ConfigOption[T | None]:
            """Make the option; reading it returns None if no value is set."""
            return ConfigOption(self._key, self._type, None, "An option of the program.")
