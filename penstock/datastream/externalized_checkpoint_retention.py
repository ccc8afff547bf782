"""Offers ExternalizedCheckpointRetention in PyFlink's module."""

from penstock.common.checkpointing import ExternalizedCheckpointRetention

__all__ = ["ExternalizedCheckpointRetention"]
