"""Offers CheckpointingMode in PyFlink's module."""

from penstock.common.options.modes import CheckpointingMode

__all__ = ["CheckpointingMode"]
