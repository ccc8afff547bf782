"""Reads options from outside the program: files in `$PENSTOCK_CONF_DIR`, and `-D` of the command line."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any, Iterator, Mapping

from penstock.common.configuration import Configuration
from penstock.common.options.option import OptionError
from penstock.common.options.registry import DEPRECATED, OPTIONS, check_key

CONF_DIR_VARIABLE = "PENSTOCK_CONF_DIR"
DYNAMIC_OPTIONS_VARIABLE = "PENSTOCK_DYNAMIC_OPTIONS"
"""A JSON object of options that count before files: how `penstock run -D` hands them to the program."""

_FILE_NAMES = ("config.yaml", "config.yml", "flink-conf.yaml", "flink-conf.yml")


class ConfigurationError(OptionError):
    """Reports a file or variable with options that cannot be used. The message names it, the line and the key."""


def load_configuration(environ: Mapping[str, str] | None = None) -> Configuration:
    """Read the options that come from outside the program.

    They are in the file in `$PENSTOCK_CONF_DIR`, and in `-D` of the command line. Raises `ConfigurationError` for
    options that cannot be used.

    Args:
        environ: The environment variables. None: those of this process.

    Returns:
        The options. Those of `-D` override those of the file.
    """
    environ = os.environ if environ is None else environ
    configuration = Configuration()
    directory = environ.get(CONF_DIR_VARIABLE)
    if directory:
        file = _configuration_file(Path(directory))
        if file is not None:
            configuration.add_all(read_configuration_file(file))
    if environ.get(DYNAMIC_OPTIONS_VARIABLE):
        configuration.add_all(_dynamic_options(environ[DYNAMIC_OPTIONS_VARIABLE]))
    return configuration


def parse_dynamic_option(text: str) -> tuple[str, str]:
    """Read and check the argument of `-D`.

    Args:
        text: The argument, `key=value`.

    Returns:
        The key and the value.

    Raises:
        ConfigurationError: The argument has no `=`, or the option or its value cannot be.
    """
    key, equals, value = text.partition("=")
    if not equals or not key.strip():
        raise ConfigurationError(f"-D {text}: write it as -D key=value")
    _checked(Configuration(), key.strip(), value.strip(), f"-D {key.strip()}: ")
    return key.strip(), value.strip()


def _configuration_file(directory: Path) -> Path | None:
    if not directory.is_dir():
        raise ConfigurationError(f"{CONF_DIR_VARIABLE} names {directory}, which is no directory")
    found = [directory / name for name in _FILE_NAMES if (directory / name).is_file()]
    if len(found) > 1:
        raise ConfigurationError(f"{directory} holds {' and '.join(f.name for f in found)}; keep one of them")
    return found[0] if found else None


def read_configuration_file(file: Path) -> Configuration:
    """Read a YAML file of nested or dotted keys.

    Args:
        file: Its path.

    Returns:
        The options.

    Raises:
        ConfigurationError: The file is no such YAML, or an option or value in it cannot be. The message names file,
            line and key.
    """
    import yaml  # imported here, because executors read no file, and may lack it

    try:
        root = yaml.compose(file.read_text(encoding="utf-8"), Loader=yaml.SafeLoader)
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        mark = getattr(error, "problem_mark", None)
        where = f", line {mark.line + 1}" if mark else ""
        problem = getattr(error, "problem", None) or error
        raise ConfigurationError(f"{file}{where}: this is no YAML: {problem}") from None
    configuration = Configuration()
    if root is None:
        return configuration
    if not isinstance(root, yaml.MappingNode):
        raise ConfigurationError(f"{file}, line {root.start_mark.line + 1}: expected 'key: value' pairs")
    line_of: dict[str, int] = {}
    entries = list(_flat(file, root, ""))
    # The present key of an option overrides a deprecated one, in whichever order the file has them.
    for key, value, line in sorted(entries, key=lambda e: e[0] not in DEPRECATED):
        if key in line_of:
            raise ConfigurationError(f"{file}, line {line}: {key} stands in line {line_of[key]} already", key)
        line_of[key] = line
        if value is not None:
            _checked(configuration, key, value, f"{file}, line {line}: ")
    return configuration


def _flat(file: Path, node: Any, prefix: str) -> Iterator[tuple[str, Any, int]]:
    import yaml

    for key_node, value_node in node.value:
        line = key_node.start_mark.line + 1
        if not isinstance(key_node, yaml.ScalarNode):
            raise ConfigurationError(f"{file}, line {line}: a key is a word, optionally with dots")
        key = prefix + key_node.value
        # Some keys of Flink begin another one: `state.backend: hashmap` next to `state.backend.type`.
        if isinstance(value_node, yaml.MappingNode):
            if OPTIONS.get(key) is not None and OPTIONS[key].type.name == "map":
                yield key, {k.value: v.value for k, v in value_node.value}, line
            else:
                yield from _flat(file, value_node, key + ".")
        elif isinstance(value_node, yaml.SequenceNode):
            yield key, [item.value for item in value_node.value], line
        else:
            empty = value_node.tag == "tag:yaml.org,2002:null"
            yield key, None if empty else value_node.value, line


def _checked(configuration: Configuration, key: str, value: Any, where: str) -> None:
    try:
        check_key(key)
        configuration.set(key, value)
    except OptionError as error:
        raise ConfigurationError(f"{where}{error}", key) from None


def _dynamic_options(text: str) -> Configuration:
    try:
        options = json.loads(text)
    except json.JSONDecodeError as error:
        raise ConfigurationError(f"{DYNAMIC_OPTIONS_VARIABLE} is no JSON object: {error}") from None
    if not isinstance(options, dict):
        raise ConfigurationError(f"{DYNAMIC_OPTIONS_VARIABLE} is no JSON object of keys and values")
    configuration = Configuration()
    for key, value in options.items():
        _checked(configuration, key, value, f"-D {key}: ")
    return configuration
