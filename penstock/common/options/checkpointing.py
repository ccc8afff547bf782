"""Defines the options of checkpoints, of state backends, and of what a job starts from."""

from __future__ import annotations

from penstock.common.options.modes import CheckpointingMode, ExternalizedCheckpointRetention, RecoveryClaimMode
from penstock.common.options.option import (
    BOOLEAN,
    DURATION,
    INTEGER,
    MEMORY,
    STRING,
    STRINGS,
    ConfigOption,
    at_least,
    choice,
    enumeration,
    not_negative,
    positive,
)
from penstock.common.time import Duration


class CheckpointingOptions:
    """Holds the options of checkpoints."""

    CHECKPOINTING_INTERVAL: ConfigOption[Duration | None] = ConfigOption(
        "execution.checkpointing.interval",
        DURATION,
        None,
        "How often a checkpoint is triggered. Not set: no checkpoints.",
        check=at_least(Duration.of_millis(10), "10 ms"),
    )
    CHECKPOINTING_INTERVAL_DURING_BACKLOG: ConfigOption[Duration | None] = ConfigOption(
        "execution.checkpointing.interval-during-backlog",
        DURATION,
        None,
        "How often a checkpoint is triggered while any source reports that it works off a backlog; at least "
        "execution.checkpointing.interval, or 0 for no periodic checkpoints meanwhile. Not set: as usual.",
    )
    CHECKPOINTING_CONSISTENCY_MODE = ConfigOption(
        "execution.checkpointing.mode",
        enumeration(CheckpointingMode),
        CheckpointingMode.EXACTLY_ONCE,
        "AT_LEAST_ONCE runs as EXACTLY_ONCE, which guarantees more and costs hardly more here.",
    )
    CHECKPOINTING_TIMEOUT = ConfigOption(
        "execution.checkpointing.timeout",
        DURATION,
        Duration.of_minutes(10),
        "The time after which a checkpoint that has not completed is aborted.",
        check=at_least(Duration.of_millis(10), "10 ms"),
    )
    MIN_PAUSE_BETWEEN_CHECKPOINTS = ConfigOption(
        "execution.checkpointing.min-pause",
        DURATION,
        Duration(0),
        "The shortest time from the end of a checkpoint to the trigger of the next periodic one. Above 0, one "
        "checkpoint is in progress at a time.",
    )
    MAX_CONCURRENT_CHECKPOINTS = ConfigOption(
        "execution.checkpointing.max-concurrent-checkpoints",
        INTEGER,
        1,
        "How many checkpoints may be in progress at once, aligned or unaligned. More than 1 is for slow storage: a "
        "checkpoint is triggered while segments of earlier ones are being stored. Each keeps its in-flight data in "
        "memory until it is stored.",
        check=positive,
    )
    TOLERABLE_FAILURE_NUMBER = ConfigOption(
        "execution.checkpointing.tolerable-failed-checkpoints",
        INTEGER,
        0,
        "How many checkpoints in a row may fail before the job restarts.",
        check=not_negative,
    )
    EXTERNALIZED_CHECKPOINT_RETENTION = ConfigOption(
        "execution.checkpointing.externalized-checkpoint-retention",
        enumeration(ExternalizedCheckpointRetention),
        ExternalizedCheckpointRetention.NO_EXTERNALIZED_CHECKPOINTS,
        "What is left of a job's checkpoints when it has ended.",
        deprecated_keys=("execution.checkpointing.externalized-checkpoint",),
    )
    ENABLE_UNALIGNED = ConfigOption(
        "execution.checkpointing.unaligned.enabled",
        BOOLEAN,
        False,
        "Let barriers overtake data, so that backpressure does not delay checkpoints. The data is written with the "
        "checkpoint.",
        deprecated_keys=("execution.checkpointing.unaligned",),
    )
    FORCE_UNALIGNED = ConfigOption(
        "execution.checkpointing.unaligned.forced",
        BOOLEAN,
        False,
        "Accepted without effect: every kind of edge supports unaligned checkpoints here.",
    )
    ALIGNED_CHECKPOINT_TIMEOUT = ConfigOption(
        "execution.checkpointing.aligned-checkpoint-timeout",
        DURATION,
        Duration(0),
        "How long after its trigger a checkpoint turns unaligned, if unaligned checkpoints are enabled. 0: at once.",
        deprecated_keys=("execution.checkpointing.alignment-timeout",),
    )
    MAX_RETAINED_CHECKPOINTS = ConfigOption(
        "execution.checkpointing.num-retained",
        INTEGER,
        1,
        "How many completed checkpoints are kept.",
        deprecated_keys=("state.checkpoints.num-retained",),
        check=positive,
    )
    SNAPSHOT_COMPRESSION = ConfigOption(
        "execution.checkpointing.snapshot-compression",
        choice("none", "lz4", "zstd", aliases={"false": "none", "true": "lz4"}),
        "none",
        "How state and in-flight data are compressed in checkpoints and savepoints. lz4 takes little time, zstd makes "
        "them smaller; true, as in Flink, is lz4. A checkpoint is read whatever this says.",
    )
    CHECKPOINT_STORAGE: ConfigOption[str | None] = ConfigOption(
        "execution.checkpointing.storage",
        choice("jobmanager", "filesystem"),
        None,
        "filesystem: below execution.checkpointing.dir. jobmanager: in the driver's memory, lost with it. Not set: "
        "filesystem if a directory is set.",
        deprecated_keys=("state.checkpoint-storage",),
    )
    CHECKPOINTS_DIRECTORY: ConfigOption[str | None] = ConfigOption(
        "execution.checkpointing.dir",
        STRING,
        None,
        "The directory of checkpoints: a path that the driver and all executors share, or a URI of file://, s3://, "
        "gs://, az://, abfss:// or hdfs://. Each job has a directory in it.",
        deprecated_keys=("state.checkpoints.dir", "state.backend.fs.checkpointdir"),
    )
    SAVEPOINT_DIRECTORY: ConfigOption[str | None] = ConfigOption(
        "execution.checkpointing.savepoint-dir",
        STRING,
        None,
        "The directory that savepoints are written to: a path or a URI, as execution.checkpointing.dir.",
        deprecated_keys=("state.savepoints.dir", "savepoints.state.backend.fs.dir"),
    )
    CHECKPOINTS_AFTER_TASKS_FINISH = ConfigOption(
        "execution.checkpointing.checkpoints-after-tasks-finish",
        BOOLEAN,
        True,
        "Accepted and always on: finished subtasks never stop checkpoints.",
        deprecated_keys=("execution.checkpointing.checkpoints-after-tasks-finish.enabled",),
        check=lambda value: None if value else "checkpoints go on after subtasks have finished; leave it out",
    )
    JOBMANAGER_STORAGE_MAX_SIZE = ConfigOption(
        "penstock.checkpoint-storage.jobmanager.max-size",
        MEMORY,
        5 * 1024**2,
        "The largest object that storage in the driver's memory accepts, as Flink's JobManagerCheckpointStorage.",
        check=positive,
    )
    STORAGE_FSYNC = ConfigOption(
        "penstock.checkpoint-storage.fsync",
        BOOLEAN,
        True,
        "Sync files and directories to disk before a checkpoint completes. Off: a checkpoint takes about 2 ms less, "
        "and a power failure may lose it.",
    )

    INCREMENTAL_CHECKPOINTS = ConfigOption(
        "execution.checkpointing.incremental",
        BOOLEAN,
        False,
        "Store only what has changed of keyed state since the checkpoint before. Savepoints store everything.",
        deprecated_keys=("state.backend.incremental",),
    )
    LOCAL_BACKUP_ENABLED = ConfigOption(
        "execution.checkpointing.local-backup.enabled",
        BOOLEAN,
        False,
        "Keep copies of the newest checkpoint on the slots' machines, and restart from them where they are sound.",
        deprecated_keys=("execution.state-recovery.from-local", "state.backend.local-recovery"),
    )
    LOCAL_BACKUP_DIRECTORIES: ConfigOption[tuple[str, ...] | None] = ConfigOption(
        "execution.checkpointing.local-backup.dirs",
        STRINGS,
        None,
        "Directories of the slots' machines, with commas, for these copies. Each slot makes its own there, and deletes "
        "it when it leaves the job. Not set: where RocksDB keeps its files (state.backend.rocksdb.localdir).",
        deprecated_keys=("taskmanager.state.local.root-dirs",),
    )


