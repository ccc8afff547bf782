"""Defines the options of where a job runs, and of how its processes find and watch each other."""

from __future__ import annotations

from penstock.common.options.option import (
    BOOLEAN,
    DURATION,
    INTEGER,
    MEMORY,
    PORTS,
    STRING,
    ConfigOption,
    choice,
    not_negative,
    positive,
)
from penstock.common.time import Duration

ANY_PORT = (range(1),)


class DeploymentOptions:
    """Holds the option that chooses the executor."""

    TARGET = ConfigOption("execution.target", STRING, "spark", "The executor that runs the job.")


class SlotOptions:
    """Holds the options of requests for slots."""

    SLOT_REQUEST_TIMEOUT = ConfigOption(
        "slot.request.timeout",
        DURATION,
        Duration.of_seconds(300),
        "How long the job waits for its slots before it fails. The error says how many were missing.",
        check=positive,
    )


class ResourceManagerOptions:
    """Holds the options of spare slots."""

    REDUNDANT_TASK_MANAGER_NUM = ConfigOption(
        "slotmanager.redundant-taskmanager-num",
        INTEGER,
        0,
        "How many spare slots replace lost ones at once.",
        check=not_negative,
    )


class HeartbeatOptions:
    """Holds the options of heartbeats between slots and driver."""

    HEARTBEAT_INTERVAL = ConfigOption(
        "heartbeat.interval",
        DURATION,
        Duration.of_seconds(10),
        "How often slots and driver send each other heartbeats.",
        check=positive,
    )
    HEARTBEAT_TIMEOUT = ConfigOption(
        "heartbeat.timeout",
        DURATION,
        Duration.of_seconds(50),
        "The time without a heartbeat after which a slot or driver is lost.",
        check=positive,
    )


class JobManagerOptions:
    """Holds the options of the driver's address, and of the slots that it asks for."""

    BIND_HOST: ConfigOption[str | None] = ConfigOption(
        "jobmanager.bind-host",
        STRING,
        None,
        "The address that the driver listens on. Not set: jobmanager.rpc.address.",
    )
    ADDRESS: ConfigOption[str | None] = ConfigOption(
        "jobmanager.rpc.address",
        STRING,
        None,
        "The driver's address as slots see it. Not set: Spark's driver host.",
    )
    PORT: ConfigOption[tuple[range, ...] | None] = ConfigOption(
        "jobmanager.rpc.port", PORTS, None, "The driver's port as slots see it. Not set, or 0: the one it listens on."
    )
    SCHEDULER = ConfigOption(
        "jobmanager.scheduler",
        choice("default", "adaptive", aliases={"adaptivebatch": "default", "adaptive-batch": "default"}),
        "default",
        "What happens without a task place for every slot. default: slots share processes. adaptive: the job runs in "
        "as many slots as there are places, and is rescaled when more come.",
    )
    SUBMISSION_RESOURCE_WAIT_TIMEOUT = ConfigOption(
        "jobmanager.adaptive-scheduler.submission.resource-wait-timeout",
        DURATION,
        Duration.of_seconds(300),
        "With the adaptive scheduler, instead of slot.request.timeout: how long the job waits for a first slot, at "
        "its start and after a loss.",
        ("jobmanager.adaptive-scheduler.resource-wait-timeout",),
        check=positive,
    )
    SUBMISSION_RESOURCE_STABILIZATION_TIMEOUT = ConfigOption(
        "jobmanager.adaptive-scheduler.submission.resource-stabilization-timeout",
        DURATION,
        Duration.of_seconds(10),
        "How long the job, at its start and after a loss, waits for further slots before it runs in those that it has.",
        ("jobmanager.adaptive-scheduler.resource-stabilization-timeout",),
    )
    EXECUTING_RESOURCE_STABILIZATION_TIMEOUT = ConfigOption(
        "jobmanager.adaptive-scheduler.executing.resource-stabilization-timeout",
        DURATION,
        Duration.of_seconds(60),
        "How long a running job waits for further slots after one has come; if all that it wants have come, it is "
        "rescaled at once.",
        ("jobmanager.adaptive-scheduler.scaling-interval.max",),
    )
    EXECUTING_COOLDOWN_AFTER_RESCALING = ConfigOption(
        "jobmanager.adaptive-scheduler.executing.cooldown-after-rescaling",
        DURATION,
        Duration.of_seconds(30),
        "How long the job runs, at least, before it gets more slots again.",
        ("jobmanager.adaptive-scheduler.scaling-interval.min",),
    )
    ADAPTIVE_MIN_PARALLELISM = ConfigOption(
        "jobmanager.adaptive-scheduler.min-parallelism",
        INTEGER,
        1,
        "The fewest slots that the job runs in. With fewer it waits, at its start and after a loss, and fails when "
        "submission.resource-wait-timeout is over. No more than the job wants: its parallelism, or the newest rescale.",
        check=positive,
    )
    RPC_BIND_PORT: ConfigOption[tuple[range, ...] | None] = ConfigOption(
        "jobmanager.rpc.bind-port",
        PORTS,
        None,
        "The ports that the driver may listen on, e.g. 50100-50200. 0: any free one. Not set: jobmanager.rpc.port, "
        "else any free one.",
    )


