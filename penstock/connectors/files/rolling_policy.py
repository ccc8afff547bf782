"""Chooses the moment at which a file sink finishes a part and begins another one."""

from __future__ import annotations

from dataclasses import dataclass

_PART_BYTES_DEFAULT = 128 << 20


@dataclass(frozen=True)
class RollingPolicy:
    """Chooses the moment to finish a part and begin another one.

    `part_size`: the size in bytes at which a part ends; None: no limit. `rollover_interval`: a part ends at the first
    checkpoint after it has been open for this time, in ms; None: at every checkpoint. `inactivity_interval`: a part
    ends at the first checkpoint after nothing was written to it for this time, in ms.
    """

    part_size: int | None = None
    rollover_interval: int | None = None
    inactivity_interval: int | None = None

    def __post_init__(self) -> None:
        if self.part_size is not None and self.part_size <= 0:
            raise ValueError(f"part_size must be greater than 0 bytes, not {self.part_size}")
        for name in ("rollover_interval", "inactivity_interval"):
            interval_ms = getattr(self, name)
            if interval_ms is not None and interval_ms <= 0:
                raise ValueError(f"{name} must be greater than 0 ms, not {interval_ms}")

    @staticmethod
    def default_rolling_policy(
        part_size: int = _PART_BYTES_DEFAULT, rollover_interval: int = 60_000, inactivity_interval: int = 60_000
    ) -> RollingPolicy:
        """Roll at 128 MiB, after a minute, or after a minute without a row, as in Flink.

        Only parts of row formats outlive checkpoints. Bulk formats (Parquet, JSON lines, CSV) finish their parts at
        every checkpoint, whatever the intervals are; `enable_compact()` joins them.

        Args:
            part_size: In bytes.
            rollover_interval: In ms.
            inactivity_interval: In ms.

        Returns:
            The policy.
        """
        return RollingPolicy(part_size, rollover_interval, inactivity_interval)

    @staticmethod
    def on_checkpoint_rolling_policy() -> RollingPolicy:
        """Roll at every checkpoint."""
        return RollingPolicy()

    def rolls(self, open_ms: float, idle_ms: float) -> bool:
        """Return True if a part is to be finished at a checkpoint.

        Args:
            open_ms: How long it has been open.
            idle_ms: How long nothing was written to it.

        Returns:
            True or False.
        """
        if self.rollover_interval is None or open_ms >= self.rollover_interval:
            return True
        return self.inactivity_interval is not None and idle_ms >= self.inactivity_interval
