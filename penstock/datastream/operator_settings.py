"""Defines the settings that the operator of a stream and a sink have in common."""

from __future__ import annotations

from typing import Self

from penstock.datastream._streams.environment import Environment
from penstock.datastream._streams.java_settings import warn_of_groups
from penstock.datastream._streams.setting_checks import check_max_parallelism, check_parallelism
from penstock.datastream.slot_sharing_group import SlotSharingGroup
from penstock.graph.logical import ChainingStrategy, Node

__all__ = ["OperatorSettings"]


class OperatorSettings:
    """Sets properties of the operator that emits a stream, or of a sink."""

    def __init__(self, environment: Environment, node: Node | None) -> None:
        self._environment = environment
        self._node_or_none = node

    def _node_for(self, method: str) -> Node:
        if self._node_or_none is None:
            raise TypeError(
                f"{method}() belongs to an operator; this stream is a union, a partitioning or a side "
                f"output of others: call {method}() before it, or after the next operator"
            )
        return self._node_or_none

    def get_name(self) -> str:
        """Return the name of the operator."""
        return self._node_for("get_name").name

    def name(self, name: str) -> Self:
        """Set the name of the operator, which reports and errors show.

        Args:
            name: The name.

        Raises:
            TypeError: The name is no text, or empty.
        """
        if not isinstance(name, str) or not name:
            raise TypeError(f"an operator's name is a non-empty string, got {name!r}")
        self._node_for("name").name = name
        return self

    def uid(self, uid: str) -> Self:
        """Set the id by which the operator's state is found when the program has changed.

        Set one for every operator with state, and never change it.

        Args:
            uid: A text that no other operator of the job has.

        Raises:
            TypeError: The uid is no text, or empty.
            ValueError: Another operator has this uid.
        """
        if not isinstance(uid, str) or not uid:
            raise TypeError(f"a uid is a non-empty string, got {uid!r}")
        node = self._node_for("uid")
        for other in self._environment._graph.nodes:
            if other is not node and other.uid == uid:
                raise ValueError(
                    f"the uid {uid!r} of operator {node.name!r} is taken by operator {other.name!r}; "
                    "each operator needs one of its own"
                )
        node.uid = uid
        return self

    def set_uid_hash(self, uid_hash: str) -> Self:
        """Set the operator's id as a checkpoint contains it. For restores of operators that had no uid.

        Args:
            uid_hash: 32 hex digits.

        Raises:
            ValueError: The text is something else.
        """
        if len(uid_hash) != 32 or set(uid_hash) - set("0123456789abcdef"):
            raise ValueError(f"a uid hash is 32 hex digits (0-9, a-f), got {uid_hash!r}")
        self._node_for("set_uid_hash").options["uid_hash"] = uid_hash
        return self

    def set_parallelism(self, parallelism: int) -> Self:
        """Set the number of subtasks of the operator.

        Args:
            parallelism: At least 1.

        Raises:
            ValueError: The operator cannot have this parallelism.
        """
        node = self._node_for("set_parallelism")
        check_parallelism(parallelism, node.name)
        if node.options.get("non_parallel") and parallelism != 1:
            raise ValueError(
                f"operator {node.name!r} runs in one subtask only; it cannot have parallelism {parallelism}"
            )
        if node.max_parallelism is not None and parallelism > node.max_parallelism:
            raise ValueError(
                f"operator {node.name!r}: parallelism {parallelism} is more than its max parallelism "
                f"{node.max_parallelism}"
            )
        node.parallelism = parallelism
        return self

    def set_max_parallelism(self, max_parallelism: int) -> Self:
        """Set the number of key groups of the operator, the largest parallelism that it can ever have.

        Args:
            max_parallelism: At least its parallelism. It cannot change in a restore.

        Raises:
            ValueError: The number is out of range, or less than the parallelism.
        """
        node = self._node_for("set_max_parallelism")
        check_max_parallelism(max_parallelism, node.name)
        if node.parallelism is not None and max_parallelism < node.parallelism:
            raise ValueError(
                f"operator {node.name!r}: max parallelism {max_parallelism} is less than its parallelism "
                f"{node.parallelism}"
            )
        node.max_parallelism = max_parallelism
        return self

    def start_new_chain(self) -> Self:
        """Begin a chain with this operator: it is not chained to the one before it."""
        self._node_for("start_new_chain").chaining = ChainingStrategy.HEAD
        return self

    def disable_chaining(self) -> Self:
        """Keep the operator out of chains: neither the one before it nor the one after it is chained to it."""
        self._node_for("disable_chaining").chaining = ChainingStrategy.NEVER
        return self

    def slot_sharing_group(self, slot_sharing_group: str | SlotSharingGroup) -> Self:
        """Accept Flink's setting, which has no effect: all operators share their slots. A warning says so.

        Args:
            slot_sharing_group: The group, or its name.

        Raises:
            TypeError: The argument is neither.
        """
        node = self._node_for("slot_sharing_group")
        given = slot_sharing_group
        name = given.get_name() if isinstance(given, SlotSharingGroup) else given
        if not isinstance(name, str):
            raise TypeError(f"slot_sharing_group() of operator {node.name!r} takes a group or a name, got {given!r}")
        if name != "default":
            warn_of_groups(name)
        return self

    def set_description(self, description: str) -> Self:
        """Accept a description of the operator, as Flink does. It is not shown anywhere yet: use `name`.

        Args:
            description: The text.
        """
        self._node_for("set_description").options["description"] = description
        return self
