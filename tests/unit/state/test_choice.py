"""Tests for the registry of state backends."""

from __future__ import annotations

import importlib
import inspect

import pytest

from penstock.common.configuration import Configuration
from penstock.common.options import StateBackendOptions
from penstock.common.options.option import OptionError
from penstock.state.choice import BACKENDS, BackendModule


@pytest.mark.parametrize("name", BACKENDS)
def test_each_backend_can_be_chosen_and_makes_both_kinds_of_state(name: str) -> None:
    configuration = Configuration({"state.backend.type": name})
    assert configuration.get(StateBackendOptions.STATE_BACKEND) == name
    module = importlib.import_module(BACKENDS[name])
    for kind in ("row_state", "columnar_state"):
        wanted = list(inspect.signature(getattr(BackendModule, kind)).parameters)[1:]
        assert list(inspect.signature(getattr(module, kind)).parameters) == wanted


def test_a_name_that_no_backend_has_is_refused() -> None:
    """Without this: the next name was taken for RocksDB."""
    with pytest.raises(OptionError, match=r"state\.backend\.type"):
        Configuration({"state.backend.type": "forst"}).get(StateBackendOptions.STATE_BACKEND)
