"""Defines the options of a job's name, parallelism, chains and execution."""

from __future__ import annotations

import re

from penstock.common.cached_files import CachedFile, cached_files_text, parse_cached_files
from penstock.common.options.modes import RuntimeExecutionMode
from penstock.common.options.option import (
    BOOLEAN,
    DURATION,
    INTEGER,
    MAPPING,
    STRING,
    STRINGS,
    ConfigOption,
    OptionType,
    enumeration,
    positive,
)
from penstock.common.time import Duration

MAX_PARALLELISM_LIMIT = 32768
"""Flink's upper bound of key groups."""


def _job_id(text: str) -> str | None:
    return None if re.fullmatch(r"[0-9a-f]{32}", text) else "a job id is 32 hex digits (0-9, a-f)"


def _max_parallelism(value: int) -> str | None:
    if value == -1 or 0 < value <= MAX_PARALLELISM_LIMIT:
        return None
    return f"it lies between 1 and {MAX_PARALLELISM_LIMIT}, or is -1 (derived from the parallelism)"


class ParallelismOptions:
    """Holds the option of the default parallelism."""

    DEFAULT_PARALLELISM = ConfigOption(
        "parallelism.default",
        INTEGER,
        1,
        "The parallelism of operators for which the program sets none.",
        check=positive,
    )


class PipelineOptions:
    """Holds the options of a job's name, width and chains."""

    NAME: ConfigOption[str | None] = ConfigOption(
        "pipeline.name", STRING, None, "The job's name if execute() is given none."
    )
    FIXED_JOB_ID: ConfigOption[str | None] = ConfigOption(
        "pipeline.job-id",
        STRING,
        None,
        "The job's id: 32 hex digits. Not set: a random one.",
        deprecated_keys=("$internal.pipeline.job-id",),
        check=_job_id,
    )
    MAX_PARALLELISM = ConfigOption(
        "pipeline.max-parallelism",
        INTEGER,
        -1,
        "The number of key groups, which bounds the parallelism for ever. -1: derived from the parallelism.",
        check=_max_parallelism,
    )
    OBJECT_REUSE = ConfigOption(
        "pipeline.object-reuse",
        BOOLEAN,
        False,
        "Pass the same objects from one operator of a chain to the next. Off: mutable rows are copied, so that a "
        "function may change them.",
    )
    OPERATOR_CHAINING = ConfigOption(
        "pipeline.operator-chaining.enabled",
        BOOLEAN,
        True,
        "Run operators in one subtask where that is possible.",
        deprecated_keys=("pipeline.operator-chaining",),
    )
    AUTO_GENERATE_UIDS = ConfigOption(
        "pipeline.auto-generate-uids",
        BOOLEAN,
        True,
        "Run operators that have no uid under an id of their place in the program. Off: they are refused.",
    )
    AUTO_WATERMARK_INTERVAL = ConfigOption(
        "pipeline.auto-watermark-interval",
        DURATION,
        Duration.of_millis(200),
        "How often watermarks are generated. 0: never periodically, only if a generator emits one for a row.",
    )
    CACHED_FILES: ConfigOption[tuple[CachedFile, ...]] = ConfigOption(
        "pipeline.cached-files",
        OptionType("list of files", parse_cached_files, cached_files_text),
        (),
        "Files that functions find by name (name:rates,path:/data/rates.csv;name:...), copied to where slots run.",
    )
    GLOBAL_JOB_PARAMETERS: ConfigOption[dict[str, str] | None] = ConfigOption(
        "pipeline.global-job-parameters",
        MAPPING,
        None,
        "Parameters (key:value,...) that functions read by RuntimeContext.get_job_parameter.",
    )


class ExecutionOptions:
    """Holds the options of how a job is executed."""

    RUNTIME_MODE = ConfigOption(
        "execution.runtime-mode",
        enumeration(RuntimeExecutionMode),
        RuntimeExecutionMode.STREAMING,
        "How the job is executed. BATCH, for bounded sources: rows are processed key by key once their input has "
        "ended, a keyed reduce emits a result per key, and no checkpoints are taken. AUTOMATIC: BATCH if all sources "
        "are bounded.",
    )
    BUFFER_TIMEOUT_ENABLED = ConfigOption(
        "execution.buffer-timeout.enabled",
        BOOLEAN,
        True,
        "Send batches before they are full. Off: only when they are full.",
    )
    BUFFER_TIMEOUT = ConfigOption(
        "execution.buffer-timeout.interval",
        DURATION,
        Duration.of_millis(100),
        "The longest time that a row waits for its batch to fill. 0: a batch is sent after every slice of work.",
        deprecated_keys=("execution.buffer-timeout",),
    )
    TASK_CANCELLATION_TIMEOUT = ConfigOption(
        "task.cancellation.timeout",
        DURATION,
        Duration.of_seconds(180),
        "How long user code may take to return when its job restarts or ends. After that its process is killed.",
    )


class PythonOptions:
    """Holds the options of the Python code that slots import."""

    PYTHON_FILES: ConfigOption[tuple[str, ...]] = ConfigOption(
        "python.files",
        STRINGS,
        (),
        "Python files, packages (directories) and zip files that slots can import.",
    )
    PYTHON_ARCHIVES: ConfigOption[tuple[str, ...]] = ConfigOption(
        "python.archives",
        STRINGS,
        (),
        "Zip files, or directories, that are unpacked in the working directory of slots: each in a directory of its "
        "own name, or of another one (path#name).",
    )
    PYTHON_REQUIREMENTS: ConfigOption[str | None] = ConfigOption(
        "python.requirements",
        STRING,
        None,
        "A requirements.txt whose packages pip installs on the machines of slots; path#directory: from that directory "
        "of packages, without the network.",
    )
    PYTHON_EXECUTABLE: ConfigOption[str | None] = ConfigOption(
        "python.executable",
        STRING,
        None,
        "The Python that slots run: a path on their machines, or one in an archive (name/bin/python). It needs "
        "penstock and pyspark. Not set: the Python of the Spark session.",
    )
