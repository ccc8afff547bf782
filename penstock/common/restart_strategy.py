"""Restart strategies, as PyFlink's RestartStrategies makes them: each is a set of `restart-strategy.*` options."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from penstock.common.configuration import Configuration
from penstock.common.options.option import ConfigOption
from penstock.common.options.restart import RestartStrategyOptions as Options


@dataclass(frozen=True)
class RestartStrategyConfiguration:
    description: str
    options: tuple[tuple[ConfigOption[Any], Any], ...]

    def get_description(self) -> str:
        return self.description

    def apply_to(self, configuration: Configuration) -> None:
        for option, value in self.options:
            configuration.set(option, value)


class RestartStrategies:
    """Delays and intervals are milliseconds, or timedeltas or Durations."""

    @staticmethod
    def no_restart() -> RestartStrategyConfiguration:
        return RestartStrategyConfiguration("Restart deactivated.", ((Options.RESTART_STRATEGY, "none"),))

    @staticmethod
    def fall_back_restart() -> RestartStrategyConfiguration:
        """What the configuration says; else exponential delay with checkpointing on, none without."""
        return RestartStrategyConfiguration("Cluster level default restart strategy", ())

    @staticmethod
    def fixed_delay_restart(restart_attempts: int, delay_between_attempts: Any) -> RestartStrategyConfiguration:
        return RestartStrategyConfiguration(
            f"Restart with fixed delay ({delay_between_attempts} ms). #{restart_attempts} restart attempts.",
            (
                (Options.RESTART_STRATEGY, "fixed-delay"),
                (Options.FIXED_DELAY_ATTEMPTS, restart_attempts),
                (Options.FIXED_DELAY_DELAY, delay_between_attempts),
            ),
        )

    @staticmethod
    def failure_rate_restart(
        failure_rate: int, failure_interval: Any, delay_interval: Any
    ) -> RestartStrategyConfiguration:
        return RestartStrategyConfiguration(
            f"Failure rate restart with maximum of {failure_rate} failures within interval {failure_interval} "
            f"and fixed delay {delay_interval}.",
            (
                (Options.RESTART_STRATEGY, "failure-rate"),
                (Options.FAILURE_RATE_MAX, failure_rate),
                (Options.FAILURE_RATE_INTERVAL, failure_interval),
                (Options.FAILURE_RATE_DELAY, delay_interval),
            ),
        )

    @staticmethod
    def exponential_delay_restart(
        initial_backoff: Any, max_backoff: Any, backoff_multiplier: float, reset_backoff_threshold: Any,
        jitter_factor: float,
    ) -> RestartStrategyConfiguration:  # fmt: skip
        return RestartStrategyConfiguration(
            f"Restart with exponential delay, from {initial_backoff} to {max_backoff}, growing by "
            f"{backoff_multiplier}.",
            (
                (Options.RESTART_STRATEGY, "exponential-delay"),
                (Options.EXPONENTIAL_DELAY_INITIAL_BACKOFF, initial_backoff),
                (Options.EXPONENTIAL_DELAY_MAX_BACKOFF, max_backoff),
                (Options.EXPONENTIAL_DELAY_BACKOFF_MULTIPLIER, backoff_multiplier),
                (Options.EXPONENTIAL_DELAY_RESET_THRESHOLD, reset_backoff_threshold),
                (Options.EXPONENTIAL_DELAY_JITTER_FACTOR, jitter_factor),
            ),
        )
