"""Opens stores for commands, with the options of `config.yaml`: credentials and endpoints of object stores."""

from __future__ import annotations

from penstock.common.options import OptionError
from penstock.common.settings.configuration_sources import load_configuration
from penstock.storage.opening import open_store as open_with
from penstock.storage.store import BrowsableStore, ObjectMissing, StoreError
from penstock.storage.store_settings import StoreSettings


def open_store(place: str) -> BrowsableStore:
    """Open the store at a path or URI. Raises `StoreError`."""
    return open_with(place, store_settings())


def store_settings() -> StoreSettings:
    """Return the settings of stores in `config.yaml`. Raises `StoreError`."""
    try:
        return StoreSettings.of(load_configuration())
    except OptionError as error:
        raise StoreError(str(error)) from None


def has_object(store: BrowsableStore, path: str) -> bool:
    """Return whether there is an object of this name. Raises `StoreError` if the store does not answer."""
    try:
        store.size(path)
    except ObjectMissing:
        return False
    return True
