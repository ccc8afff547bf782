"""Defines the option that lets a supervisor start a job with the same command again and again."""

from __future__ import annotations

from penstock.common.options.option import ConfigOption, choice


class HighAvailabilityOptions:
    """Holds the option that decides whether another start of a program resumes its job."""

    HA_MODE = ConfigOption(
        "high-availability.type",
        choice("none", "filesystem"),
        "none",
        "filesystem: every start of the program resumes its job from the log in execution.checkpointing.dir, or starts "
        "it if there is none; a job that has finished is not run again. The job is found by pipeline.job-id, else by "
        "its name. Ctrl-C, SIGTERM and failures keep its checkpoints.",
        deprecated_keys=("high-availability", "high-availability.mode", "recovery.mode"),
    )
