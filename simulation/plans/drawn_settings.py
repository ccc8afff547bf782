"""Draws the speed of a simulated world, and the options of its job."""

from __future__ import annotations

from collections.abc import Iterable
from random import Random
from typing import Any

from penstock.common.configuration import Configuration
from penstock.common.options import (
    CheckpointingOptions,
    PipelineOptions,
    StateBackendOptions,
    StateRecoveryOptions,
    TaskManagerOptions,
)
from penstock.common.settings.checkpoint_settings import concurrent_checkpoints_max
from simulation.faults.fault_plan import AIMED
from simulation.world.pace import CHECKPOINT_ROOT, Pace
from simulation.world.small_limits import random_limits

SLOW_LINK_MS = 10.0


def random_pace(random: Random) -> Pace:
    return Pace(
        step_ms=random.choice((0.05, 0.2, 2.0)),
        data_ms=random.choice((0.2, 0.2, 2.0, 10.0)),
        control_ms=random.choice((0.2, 0.2, 2.0, 10.0)),
        work_ms=random.choice((0.5, 0.5, 5.0, 30.0)),
        slot_start_ms=random.choice((10.0, 100.0)),
        bytes_share=random.choice((0.0, 0.0, 0.5, 1.0)),
        control_as_bytes=random.random() < 0.2,
        scale=random_limits(random),
    )


def spares_of(seed: int) -> int:
    """Return the number of spares. It has a random source of its own, so that it changes nothing else that a seed
    means.
    """
    return Random(f"spares of {seed}").choice((0, 0, 0, 0, 1, 2))


def changes_graph(seed: int) -> bool:
    """Return whether the job's graph changes when it is resumed. Draws from a generator of its own."""
    return Random(f"changes of {seed}").random() < 0.35


def interleaves(seed: int) -> bool:
    """Return whether messages reach a process in the middle of a step. Draws from a generator of its own."""
    return Random(f"interleaving of {seed}").random() < 0.4


def names_stored_state(seed: int) -> bool:
    """Return whether checkpoints name segments of earlier ones. Draws from a generator of its own."""
    return Random(f"stored state of {seed}").random() < 0.4


COLUMNAR_STATE_STEPS = frozenset({"roll", "window_columns"})


def state_backend_of(seed: int, configuration: Configuration, steps: Iterable[str]) -> None:
    """Set the state backend of a job of these steps, from a random source of its own. Slots keep little of it in
    memory, so that entries come from the database. Few jobs have columnar state: more of those are on disk.
    """
    apart = Random(f"state backend of {seed}")
    on_disk = apart.random() < 0.15
    if not COLUMNAR_STATE_STEPS.isdisjoint(steps):
        on_disk |= Random(f"columnar state of {seed}").random() < 0.4
    if on_disk:
        configuration.set("state.backend.type", "rocksdb")
        configuration.set("execution.checkpointing.incremental", apart.random() < 0.6)
        configuration.set("penstock.state.rocksdb.object-cache-size", apart.choice(("1 b", "20 kb", "64 mb")))
    elif Random(f"incremental in memory of {seed}").random() < 0.3 and not names_stored_state(seed):
        # The artificial backend has references of its own, and the checker allows no others then.
        configuration.set("execution.checkpointing.incremental", True)


def lazy_restores_of(seed: int, configuration: Configuration) -> None:
    """Let most jobs with incremental checkpoints of RocksDB have ranges so small that state is restored lazily, from a
    random source of their own.
    """
    apart = Random(f"lazy restores of {seed}")
    is_on_disk = configuration.get(StateBackendOptions.STATE_BACKEND) == "rocksdb"
    if is_on_disk and configuration.get(CheckpointingOptions.INCREMENTAL_CHECKPOINTS) and apart.random() < 0.7:
        configuration.set("penstock.state.rocksdb.range-size", apart.choice(("1 b", "100 b", "1 kb")))


def has_room(seed: int) -> bool:
    """Return whether a run without faults has room for all that a row becomes, so that checkpoints have a limit."""
    return Random(f"room of {seed}").random() < 0.6


