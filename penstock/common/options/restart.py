"""Defines the options of restart strategies."""

from __future__ import annotations

from penstock.common.options.option import (
    DURATION,
    FLOATING,
    INTEGER,
    ConfigOption,
    OptionType,
    at_least,
    choice,
    not_negative,
    positive,
)
from penstock.common.time import Duration

INFINITE = 2**31 - 1


def _attempts(text: str) -> int:
    if text.lower() in ("infinite", "unlimited"):
        return INFINITE
    return INTEGER.parse(text)


_ATTEMPTS = OptionType("integer or 'infinite'", _attempts, lambda v: "infinite" if v == INFINITE else str(int(v)))


class RestartStrategyOptions:
    """Holds the options of restart strategies."""

    RESTART_STRATEGY: ConfigOption[str | None] = ConfigOption(
        "restart-strategy.type",
        choice(
            "none",
            "fixed-delay",
            "failure-rate",
            "exponential-delay",
            aliases={
                "off": "none",
                "disable": "none",
                "fixeddelay": "fixed-delay",
                "failurerate": "failure-rate",
                "exponentialdelay": "exponential-delay",
            },
        ),
        None,
        "none, fixed-delay, failure-rate or exponential-delay. Not set: exponential-delay with checkpointing, else "
        "none. With exponential-delay the first restart has no delay.",
        deprecated_keys=("restart-strategy",),
    )
    FIXED_DELAY_ATTEMPTS = ConfigOption(
        "restart-strategy.fixed-delay.attempts",
        _ATTEMPTS,
        1,
        "How many restarts there may be in all.",
        check=not_negative,
    )
    FIXED_DELAY_DELAY = ConfigOption(
        "restart-strategy.fixed-delay.delay", DURATION, Duration.of_seconds(1), "The time between two restarts."
    )
    FAILURE_RATE_MAX = ConfigOption(
        "restart-strategy.failure-rate.max-failures-per-interval",
        INTEGER,
        1,
        "How many failures per interval the job survives. One more ends it.",
        check=positive,
    )
    FAILURE_RATE_INTERVAL = ConfigOption(
        "restart-strategy.failure-rate.failure-rate-interval",
        DURATION,
        Duration.of_minutes(1),
        "The interval in which failures are counted.",
        check=positive,
    )
    FAILURE_RATE_DELAY = ConfigOption(
        "restart-strategy.failure-rate.delay", DURATION, Duration.of_seconds(1), "The time between two restarts."
    )
    EXPONENTIAL_DELAY_INITIAL_BACKOFF = ConfigOption(
        "restart-strategy.exponential-delay.initial-backoff",
        DURATION,
        Duration.of_seconds(1),
        "The delay that the backoff starts from.",
        check=positive,
    )
    EXPONENTIAL_DELAY_MAX_BACKOFF = ConfigOption(
        "restart-strategy.exponential-delay.max-backoff",
        DURATION,
        Duration.of_minutes(1),
        "The longest delay.",
        check=positive,
    )
    EXPONENTIAL_DELAY_BACKOFF_MULTIPLIER = ConfigOption(
        "restart-strategy.exponential-delay.backoff-multiplier",
        FLOATING,
        1.5,
        "The delay grows by this factor with every failure.",
        check=at_least(1.0, "1.0"),
    )
    EXPONENTIAL_DELAY_JITTER_FACTOR = ConfigOption(
        "restart-strategy.exponential-delay.jitter-factor",
        FLOATING,
        0.1,
        "The share of the delay by which it varies at random.",
        check=lambda value: None if 0 <= value <= 1 else "it is a share from 0 to 1",
    )
    EXPONENTIAL_DELAY_RESET_THRESHOLD = ConfigOption(
        "restart-strategy.exponential-delay.reset-backoff-threshold",
        DURATION,
        Duration.of_hours(1),
        "After this long without a failure the delay starts from the beginning.",
        check=positive,
    )
    EXPONENTIAL_DELAY_ATTEMPTS = ConfigOption(
        "restart-strategy.exponential-delay.attempts-before-reset-backoff",
        _ATTEMPTS,
        INFINITE,
        "How many restarts there may be before the delay is reset.",
        check=not_negative,
    )
