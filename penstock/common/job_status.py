"""Offers the names that PyFlink has in `pyflink.common.job_status`."""

from penstock.common.job_execution import JobStatus

__all__ = ["JobStatus"]