def restarts_of(seed: int, configuration: Configuration) -> None:
    """Set delays of restarts, and whether a failed checkpoint is tolerated, from a random source of their own."""
    apart = Random(f"restarts of {seed}")
    strategy = apart.choice(("as drawn", "as drawn", "fixed", "exponential", "rate"))
    if strategy == "fixed":
        configuration.set("restart-strategy.fixed-delay.delay", apart.choice(("700 ms", "3 s")))
    elif strategy == "exponential":
        configuration.set("restart-strategy.type", "exponential-delay")
        configuration.set("restart-strategy.exponential-delay.initial-backoff", "200 ms")
        configuration.set("restart-strategy.exponential-delay.max-backoff", "2 s")
    elif strategy == "rate":
        configuration.set("restart-strategy.type", "failure-rate")
        configuration.set("restart-strategy.failure-rate.max-failures-per-interval", 1_000_000)
        configuration.set("restart-strategy.failure-rate.delay", "400 ms")
    # If a checkpoint may expire although nothing has gone wrong, a failed one must be tolerated.
    never_expires = configuration.get(CheckpointingOptions.CHECKPOINTING_TIMEOUT).ms >= 60_000
    if never_expires and apart.random() < 0.25:
        configuration.set("execution.checkpointing.tolerable-failed-checkpoints", 0)


def savepoints_of(seed: int) -> tuple[str, ...]:
    """Return a user's operations on savepoints, besides the faults that a plan draws, from a
    random source of its own."""
    some, many = ("savepoint",) * 4, ("savepoint",) * 4 + ("stop_with_savepoint",) * 8
    return Random(f"savepoints of {seed}").choice(((), (), (), (), some, many))


def claims_of(seed: int, configuration: Configuration) -> None:
    """Set whether a job owns the savepoint that it is started from, when another one was stopped with that; a source of
    chance of its own.
    """
    drawn = Random(f"claims of {seed}").random() < 0.5
    if drawn and CheckpointingOptions.CHECKPOINTING_INTERVAL.key in configuration.key_set():
        configuration.set(StateRecoveryOptions.RESTORE_MODE, "CLAIM")


TIMELESS_STEPS = frozenset(
    {
        "source", "count", "reduce", "keep", "expand", "repartition", "union", "sink", "nap", "await_rules", "roll",
        "pass_batches", "keep_columns",
    }
)  # fmt: skip
"""Steps whose output does not say when event time ended: a drained job ends it, and the next one begins it again."""


def drains_of(seed: int, steps: Iterable[str]) -> tuple[str, ...]:
    """Return a user's drains of a job of these steps, besides the faults that a plan draws, from a random source of its
    own.
    """
    if not TIMELESS_STEPS.issuperset(steps):
        return ()
    return Random(f"drains of {seed}").choice(((), ("drain_with_savepoint",) * 3, ("drain_with_savepoint",) * 9))


def live_rescales_of(seed: int) -> tuple[str, ...]:
    """Return a user's rescales of the running job, besides the faults that a plan draws, from a random source of its
    own."""
    few, many = ("rescale_live",) * 4, ("rescale_live",) * 16
    return Random(f"live rescales of {seed}").choice(((), (), (), few, many))


def uneven_rescales_of(seed: int) -> tuple[str, ...]:
    """Return the resumes of a job with a broadcast at another parallelism while its receivers have read different rows,
    besides the faults that a plan draws, from a random source of its own."""
    return Random(f"uneven receivers of {seed}").choice(((), ("rescale_with_uneven_receivers",) * 8))


def adapts(seed: int, configuration: Configuration, places_change: bool) -> tuple[str, ...]:
    """Let the job run in as many slots as there are processes, with short times, and return what becomes of places; a
    source of chance of its own."""
    apart = Random(f"adaptive scheduler of {seed}")
    share, key = 0.6 if places_change else 0.1, "jobmanager.adaptive-scheduler."
    if apart.random() >= share:
        return ()
    configuration.set("jobmanager.scheduler", "adaptive")
    configuration.set(f"{key}submission.resource-wait-timeout", "60 s")
    settle, stabilize = apart.choice(("0 ms", "300 ms", "2 s")), apart.choice(("0 ms", "500 ms", "3 s"))
    configuration.set(f"{key}submission.resource-stabilization-timeout", settle)
    configuration.set(f"{key}executing.resource-stabilization-timeout", stabilize)
    configuration.set(f"{key}executing.cooldown-after-rescaling", apart.choice(("0 ms", "200 ms", "2 s")))
    return apart.choice(((), ("lose_place", "gain_place", "gain_place") * 3)) if places_change else ()


