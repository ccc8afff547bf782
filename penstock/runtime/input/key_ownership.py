"""Checks that rows on a keyed edge arrive at the subtask that owns their key group."""

from __future__ import annotations

from penstock.common.failures import OperatorFailure
from penstock.common.typeinfo import KEY_GROUP_COLUMN
from penstock.runtime.input.input_gate import OpenBatch


def check_owner(opened: OpenBatch, owned: range, vertex: str, subtask: int) -> None:
    """Raise OperatorFailure if a row of the batch belongs to a key group outside `owned`."""
    groups = opened.batch.column(KEY_GROUP_COLUMN).to_numpy()
    low, high = int(groups.min()), int(groups.max())
    if low in owned and high in owned:
        return
    foreign = high if high not in owned else low
    raise OperatorFailure(
        vertex,
        RuntimeError(
            f"subtask {subtask} of '{vertex}' owns key groups {owned.start} to {owned.stop - 1}, but a row of group "
            f"{foreign} arrived: the key selector of this key_by is not deterministic"
        ),
        ours=True,
    )
