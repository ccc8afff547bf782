"""Turns the uid that a user gives an operator into the id that graphs and checkpoints know it by."""

from __future__ import annotations

import hashlib


def uid_of(user_uid: str) -> str:
    """Return the id of an operator with a uid of the user's.

    Args:
        user_uid: What the program passes to `uid()`.

    Returns:
        32 hex digits.
    """
    return digest("uid", user_uid)


def digest(*parts: str) -> str:
    """Return a digest of texts, in which no two lists of texts are the same.

    Args:
        parts: The texts.

    Returns:
        32 hex digits.
    """
    found = hashlib.blake2b(digest_size=16)
    for part in parts:
        data = part.encode()
        found.update(len(data).to_bytes(4, "big") + data)
    return found.hexdigest()