def concurrency_of(seed: int, configuration: Configuration, pace: Pace) -> tuple[float, float] | None:
    """Set the maximum number of checkpoints in progress, from a random source of its own, and return the duration of
    their uploads. None: one at a time, the default. This is also so if a connection carries fewer barriers than are
    triggered, because every checkpoint would expire, and rows would wait for ever behind barriers.
    """
    apart = Random(f"concurrent checkpoints of {seed}")
    concurrent_max = apart.choice((1, 1, 1, 2, 3, 8))
    longest_ms = apart.choice((1.0, 20.0, 100.0))
    is_slow = pace.data_ms >= SLOW_LINK_MS
    if is_slow or concurrent_max == 1 or CheckpointingOptions.CHECKPOINTING_INTERVAL.key not in configuration.key_set():
        return None
    configuration.set(CheckpointingOptions.MAX_CONCURRENT_CHECKPOINTS.key, concurrent_max)
    if concurrent_checkpoints_max(configuration) == 1:
        return None
    return 0.0, longest_ms


def compression_of(seed: int, configuration: Configuration) -> None:
    """Set the compression of segments, from a random source of its own: a third are not."""
    codec = Random(f"compression of {seed}").choice(("none", "lz4", "zstd"))
    if codec != "none" and CheckpointingOptions.CHECKPOINTING_INTERVAL.key in configuration.key_set():
        configuration.set(CheckpointingOptions.SNAPSHOT_COMPRESSION, codec)


def local_copies_of(seed: int, configuration: Configuration) -> None:
    """Set whether slots keep copies of checkpoints on their disk, from a random source of its own: a quarter do."""
    drawn = Random(f"local copies of {seed}").random() < 0.25
    if drawn and CheckpointingOptions.CHECKPOINTING_INTERVAL.key in configuration.key_set():
        configuration.set(CheckpointingOptions.LOCAL_BACKUP_ENABLED, True)


def backlog_interval_of(seed: int, configuration: Configuration) -> None:
    """Set the interval of checkpoints during a backlog, from a random source of its own. Half of the jobs have none."""
    interval = Random(f"checkpoints during a backlog of {seed}").choice((None, None, None, "0 ms", "5 ms", "200 ms"))
    if interval is not None and CheckpointingOptions.CHECKPOINTING_INTERVAL.key in configuration.key_set():
        configuration.set(CheckpointingOptions.CHECKPOINTING_INTERVAL_DURING_BACKLOG.key, interval)


def debloating_of(seed: int, configuration: Configuration) -> None:
    """Set Flink's options for what is in flight, from a random source of their own. Most jobs have none of them."""
    apart = Random(f"bounds of {seed}")
    if apart.random() >= 0.3:
        return
    options = TaskManagerOptions
    for option, values in (
        (options.BUFFER_DEBLOAT_ENABLED, (True, True, False)),
        (options.BUFFER_DEBLOAT_TARGET, ("2 ms", "20 ms", "200 ms")),
        (options.BUFFER_DEBLOAT_PERIOD, ("1 ms", "20 ms", "200 ms")),
        (options.BUFFER_DEBLOAT_SAMPLES, (1, 3, 20)),
        (options.BUFFER_DEBLOAT_THRESHOLD_PERCENTAGES, (0, 25, 100)),
    ):
        value = apart.choice(values)
        if apart.random() < 0.7:
            configuration.set(option, value)


def rare_checkpoints_of(seed: int, configuration: Configuration) -> tuple[str, ...]:
    """Set a checkpoint interval that is longer than a sweep waits, for one in twenty jobs. Return the checkpoints that
    its user requests, to add to the faults of the plan; () for the other jobs. Draws from a generator of its own."""
    if Random(f"rare checkpoints of {seed}").random() >= 0.05:
        return ()
    configuration.set(CheckpointingOptions.CHECKPOINTING_INTERVAL, "1 h")
    configuration.remove_config(CheckpointingOptions.CHECKPOINTING_INTERVAL_DURING_BACKLOG.key)  # may not be shorter
    return ("request_checkpoint",) * 6


