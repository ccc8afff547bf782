"""Offers retry strategies of async functions, as `pyflink.datastream.async_retry_strategies`."""

from penstock.datastream._streams.retry_strategies import (
    NO_RETRY_STRATEGY,
    OUT,
    ExponentialBackoffDelayRetryStrategy,
    FixedDelayRetryStrategy,
    NoRetryStrategy,
    RetryPredicate,
)

__all__ = [
    "NO_RETRY_STRATEGY", "OUT", "ExponentialBackoffDelayRetryStrategy", "FixedDelayRetryStrategy", "NoRetryStrategy",
    "RetryPredicate",
]  # fmt: skip
