"""Reads the JobMaster's settings from options: units, Flink's defaults, and what follows from one another."""

from __future__ import annotations

import pytest

from penstock.common.configuration import Configuration
from penstock.common.options import OptionError
from penstock.jobmaster.current_job import JobSettings, restart_strategy
from penstock.protocol.driver.restarts import ExponentialDelay, FailureRate, FixedDelay, NoRestart
from penstock.protocol.restore.given_up import RowsToGiveUp

CHECKPOINTING = {"execution.checkpointing.interval": "1 s"}


def test_the_default_restart_strategy_depends_on_checkpointing() -> None:
    assert isinstance(restart_strategy(Configuration()), NoRestart)
    strategy = restart_strategy(Configuration(CHECKPOINTING))
    assert strategy == ExponentialDelay(1000.0, 60_000.0, 1.5, 0.1, 3_600_000.0, None)


def test_restart_strategies_by_option() -> None:
    fixed = {"restart-strategy.type": "fixed-delay", "restart-strategy.fixed-delay.attempts": "3"}
    assert restart_strategy(Configuration(fixed)) == FixedDelay(3, 1000.0)
    rate = Configuration({"restart-strategy.type": "failure-rate"})
    assert restart_strategy(rate) == FailureRate(1, 60_000.0, 1000.0)
    assert isinstance(restart_strategy(Configuration({**CHECKPOINTING, "restart-strategy.type": "off"})), NoRestart)
    limited = {
        "restart-strategy.type": "exponential-delay",
        "restart-strategy.exponential-delay.attempts-before-reset-backoff": "2",
    }
    strategy = restart_strategy(Configuration(limited))
    assert isinstance(strategy, ExponentialDelay) and strategy.attempts_max == 2


@pytest.mark.parametrize(
    ("options", "alignment_timeout_ms"),
    [
        ({}, None),
        ({"execution.checkpointing.unaligned.enabled": "true"}, 0),
        (
            {
                "execution.checkpointing.unaligned.enabled": "true",
                "execution.checkpointing.aligned-checkpoint-timeout": "250 ms",
            },
            250,
        ),
        ({"execution.checkpointing.aligned-checkpoint-timeout": "250 ms"}, None),
    ],
)
def test_alignment(options: dict[str, str], alignment_timeout_ms: int | None) -> None:
    settings = JobSettings.from_configuration(Configuration({**CHECKPOINTING, **options}), 2)
    assert settings.coordinator.alignment_timeout_ms == alignment_timeout_ms


def test_channels_whose_rows_are_given_up_are_those_of_a_checkpoint_that_is_named() -> None:
    key = "state-recovery.without-channel-state"
    channels = {f"penstock.{key}.channels": "a-b-0-0[1->0], b-c-0-0"}
    with pytest.raises(OptionError, match=f"penstock.{key}.channels needs execution.{key}.checkpoint-id"):
        JobSettings.from_configuration(Configuration(channels), 1)
    settings = JobSettings.from_configuration(Configuration({**channels, f"execution.{key}.checkpoint-id": "7"}), 1)
    assert settings.without_channel_state == RowsToGiveUp(7, ("a-b-0-0[1 -> 0]", "b-c-0-0"))


def test_times_are_in_milliseconds() -> None:
    settings = JobSettings.from_configuration(
        Configuration({**CHECKPOINTING, "execution.checkpointing.timeout": "2 min", "heartbeat.timeout": "3 s"}), 4
    )
    assert settings.coordinator.interval_ms == 1000.0 and settings.coordinator.timeout_ms == 120_000.0
    assert settings.lifecycle.heartbeat_timeout_ms == 3000.0 and settings.lifecycle.slots == 4
    assert settings.checkpointing and not JobSettings.from_configuration(Configuration(), 1).checkpointing


@pytest.mark.parametrize(
    ("retention", "kept"),
    [
        ("NO_EXTERNALIZED_CHECKPOINTS", []),
        ("DELETE_ON_CANCELLATION", ["FAILED"]),
        ("RETAIN_ON_CANCELLATION", ["CANCELED", "FAILED"]),
    ],
)
def test_retention_is_flinks_table(retention: str, kept: list[str]) -> None:
    configuration = Configuration({"execution.checkpointing.externalized-checkpoint-retention": retention})
    settings = JobSettings.from_configuration(configuration, 1)
    assert [s for s in ("FINISHED", "CANCELED", "FAILED") if settings.keeps_checkpoints(s)] == kept
