"""Holds a job's options of stores: how long they may take, and how they are reached."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import Any, TypeVar

from penstock.common.configuration import Configuration
from penstock.common.options import CheckpointingOptions, ConfigOption, CoreOptions, ObjectStoreOptions
from penstock.common.options.stores import AZURE_KEY_PREFIX
from penstock.storage.local_directory import temporary_directories

T = TypeVar("T")
_OPTIONS: tuple[ConfigOption[Any], ...] = (
    *(option for option in vars(ObjectStoreOptions).values() if isinstance(option, ConfigOption)),
    CoreOptions.TMP_DIRS,
)


@dataclass(frozen=True)
class StoreSettings:
    """Holds the options of stores; equal ones open the same store. They may be secrets, so they are not shown."""

    fsync: bool = True
    texts: tuple[tuple[str, str], ...] = field(default=(), repr=False)

    @classmethod
    def of(cls, configuration: Configuration) -> StoreSettings:
        keys = {option.key for option in _OPTIONS}
        texts = ((k, v) for k, v in configuration.to_dict().items() if k in keys or k.startswith(AZURE_KEY_PREFIX))
        return cls(configuration.get(CheckpointingOptions.STORAGE_FSYNC), tuple(sorted(texts)))

    def get(self, option: ConfigOption[T]) -> T:
        """Return an option's value, or its default. Raises `OptionError`."""
        return Configuration(dict(self.texts)).get(option)

    @property
    def temporary_directories(self) -> tuple[str, ...]:
        """Return the directories for files on their way to or from a store."""
        return temporary_directories(Configuration(dict(self.texts)), os.environ)

    def azure_key(self, account: str) -> str | None:
        """Return the key of an Azure account: of `fs.azure.account.key.<account>`, with or without a domain."""
        for key, text in self.texts:
            if key.startswith(AZURE_KEY_PREFIX) and key.removeprefix(AZURE_KEY_PREFIX).partition(".")[0] == account:
                return text
        return None


DEFAULT_SETTINGS = StoreSettings()
