"""Offers the names that PyFlink has in `pyflink.datastream.execution_mode`."""

from penstock.common.checkpointing import RuntimeExecutionMode

__all__ = ["RuntimeExecutionMode"]