class TaskManagerOptions:
    """Holds the options of the slots' addresses."""

    BIND_HOST: ConfigOption[str | None] = ConfigOption(
        "taskmanager.bind-host",
        STRING,
        None,
        "The address that slots listen on for each other. Not set: taskmanager.host.",
    )
    HOST: ConfigOption[str | None] = ConfigOption(
        "taskmanager.host",
        STRING,
        None,
        "A slot's address as other slots see it. Not set: the one by which it reaches the driver.",
    )
    RPC_PORT = ConfigOption(
        "taskmanager.rpc.port",
        PORTS,
        ANY_PORT,
        "Accepted without effect: slots connect to the driver, and listen only on taskmanager.data.bind-port.",
    )
    BUFFER_DEBLOAT_ENABLED: ConfigOption[bool | None] = ConfigOption(
        "taskmanager.network.memory.buffer-debloat.enabled",
        BOOLEAN,
        None,
        "Whether data in flight is bounded by time, as it is if this is not set. false: windows and queues always have "
        "their greatest size.",
    )
    BUFFER_DEBLOAT_TARGET: ConfigOption[Duration | None] = ConfigOption(
        "taskmanager.network.memory.buffer-debloat.target",
        DURATION,
        None,
        "How long it takes to consume what is in flight between two operators: half of it in output queues, half on "
        "its way and at the consumer. Not set: penstock.network.bound-target counts.",
        check=positive,
    )
    BUFFER_DEBLOAT_PERIOD: ConfigOption[Duration | None] = ConfigOption(
        "taskmanager.network.memory.buffer-debloat.period",
        DURATION,
        None,
        "How often the consumed rate is measured; four times as often while it grows. Not set: half of the target, or "
        "penstock.network.bound-target.",
        check=positive,
    )
    BUFFER_DEBLOAT_SAMPLES: ConfigOption[int | None] = ConfigOption(
        "taskmanager.network.memory.buffer-debloat.samples",
        INTEGER,
        None,
        "About how many measurements decide how far windows and queues shrink; they grow at once. Not set: 9.",
        check=positive,
    )
    BUFFER_DEBLOAT_THRESHOLD_PERCENTAGES: ConfigOption[int | None] = ConfigOption(
        "taskmanager.network.memory.buffer-debloat.threshold-percentages",
        INTEGER,
        None,
        "Smaller changes of size are not made, unless to the least or greatest size. Not set: 0.",
        check=lambda percent: None if 0 <= percent <= 100 else "a percentage is 0 to 100",
    )
    DATA_PORT: ConfigOption[tuple[range, ...] | None] = ConfigOption(
        "taskmanager.data.port",
        PORTS,
        None,
        "A slot's data port as others see it. Not set, or 0: the one it listens on.",
    )
    DATA_BIND_PORT: ConfigOption[tuple[range, ...] | None] = ConfigOption(
        "taskmanager.data.bind-port",
        PORTS,
        None,
        "The ports that slots may listen on for data, e.g. 50300-50400, one for each slot of a machine. 0: any free "
        "one. Not set: taskmanager.data.port, else any free one.",
    )


class NetworkOptions:
    """Holds the options of channels: how much data may be on its way."""

    BOUND_TARGET = ConfigOption(
        "penstock.network.bound-target",
        DURATION,
        Duration.of_millis(25),
        "Windows and output queues are each sized to what is consumed in this time, between their least and greatest "
        "size. 0: always the greatest. Flink's options for buffer debloating replace it.",
    )
    BOUND_BYTES_MIN = ConfigOption(
        "penstock.network.bound-bytes-min",
        MEMORY,
        8 * 1024,
        "The least size of a gate's window and of an output queue.",
        check=positive,
    )
    WINDOW_BYTES = ConfigOption(
        "penstock.network.window-bytes",
        MEMORY,
        4 * 1024 * 1024,
        "How many bytes a consumer grants: the most that may be on their way to one input gate.",
        check=positive,
    )
    OUTPUT_QUEUE_BYTES = ConfigOption(
        "penstock.network.output-queue-bytes",
        MEMORY,
        4 * 1024 * 1024,
        "How many bytes may wait in a subtask's output queues before it stops reading input.",
        check=positive,
    )
    OVERDRAFT_BYTES_MAX = ConfigOption(
        "penstock.network.overdraft-bytes-max",
        MEMORY,
        8 * 1024**2,
        "How far beyond its output queue a generator is drained when a barrier is waiting.",
        check=not_negative,
    )


class RestOptions:
    """Holds the options of the server by which other terminals reach a running job."""

    ADDRESS: ConfigOption[str | None] = ConfigOption(
        "rest.address",
        STRING,
        None,
        "The driver's address as those see it who control its jobs (`penstock savepoint` and the like). Not set: "
        "127.0.0.1, this machine only.",
    )
    BIND_ADDRESS: ConfigOption[str | None] = ConfigOption(
        "rest.bind-address",
        STRING,
        None,
        "The address that the driver listens on for them. Not set: rest.address. Requests carry a token, but are not "
        "encrypted: leave it on this machine, or in a network that you trust.",
    )
    PORT = ConfigOption(
        "rest.port",
        INTEGER,
        0,
        "The port as those see it who control a job; the driver listens on it if rest.bind-port is not set. 0: the "
        "one it listens on, any free one.",
        check=lambda port: None if 0 <= port <= 65535 else "a port is 0 to 65535",
    )
    BIND_PORT: ConfigOption[tuple[range, ...] | None] = ConfigOption(
        "rest.bind-port", PORTS, None, "The ports that the driver may listen on for them. Not set: rest.port."
    )


class WebOptions:
    """Holds the options of reports."""

    CHECKPOINTS_HISTORY_SIZE = ConfigOption(
        "web.checkpoints.history", INTEGER, 10, "How many checkpoints a job's report remembers.", check=positive
    )
