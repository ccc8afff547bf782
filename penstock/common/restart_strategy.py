"""Defines restart strategies: each is a set of `restart-strategy.*` options."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from penstock.common.configuration import Configuration
from penstock.common.options.option import ConfigOption
from penstock.common.options.restart import RestartStrategyOptions as Options


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

    @staticmethod
    def no_restart() -> RestartStrategyConfiguration:
        """Make the strategy that ends the job at its first failure."""
        return RestartStrategyConfiguration("Restart deactivated.", ((Options.RESTART_STRATEGY, "none"),))

    @staticmethod
    def fall_back_restart() -> RestartStrategyConfiguration:
        """Make the strategy of the configuration: by default exponential delay with checkpointing, and none without."""
        return RestartStrategyConfiguration("Cluster level default restart strategy", ())

    @staticmethod
    def fixed_delay_restart(restart_attempts: int, delay_between_attempts: Any) -> RestartStrategyConfiguration:
        """Make a strategy that restarts the job a number of times, after the same delay each.

        Args:
            restart_attempts: How many restarts there may be in all.
            delay_between_attempts: The delay before each restart.

        Returns:
            The strategy.
        """
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
        """Make a strategy that restarts the job until too many failures happen in an interval.

        Args:
            failure_rate: How many failures within the interval the job survives at most.
            failure_interval: The interval in which failures are counted.
            delay_interval: The delay before each restart.

        Returns:
            The strategy.
        """
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
