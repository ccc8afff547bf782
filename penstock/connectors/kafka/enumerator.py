"""Hands out partitions: each to one reader, by topic and number."""

from __future__ import annotations

import zlib
from typing import Any

from penstock.connectors.base import SplitEnumerator, decode_split, encode_split
from penstock.connectors.kafka.discovery import Discovery, Found
from penstock.connectors.kafka.offsets import KafkaTopicPartition


class KafkaEnumerator(SplitEnumerator):
    """Looks for partitions at the start, and again every `interval_ms` (None: never).

    `adds` is False if only partitions of the start are read. Then it only looks whether their topics are still there.
    """

    discovers = True

    def __init__(
        self,
        discovery: Discovery,
        parallelism: int,
        interval_ms: float | None,
        adds: bool,
        commits: bool,
        restored: bytes | None,
    ) -> None:
        self.discovery_interval_ms = interval_ms
        self.wants_checkpoints = commits and discovery.has_group
        self._discovery = discovery
        self._parallelism = parallelism
        self._adds = adds and interval_ms is not None
        state: dict[str, Any] = {"known": [], "waiting": [], "topics": {}, "is_first": True}
        if restored is not None:
            state = decode_split(restored)
        # Replaced, never changed: `discover` reads it in another thread.
        self._known = frozenset(KafkaTopicPartition(topic, number) for topic, number in state["known"])
        self._topic_ids: dict[str, str] = state["topics"]
        self._is_first = bool(state["is_first"])
        self._waiting: list[bytes] = [encode_split(split) for split in state["waiting"]]
        self._has_answer = False
        self._committed_ends: set[tuple[str, int]] = set()

    def next_splits(self, subtask: int) -> list[bytes] | None:
        mine = [split for split in self._waiting if self._owner(split) == subtask]
        self._waiting = [split for split in self._waiting if self._owner(split) != subtask]
        if mine:
            return mine
        return [] if not self._has_answer or self._adds else None

    def return_splits(self, splits: list[bytes]) -> None:
        self._waiting += splits

    def snapshot(self) -> bytes:
        return encode_split(
            {
                "known": sorted([p.topic, p.partition] for p in self._known),
                "waiting": [decode_split(split) for split in self._waiting],
                "topics": self._topic_ids,
                "is_first": self._is_first,
            }
        )

    def discover(self) -> Found:
        if not self._is_first and not self._adds:
            self._discovery.check_unchanged(self._topic_ids)
            return Found()
        return self._discovery.find(self._known, self._topic_ids, self._is_first)

    def on_discovered(self, found: Any) -> dict[int, list[bytes]]:
        assert isinstance(found, Found)
        self._known |= found.partitions.keys()
        self._topic_ids = found.topic_ids | self._topic_ids
        self._is_first, self._has_answer = False, True
        assigned: dict[int, list[bytes]] = {}
        for partition, (first, last) in sorted(found.partitions.items()):
            split = {"topic": partition.topic, "partition": partition.partition, "next": first, "stop": last}
            encoded = encode_split(split)
            assigned.setdefault(self._owner(encoded), []).append(encoded)
        return assigned

    def checkpoint_completed(self, splits: list[bytes]) -> None:
        """Commit the offsets of a checkpoint to the group; the end of a partition that was read to its end once.

        Other offsets are committed again and again, because brokers forget those of a group that is silent.

        Args:
            splits: The splits of all readers.
        """
        decoded = [decode_split(split) for split in splits]
        ended = {(s["topic"], s["partition"]) for s in decoded if s["stop"] is not None and s["next"] >= s["stop"]}
        offsets = {(s["topic"], s["partition"]): s["next"] for s in decoded}
        self._discovery.commit(
            {KafkaTopicPartition(*at): offset for at, offset in offsets.items() if at not in self._committed_ends}
        )
        self._committed_ends |= ended

    def _owner(self, split: bytes) -> int:
        decoded = decode_split(split)
        return int((zlib.crc32(decoded["topic"].encode()) + decoded["partition"]) % self._parallelism)
