"""Offers CheckpointingMode in PyFlink's module."""

from penstock.common.checkpointing import CheckpointingMode

__all__ = ["CheckpointingMode"]
