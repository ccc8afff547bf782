"""Decides whether a job runs in BATCH or in STREAMING mode, and with which options."""

from __future__ import annotations

from penstock.common.configuration import Configuration
from penstock.common.options import CheckpointingOptions, ExecutionOptions, StateRecoveryOptions
from penstock.common.options.modes import RuntimeExecutionMode
from penstock.graph.logical import LogicalGraph, OperatorKind


def runtime_mode(graph: LogicalGraph, configuration: Configuration) -> RuntimeExecutionMode:
    """Return BATCH or STREAMING. Raises ValueError for BATCH with a source that has no end."""
    mode = configuration.get(ExecutionOptions.RUNTIME_MODE)
    if mode is RuntimeExecutionMode.STREAMING:
        return mode
    endless = [
        repr(node.name)
        for node in graph.nodes
        if node.kind is OperatorKind.SOURCE and not getattr(node.function, "bounded", True)
    ]
    if not endless:
        return RuntimeExecutionMode.BATCH
    if mode is RuntimeExecutionMode.BATCH:
        raise ValueError(
            f"{ExecutionOptions.RUNTIME_MODE.key} is BATCH, and {', '.join(endless)} has no end: make the source "
            "bounded, or set STREAMING, or AUTOMATIC, which decides by the sources"
        )
    return RuntimeExecutionMode.STREAMING


def options_of(mode: RuntimeExecutionMode, configuration: Configuration) -> Configuration:
    """Return the options that a job is executed with in this mode. Raises ValueError for a restore in BATCH mode."""
    options = configuration.copy()
    options.set(ExecutionOptions.RUNTIME_MODE, mode)
    if mode is RuntimeExecutionMode.BATCH:
        if options.get(StateRecoveryOptions.SAVEPOINT_PATH) is not None:
            raise ValueError(
                f"{StateRecoveryOptions.SAVEPOINT_PATH.key} is set, and a job in BATCH mode starts from its beginning: "
                f"leave it out, or set {ExecutionOptions.RUNTIME_MODE.key} to STREAMING"
            )
        options.remove_config(CheckpointingOptions.CHECKPOINTING_INTERVAL.key)
        options.set(CheckpointingOptions.INCREMENTAL_CHECKPOINTS, False)  # what has changed is for a checkpoint only
    return options