def suspensions_of(seed: int, configuration: Configuration) -> tuple[str, ...]:
    """Return which processes are suspended for long, besides the faults that a plan draws; a source of chance of its
    own. Sources then emit watermarks less often: while a driver sleeps for a minute, each millisecond is an event of
    every source, and nothing else happens."""
    orders = Random(f"suspensions of {seed}").choice(((), (), ("suspend_driver", "suspend_slot") * 3))
    if orders and configuration.get(PipelineOptions.AUTO_WATERMARK_INTERVAL).to_millis() < 20:
        configuration.set(PipelineOptions.AUTO_WATERMARK_INTERVAL, "20 ms")
    return orders


def aimed_of(seed: int) -> str | None:
    """Return which faults are aimed at a moment of the protocol, besides those that a plan draws. See
    `FaultInjector`.
    """
    return Random(f"aimed at {seed}").choice((None, None, None, *AIMED))


BASE_OPTIONS: dict[str, Any] = {
    "heartbeat.timeout": "6 s",
    "slot.request.timeout": "60 s",
    "task.cancellation.timeout": "20 s",
    "restart-strategy.type": "fixed-delay",
    "restart-strategy.fixed-delay.attempts": 1_000_000,
}
"""The options without which, next to those for checkpoints, a job may fail though all is well."""
CHECKPOINT_OPTIONS: dict[str, Any] = {
    "execution.checkpointing.tolerable-failed-checkpoints": 1_000_000,
    "execution.checkpointing.dir": CHECKPOINT_ROOT,
    "penstock.checkpoint-storage.fsync": False,
}


def random_configuration(random: Random, pace: Pace) -> Configuration:
    """Draw options of the job: small windows, frequent checkpoints, every mode."""
    # Short enough to expire now and then, long enough for a checkpoint that nothing disturbs.
    short_ms = int(30 * (pace.data_ms + pace.control_ms + pace.work_ms + pace.step_ms * 10)) + 400
    options: dict[str, Any] = BASE_OPTIONS | {
        "restart-strategy.fixed-delay.delay": random.choice(("0 ms", "100 ms")),
        "penstock.network.window-bytes": random.choice((700, 2_000, 20_000)),
        "penstock.network.output-queue-bytes": random.choice((700, 2_000, 20_000)),
        "penstock.network.overdraft-bytes-max": random.choice((0, 2_000, 100_000)),
        "penstock.network.bound-bytes-min": random.choice((600, 16_384)),
        "penstock.network.bound-target": random.choice(("0 ms", "5 ms", "25 ms")),
        "penstock.slice.target": random.choice(("1 ms", "5 ms")),
        "penstock.parking.enabled": random.random() < 0.5,
        "pipeline.object-reuse": random.random() < 0.2,
        "pipeline.auto-watermark-interval": random.choice(("1 ms", "5 ms", "50 ms")),
        "pipeline.max-parallelism": random.choice((-1, 4, 5, 16)),
        "execution.buffer-timeout.interval": random.choice(("0 ms", "5 ms", "100 ms")),
    }
    if random.random() < 0.06:
        return Configuration(options)
    mode = random.choice(("aligned", "timeout", "timeout", "unaligned", "unaligned"))
    options |= CHECKPOINT_OPTIONS | {
        "execution.checkpointing.interval": random.choice(("10 ms", "20 ms", "60 ms")),
        "execution.checkpointing.min-pause": random.choice(("0 ms", "0 ms", "20 ms")),
        "execution.checkpointing.timeout": random.choice(("60 s", "60 s", f"{short_ms} ms")),
        "execution.checkpointing.num-retained": random.choice((1, 1, 3)),
        "execution.checkpointing.unaligned.enabled": mode != "aligned",
        "execution.checkpointing.aligned-checkpoint-timeout": (
            random.choice(("1 ms", "5 ms", "20 ms")) if mode == "timeout" else "0 ms"
        ),
    }
    return Configuration(options)
