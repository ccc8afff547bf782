"""Computes which subtasks of an edge's two ends share a channel: pointwise edges connect neighbours, all others every
pair.
"""

from __future__ import annotations


def consumers_of(pointwise: bool, producer: int, sources: int, targets: int) -> range:
    if not pointwise:
        return range(targets)
    if sources == targets:
        return range(producer, producer + 1)
    if sources > targets:
        consumer = producer * targets // sources
        return range(consumer, consumer + 1)
    first = -(-producer * targets // sources)
    last = -(-(producer + 1) * targets // sources)
    return range(first, last)


def producers_of(pointwise: bool, consumer: int, sources: int, targets: int) -> range:
    if not pointwise:
        return range(sources)
    if sources <= targets:
        producer = consumer * sources // targets
        return range(producer, producer + 1)
    first = -(-consumer * sources // targets)
    last = -(-(consumer + 1) * sources // targets)
    return range(first, last)
