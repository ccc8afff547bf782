"""Keeps state: keyed state and its snapshots, operator state, and state that is read from checkpoints."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from penstock.common.configuration import Configuration
    from penstock.state.reading.checkpoint import Checkpoint


def read_checkpoint(path: str, configuration: Configuration | None = None) -> Checkpoint:
    """Open a checkpoint or a savepoint, to read the state in it. The job's code is not needed.

    Args:
        path: A job's directory (its newest checkpoint), a chk-<n> in it, or a savepoint; a path, or a URI of any store
            that checkpoints can be in.
        configuration: Says how stores are reached. Not given: what `config.yaml` says.

    Returns:
        The checkpoint. What it has is read when it is asked for.

    Raises:
        StoreError: There is no checkpoint, or it cannot be read. `DamagedObject`: it is damaged; `NewerFormat`: a
            newer version has written it.

    Example:
        table = read_checkpoint("/backups/savepoint-1").keyed_state("totals", "total").table()
    """
    # Reading needs modules that no slot needs.
    from penstock.state.reading.checkpoint import read_checkpoint as read

    return read(path, configuration)
