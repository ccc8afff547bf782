"""CheckpointingMode, where PyFlink has it."""

from penstock.common.checkpointing import CheckpointingMode

__all__ = ["CheckpointingMode"]
