"""Offers the classes that sources and sinks of your own implement, and their errors."""

from penstock.connectors.base import *  # noqa: F403
from penstock.connectors.base import __all__ as __all__
