"""Defines JobID."""

from __future__ import annotations

import re
import secrets
from dataclasses import dataclass


@dataclass(frozen=True)
class JobID:
    """Identifies a job by 128 bits, written as 32 hex digits."""

    hex: str

    def __post_init__(self) -> None:
        if not re.fullmatch(r"[0-9a-f]{32}", self.hex):
            raise ValueError(f"a job id is 32 hex digits (0-9, a-f), got {self.hex!r}")

    @classmethod
    def generate(cls) -> JobID:
        """Return a random id."""
        return cls(secrets.token_hex(16))

    def to_bytes(self) -> bytes:
        """Return the 16 bytes of the id."""
        return bytes.fromhex(self.hex)

    def __str__(self) -> str:
        return self.hex
