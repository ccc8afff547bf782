"""Sizes windows and output queues: they hold what is consumed in a short time, and no more.

What waits in front of a slow consumer helps nobody: it is written to every unaligned checkpoint, and an aligned
barrier waits behind it. So a bound follows the measured rate: bytes per ms times a target time (Flink calls the idea
buffer debloating). It rises at once, because a window that is too small throttles the stream and hides its true rate,
and falls slowly, because a pause is not yet a slow consumer.
"""

from __future__ import annotations

_RISE_MAX = 4.0
SAMPLES = 9
"""About the number of measurements that decide how far a bound falls."""


class BoundSizer:
    """Follows the consumed rate with a bound in bytes. `target_ms` 0 keeps the bound at `bytes_max`. `update` takes a
    counter of all bytes consumed so far. `samples`: the number of measurements in the exponential average by which the
    bound falls. `threshold`: smaller changes, as a share of the bound, are not made, unless they lead to the least or
    the greatest size; they add up until they are.
    """

    __slots__ = (
        "_bytes_min", "_bytes_max", "_target_ms", "_fall", "_threshold", "_counted", "_since_ms", "_wanted",
        "bound_bytes",
    )  # fmt: skip

    def __init__(
        self, bytes_min: int, bytes_max: int, target_ms: float, samples: int = SAMPLES, threshold: float = 0.0
    ) -> None:
        self._bytes_min = min(bytes_min, bytes_max)
        self._bytes_max = bytes_max
        self._target_ms = target_ms
        self._fall = 2 / (samples + 1)
        self._threshold = threshold
        self._counted = 0
        self._since_ms: float | None = None
        self.bound_bytes = bytes_max if target_ms <= 0 else self._bytes_min
        self._wanted = float(self.bound_bytes)

    def update(self, consumed_bytes: int, now_ms: float) -> bool:
        """Return whether the bound has changed. Call it at steady intervals of about the target time."""
        if self._target_ms <= 0:
            return False
        if self._since_ms is None or now_ms <= self._since_ms:
            self._since_ms, self._counted = now_ms, consumed_bytes
            return False
        # 4.3: the bound is what is consumed in the target time.
        rate = (consumed_bytes - self._counted) / (now_ms - self._since_ms)
        self._since_ms, self._counted = now_ms, consumed_bytes
        before = self._wanted
        wanted = rate * self._target_ms
        if wanted < before:
            wanted = before + self._fall * (wanted - before)
        elif wanted > before * _RISE_MAX:
            wanted = before * _RISE_MAX
        self._wanted = min(max(wanted, float(self._bytes_min)), float(self._bytes_max))
        bound_bytes = int(self._wanted)
        if bound_bytes == self.bound_bytes:
            return False
        is_extreme = bound_bytes in (self._bytes_min, self._bytes_max)
        if not is_extreme and abs(bound_bytes - self.bound_bytes) < int(self.bound_bytes * self._threshold):
            return False
        self.bound_bytes = bound_bytes
        return True
