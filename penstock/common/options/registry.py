"""Lists all options by key, and explains keys that are none: old, foreign or unknown."""

from __future__ import annotations

import difflib
import textwrap
from typing import Any

from penstock.common.options.checkpointing import CheckpointingOptions, StateBackendOptions, StateRecoveryOptions
from penstock.common.options.cluster import (
    DeploymentOptions,
    HeartbeatOptions,
    JobManagerOptions,
    NetworkOptions,
    ResourceManagerOptions,
    RestOptions,
    SlotOptions,
    TaskManagerOptions,
    WebOptions,
)
from penstock.common.options.foreign import FOREIGN_KEYS, READ_PREFIXES, is_foreign
from penstock.common.options.high_availability import HighAvailabilityOptions
from penstock.common.options.job import ExecutionOptions, ParallelismOptions, PipelineOptions, PythonOptions
from penstock.common.options.option import ConfigOption, OptionError
from penstock.common.options.penstock import PenstockOptions
from penstock.common.options.restart import RestartStrategyOptions
from penstock.common.options.rocksdb import CoreOptions, RocksDBOptions
from penstock.common.options.rocksdb_metrics import RocksDBNativeMetricOptions
from penstock.common.options.stores import ObjectStoreOptions

_GROUPS: tuple[type, ...] = (
    DeploymentOptions, ParallelismOptions, PipelineOptions, ExecutionOptions, PythonOptions, CheckpointingOptions,
    StateRecoveryOptions, ObjectStoreOptions, HighAvailabilityOptions, StateBackendOptions, RocksDBOptions,
    RocksDBNativeMetricOptions, CoreOptions, RestartStrategyOptions, SlotOptions, ResourceManagerOptions,
    HeartbeatOptions, JobManagerOptions, TaskManagerOptions, NetworkOptions, RestOptions, WebOptions, PenstockOptions,
)  # fmt: skip

OPTIONS: dict[str, ConfigOption[Any]] = {
    option.key: option for group in _GROUPS for option in vars(group).values() if isinstance(option, ConfigOption)
}
"""All options by their keys, in the order of their groups."""

DEPRECATED: dict[str, str] = {old: option.key for option in OPTIONS.values() for old in option.deprecated_keys}
"""Old key -> the key that has taken its place."""


def check_key(key: str, where: str = "") -> None:
    """Check that Penstock or Flink has an option of this key.

    Args:
        key: The key, or an old one.
        where: A text to put before the message.

    Raises:
        OptionError: There is no such option. The message names the most similar one.
    """
    if key in OPTIONS or key in DEPRECATED or key.startswith(READ_PREFIXES) or is_foreign(key):
        return
    near = difflib.get_close_matches(key, [*OPTIONS, *DEPRECATED], n=1, cutoff=0.6)
    near = near or difflib.get_close_matches(key, FOREIGN_KEYS, n=1, cutoff=0.8)
    hint = f"; did you mean {near[0]}?" if near else "; `option_table()` in penstock.common.options lists all there are"
    raise OptionError(f"{where}there is no option {key}{hint}", key)


def option_table(word: str = "") -> str:
    """Return a text with options: key, type, default and purpose.

    Args:
        word: Only options with this in their key, their former keys or their purpose; upper and lower case are alike.

    Returns:
        The text; "" if there is no such option.
    """
    lines: list[str] = []
    for option in OPTIONS.values():
        searched = " ".join((option.key, *option.deprecated_keys, option.description)).lower()
        if word.lower() not in searched:
            continue
        lines.append(f"{option.key}  ({option.type.name}; default: {option.default_text})")
        lines.extend(textwrap.wrap(option.description, 108, initial_indent="    ", subsequent_indent="    "))
        if option.deprecated_keys:
            lines.append(f"    formerly {', '.join(option.deprecated_keys)}")
    return "\n".join(lines)
