"""Defines restart strategies: each is a set of `restart-strategy.*` options."""

from __future__ import annotations

import datetime
from dataclasses import dataclass
from typing import Any

from penstock.common.configuration import Configuration
from penstock.common.options.option import ConfigOption
from penstock.common.options.restart import RestartStrategyOptions as Options
from penstock.common.time import Duration


@dataclass(frozen=True)
class RestartStrategyConfiguration:
    """Holds the `restart-strategy.*` options of a restart strategy. `RestartStrategies` makes them."""

    description: str
    options: tuple[tuple[ConfigOption[Any], Any], ...]

    def get_description(self) -> str:
        """Return a sentence that describes the strategy."""
        return self.description

    def apply_to(self, configuration: Configuration) -> None:
        """Set the strategy's options.

        Args:
            configuration: The configuration to change.
        """
        for option, value in self.options:
            configuration.set(option, value)


class RestartStrategies:
    """Makes restart strategies. Delays and intervals are milliseconds, timedeltas or Durations.

    Example:
        env.set_restart_strategy(RestartStrategies.fixed_delay_restart(3, Duration.of_seconds(10)))
    """

    class NoRestartStrategyConfiguration(RestartStrategyConfiguration):
        """Ends the job at its first failure."""

        def __init__(self) -> None:
            super().__init__("Restart deactivated.", ((Options.RESTART_STRATEGY, "none"),))

    class FallbackRestartStrategyConfiguration(RestartStrategyConfiguration):
        """Leaves the strategy to the configuration."""

        def __init__(self) -> None:
            super().__init__("Cluster level default restart strategy", ())

    class FixedDelayRestartStrategyConfiguration(RestartStrategyConfiguration):
        """Restarts the job a number of times, after the same delay each."""

        def __init__(self, restart_attempts: int, delay_between_attempts_interval: Any) -> None:
            super().__init__(
                f"Restart with fixed delay ({delay_between_attempts_interval} ms). #{restart_attempts} restart "
                "attempts.",
                (
                    (Options.RESTART_STRATEGY, "fixed-delay"),
                    (Options.FIXED_DELAY_ATTEMPTS, restart_attempts),
                    (Options.FIXED_DELAY_DELAY, delay_between_attempts_interval),
                ),
            )

        def get_restart_attempts(self) -> int:
            """Return the number of restarts that there may be in all."""
            return int(self.options[1][1])

        def get_delay_between_attempts_interval(self) -> datetime.timedelta:
            """Return the delay before each restart."""
            return Duration.of(self.options[2][1]).to_timedelta()

    class FailureRateRestartStrategyConfiguration(RestartStrategyConfiguration):
        """Restarts the job until too many failures happen in an interval."""

        def __init__(self, max_failure_rate: int, failure_interval: Any, delay_between_attempts_interval: Any) -> None:
            super().__init__(
                f"Failure rate restart with maximum of {max_failure_rate} failures within interval {failure_interval} "
                f"and fixed delay {delay_between_attempts_interval}.",
                (
                    (Options.RESTART_STRATEGY, "failure-rate"),
                    (Options.FAILURE_RATE_MAX, max_failure_rate),
                    (Options.FAILURE_RATE_INTERVAL, failure_interval),
                    (Options.FAILURE_RATE_DELAY, delay_between_attempts_interval),
                ),
            )

        def get_max_failure_rate(self) -> int:
            """Return the number of failures within the interval that the job survives."""
            return int(self.options[1][1])

        def get_failure_interval(self) -> datetime.timedelta:
            """Return the interval in which failures are counted."""
            return Duration.of(self.options[2][1]).to_timedelta()

        def get_delay_between_attempts_interval(self) -> datetime.timedelta:
            """Return the delay before each restart."""
            return Duration.of(self.options[3][1]).to_timedelta()

    @staticmethod
    def no_restart() -> RestartStrategyConfiguration:
        """Make the strategy that ends the job at its first failure."""
        return RestartStrategies.NoRestartStrategyConfiguration()

    @staticmethod
    def fall_back_restart() -> RestartStrategyConfiguration:
        """Make the strategy of the configuration: by default exponential delay with checkpointing, and none without."""
        return RestartStrategies.FallbackRestartStrategyConfiguration()

    @staticmethod
    def fixed_delay_restart(restart_attempts: int, delay_between_attempts: Any) -> RestartStrategyConfiguration:
        """Make a strategy that restarts the job a number of times, after the same delay each.

        Args:
            restart_attempts: How many restarts there may be in all.
            delay_between_attempts: The delay before each restart.

        Returns:
            The strategy.
        """
        return RestartStrategies.FixedDelayRestartStrategyConfiguration(restart_attempts, delay_between_attempts)

    @staticmethod
    def failure_rate_restart(
        failure_rate: int, failure_interval: Any, delay_interval: Any
    ) -> RestartStrategyConfiguration:
        """Make a strategy that restarts the job until too many failures happen in an interval.

        Args:
            failure_rate: How many failures within the interval the job survives at most.
            failure_interval: The interval in which failures are counted.
            delay_interval: The delay before each restart.

        Returns:
            The strategy.
        """
        return RestartStrategies.FailureRateRestartStrategyConfiguration(failure_rate, failure_interval, delay_interval)

    @staticmethod
    def exponential_delay_restart(
        initial_backoff: Any,
        max_backoff: Any,
        backoff_multiplier: float,
        reset_backoff_threshold: Any,
        jitter_factor: float,
    ) -> RestartStrategyConfiguration:
        """Make a strategy that restarts the job after a delay that grows with every failure without progress.

        The first restart has no delay, nor has one after a lost slot if a checkpoint has completed since the last
        restart.

        Args:
            initial_backoff: The first delay.
            max_backoff: The longest delay.
            backoff_multiplier: The factor by which the delay grows, at least 1.
            reset_backoff_threshold: After so long without a failure the delay is the first one again.
            jitter_factor: The share of the delay, 0 to 1, by which it varies at random.

        Returns:
            The strategy.
        """
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
