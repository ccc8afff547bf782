"""Offers the names that programs import from `pyflink.metrics`."""

from penstock.common.metrics import Counter, Distribution, Meter, Metric, MetricGroup

__all__ = ["Counter", "Distribution", "Meter", "Metric", "MetricGroup"]
