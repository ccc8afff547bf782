"""ExternalizedCheckpointRetention, where PyFlink has it."""

from penstock.common.checkpointing import ExternalizedCheckpointRetention

__all__ = ["ExternalizedCheckpointRetention"]
