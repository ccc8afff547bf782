"""Defines MemorySize, and SlotSharingGroup with its resources."""

from __future__ import annotations

from functools import total_ordering
from types import MappingProxyType
from typing import Any

__all__ = ["MemorySize", "SlotSharingGroup"]

_UNITS = (("tb", 1024**4), ("gb", 1024**3), ("mb", 1024**2), ("kb", 1024))


@total_ordering
class MemorySize:
    """Represents an amount of memory, in bytes.

    Example:
        MemorySize.of_mebi_bytes(64).get_kibi_bytes()
    """

    def __init__(self, j_memory_size: Any = None, bytes_size: int | None = None) -> None:
        if j_memory_size is not None:
            raise TypeError("MemorySize(bytes_size=...) takes a number of bytes: there are no Java objects here")
        if not isinstance(bytes_size, int) or bytes_size < 0:
            raise ValueError(f"MemorySize(bytes_size=...) takes a whole number, not negative, got {bytes_size!r}")
        self._bytes = bytes_size

    @staticmethod
    def of_mebi_bytes(mebi_bytes: int) -> MemorySize:
        """Make a size of mebibytes.

        Args:
            mebi_bytes: The number of mebibytes, not negative.

        Returns:
            The size.
        """
        return MemorySize(bytes_size=mebi_bytes * 1024**2)

    def get_bytes(self) -> int:
        """Return the bytes."""
        return self._bytes

    def get_kibi_bytes(self) -> int:
        """Return the whole kibibytes (1024 bytes)."""
        return self._bytes // 1024

    def get_mebi_bytes(self) -> int:
        """Return the whole mebibytes (1024 kibibytes)."""
        return self._bytes // 1024**2

    def get_gibi_bytes(self) -> int:
        """Return the whole gibibytes (1024 mebibytes)."""
        return self._bytes // 1024**3

    def get_tebi_bytes(self) -> int:
        """Return the whole tebibytes (1024 gibibytes)."""
        return self._bytes // 1024**4

    def __eq__(self, other: object) -> bool:
        return isinstance(other, MemorySize) and self._bytes == other._bytes

    def __lt__(self, other: object) -> bool:
        return self._bytes < other._bytes if isinstance(other, MemorySize) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._bytes)

    def __repr__(self) -> str:
        return f"MemorySize(bytes_size={self._bytes})"

    def __str__(self) -> str:
        for unit, size in _UNITS:
            if self._bytes and self._bytes % size == 0:
                return f"{self._bytes // size} {unit}"
        return f"{self._bytes} bytes"


