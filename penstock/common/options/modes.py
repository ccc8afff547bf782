"""Defines the values of options of checkpoints and execution."""

from __future__ import annotations

from enum import Enum


class CheckpointingMode(Enum):
    """Names the guarantee of checkpoints. AT_LEAST_ONCE is accepted and runs as EXACTLY_ONCE, which guarantees more."""

    EXACTLY_ONCE = 0
    AT_LEAST_ONCE = 1


class ExternalizedCheckpointRetention(Enum):
    """Names the checkpoints that are kept when a job ends."""

    DELETE_ON_CANCELLATION = 0
    RETAIN_ON_CANCELLATION = 1
    NO_EXTERNALIZED_CHECKPOINTS = 2


class RecoveryClaimMode(Enum):
    """Names the owner of the checkpoint that a job is restored from: its old job (NO_CLAIM) or the new one (CLAIM)."""

    NO_CLAIM = 0
    CLAIM = 1
    LEGACY = 2


class RuntimeExecutionMode(Enum):
    """Names the execution mode of a job. AUTOMATIC: BATCH if all its sources are bounded, else STREAMING."""

    STREAMING = 0
    BATCH = 1
    AUTOMATIC = 2
