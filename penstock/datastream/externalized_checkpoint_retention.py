"""Offers ExternalizedCheckpointRetention in PyFlink's module."""

from penstock.common.options.modes import ExternalizedCheckpointRetention

__all__ = ["ExternalizedCheckpointRetention"]