class SlotSharingGroup:
    """Describes a group of operators and its resources, as Flink's schedulers want it.

    Programs may register and name groups. They change nothing here: a slot runs a subtask of each operator, and its
    cores and memory are those of Spark's tasks. A warning says so.

    Example:
        SlotSharingGroup.builder("models").set_cpu_cores(2.0).set_task_heap_memory_mb(512).build()
    """

    def __init__(self, name: str, resources: dict[str, Any] | None = None) -> None:
        self._name = name
        self._resources = MappingProxyType(dict(resources or {}))

    @staticmethod
    def builder(name: str) -> SlotSharingGroup.Builder:
        """Begin a group.

        Args:
            name: Its name.

        Returns:
            The builder.
        """
        return SlotSharingGroup.Builder(name)

    def get_name(self) -> str:
        """Return the name of the group."""
        return self._name

    def get_managed_memory(self) -> MemorySize | None:
        """Return the managed memory: 0 if only other resources were set, None if none were."""
        return self._resources.get("managed") or (MemorySize(bytes_size=0) if self._has_resources else None)

    def get_task_heap_memory(self) -> MemorySize | None:
        """Return the heap memory of tasks; None if it was not set."""
        return self._resources.get("heap")

    def get_task_off_heap_memory(self) -> MemorySize | None:
        """Return the off-heap memory of tasks: 0 if only other resources were set, None if none were."""
        return self._resources.get("off_heap") or (MemorySize(bytes_size=0) if self._has_resources else None)

    def get_cpu_cores(self) -> float | None:
        """Return the cores; None if they were not set."""
        return self._resources.get("cores")

    def get_external_resources(self) -> dict[str, float]:
        """Return the amounts of other resources, such as GPUs, by their names."""
        return dict(self._resources.get("external", {}))

    @property
    def _has_resources(self) -> bool:
        return "cores" in self._resources

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, SlotSharingGroup)
            and self._name == other._name
            and dict(self._resources) == dict(other._resources)
        )

    def __hash__(self) -> int:
        return hash(self._name)

    class Builder:
        """Sets the resources of a group."""

        def __init__(self, name: str) -> None:
            self._name = name
            self._resources: dict[str, Any] = {}

        def set_cpu_cores(self, cpu_cores: float) -> SlotSharingGroup.Builder:
            """Set the cores.

            Args:
                cpu_cores: More than 0.

            Raises:
                ValueError: The number is not positive.
            """
            if cpu_cores <= 0:
                raise ValueError(f"The cpu cores should be positive, got {cpu_cores!r}")
            self._resources["cores"] = float(cpu_cores)
            return self

        def set_task_heap_memory(self, task_heap_memory: MemorySize) -> SlotSharingGroup.Builder:
            """Set the heap memory of tasks.

            Args:
                task_heap_memory: More than 0.

            Raises:
                ValueError: The size is 0.
            """
            if not task_heap_memory.get_bytes():
                raise ValueError("The task heap memory should be positive")
            self._resources["heap"] = task_heap_memory
            return self

        def set_task_heap_memory_mb(self, task_heap_memory_mb: int) -> SlotSharingGroup.Builder:
            """Set the heap memory of tasks.

            Args:
                task_heap_memory_mb: Mebibytes.

            Returns:
                This builder.
            """
            return self.set_task_heap_memory(MemorySize.of_mebi_bytes(task_heap_memory_mb))

        def set_task_off_heap_memory(self, task_off_heap_memory: MemorySize) -> SlotSharingGroup.Builder:
            """Set the off-heap memory of tasks.

            Args:
                task_off_heap_memory: The size.
            """
            self._resources["off_heap"] = task_off_heap_memory
            return self

        def set_task_off_heap_memory_mb(self, task_off_heap_memory_mb: int) -> SlotSharingGroup.Builder:
            """Set the off-heap memory of tasks.

            Args:
                task_off_heap_memory_mb: Mebibytes.

            Returns:
                This builder.
            """
            return self.set_task_off_heap_memory(MemorySize.of_mebi_bytes(task_off_heap_memory_mb))

        def set_managed_memory(self, managed_memory: MemorySize) -> SlotSharingGroup.Builder:
            """Set the managed memory.

            Args:
                managed_memory: The size.
            """
            self._resources["managed"] = managed_memory
            return self

        def set_managed_memory_mb(self, managed_memory_mb: int) -> SlotSharingGroup.Builder:
            """Set the managed memory.

            Args:
                managed_memory_mb: Mebibytes.

            Returns:
                This builder.
            """
            return self.set_managed_memory(MemorySize.of_mebi_bytes(managed_memory_mb))

        def set_external_resource(self, name: str, value: float) -> SlotSharingGroup.Builder:
            """Set the amount of another resource.

            Args:
                name: The resource, such as "gpu".
                value: The amount.
            """
            self._resources.setdefault("external", {})[name] = float(value)
            return self

        def build(self) -> SlotSharingGroup:
            """Make the group.

            Raises:
                ValueError: It has resources, but neither cores nor heap memory, which Flink wants for both.
            """
            if self._resources and not {"cores", "heap"} <= set(self._resources):
                raise ValueError(
                    f"slot sharing group {self._name!r}: give both set_cpu_cores() and set_task_heap_memory(), or no "
                    "resources at all"
                )
            return SlotSharingGroup(self._name, self._resources)
