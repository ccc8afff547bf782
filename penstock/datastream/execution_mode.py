"""Offers the names that PyFlink has in `pyflink.datastream.execution_mode`."""

from penstock.common.options.modes import RuntimeExecutionMode

__all__ = ["RuntimeExecutionMode"]
