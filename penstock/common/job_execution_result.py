"""Offers the names that PyFlink has in `pyflink.common.job_execution_result`."""

from penstock.common.job_execution import JobExecutionResult

__all__ = ["JobExecutionResult"]
