"""Offers sources that make up their rows, a row or a batch at a time."""

from penstock.connectors.generators.generated_rows import BatchGeneratorSource, DataGeneratorSource
from penstock.connectors.generators.rate import RateLimiterStrategy

__all__ = ["BatchGeneratorSource", "DataGeneratorSource", "RateLimiterStrategy"]
