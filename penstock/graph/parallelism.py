"""Computes parallelism and max parallelism of nodes, by Flink's rules."""

from __future__ import annotations

from penstock.common.options.job import MAX_PARALLELISM_LIMIT
from penstock.graph.logical import Node

_MAX_PARALLELISM_LOWER_BOUND = 128


def default_max_parallelism(parallelism: int) -> int:
    """Return the next power of two of one and a half times the parallelism, within [128, 32768]."""
    half_more = parallelism + parallelism // 2
    power = 1 << max(half_more - 1, 0).bit_length()
    return min(max(power, _MAX_PARALLELISM_LOWER_BOUND), MAX_PARALLELISM_LIMIT)


def parallelism_of(node: Node, default: int) -> int:
    return node.parallelism if node.parallelism is not None else default


def max_parallelism_of(node: Node, parallelism: int, default: int) -> int:
    """Return a node's max parallelism. `default` -1: none is set for the job. Raises ValueError if it is less than the
    parallelism.
    """
    if node.max_parallelism is not None:
        found, where = node.max_parallelism, "its max parallelism"
    elif default != -1:
        found, where = default, "the job's max parallelism"
    else:
        found, where = default_max_parallelism(parallelism), f"the largest there is ({MAX_PARALLELISM_LIMIT})"
    if parallelism > found:
        raise ValueError(f"operator {node.name!r}: parallelism {parallelism} is more than {where}, {found}")
    return found