class StateRecoveryOptions:
    """Holds the options that name the checkpoint or savepoint from which a job starts."""

    SAVEPOINT_PATH: ConfigOption[str | None] = ConfigOption(
        "execution.state-recovery.path",
        STRING,
        None,
        "What the job starts from. A job's directory (or 'latest') resumes that job; a chk-<n> in it, or a savepoint, "
        "starts a new job.",
        deprecated_keys=("execution.savepoint.path",),
    )
    RESTORE_MODE = ConfigOption(
        "execution.state-recovery.claim-mode",
        enumeration(RecoveryClaimMode),
        RecoveryClaimMode.NO_CLAIM,
        "NO_CLAIM never deletes the checkpoint that a new job starts from; CLAIM makes it the new job's own.",
        deprecated_keys=("execution.savepoint-restore-mode",),
        check=lambda mode: "LEGACY is gone; write NO_CLAIM or CLAIM" if mode is RecoveryClaimMode.LEGACY else None,
    )
    SAVEPOINT_IGNORE_UNCLAIMED_STATE = ConfigOption(
        "execution.state-recovery.ignore-unclaimed-state",
        BOOLEAN,
        False,
        "Drop state of operators that the program does not have any more. Rows in flight to or from them are never "
        "dropped.",
        deprecated_keys=("execution.savepoint.ignore-unclaimed-state",),
    )
    WITHOUT_CHANNEL_STATE = ConfigOption(
        "execution.state-recovery.without-channel-state.checkpoint-id",
        INTEGER,
        -1,
        "The number of a checkpoint or savepoint from which rows in flight are not restored: they are lost, and the "
        "job reports how many on which channel. The way past a damaged range, or an edge that is gone. -1: none.",
    )
    WITHOUT_CHANNEL_STATE_OF_CHANNELS: ConfigOption[tuple[str, ...]] = ConfigOption(
        "penstock.state-recovery.without-channel-state.channels",
        STRINGS,
        (),
        "Of that checkpoint, rows in flight of these channels only are not restored: edges, or channels as "
        "edge[producer -> consumer], as errors and reports print them, with commas. Not set: of all channels.",
    )


class StateBackendOptions:
    """Holds the options of where keyed state is kept while the job runs."""

    STATE_BACKEND = ConfigOption(
        "state.backend.type",
        choice("hashmap", "rocksdb", aliases={"filesystem": "hashmap", "jobmanager": "hashmap"}),
        "hashmap",
        "Where keyed state is kept while the job runs, that of Python functions and that of built-in aggregations: "
        "hashmap (the slot's memory) or rocksdb (its disk; needs `pip install penstock[rocksdb]`).",
        deprecated_keys=("state.backend",),
    )
