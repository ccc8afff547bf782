"""Maps keys to key groups: the stable hash, Flink's ranges of key groups, and both over whole columns.

The hash of a key is defined by published algorithms and the key's value alone, never by a process or a package
version: splitmix64 (Steele, Lea, Flood 2014) of integers within int64, XXH3-64 of a string's UTF-8 and of bytes, a
fixed constant for None, `h = splitmix64(h ^ hash_i)` from 0 over the items of a tuple, and XXH3-64 of the canonical
encoding of anything else. So a LONG or STRING column and the same key by lambda land in the same key group.
"""

from __future__ import annotations

from typing import Any, Callable, Literal, Sequence

import numpy as np
import numpy.typing as npt
from xxhash import xxh3_64_intdigest

from penstock.protocol.values.key_encoding import INT64_MAX, INT64_MIN, NULL_KEY, UnsupportedKey, decode, encode

__all__ = [
    "KeyDecoder", "KeyEncoder", "UnsupportedKey", "decode", "encode", "hash_int64", "hash_strings", "key_group",
    "key_group_range", "key_groups", "key_hash", "owner",
]  # fmt: skip

MAX_PARALLELISM_LIMIT = 32768
"""Flink's upper bound of max parallelism; key groups fit in uint16."""

NONE_HASH = 0x9E37_79B9_7F4A_7C15
_MASK = 2**64 - 1
_GAMMA = 0x9E37_79B9_7F4A_7C15
_MIX_1 = 0xBF58_476D_1CE4_E5B9
_MIX_2 = 0x94D0_49BB_1331_11EB
_INTEGER_TAG = ord("i")

DeclaredKey = Literal["long", "string", "canonical"]
Hashes = npt.NDArray[np.uint64]
KeyGroups = npt.NDArray[np.uint16]
KeyColumn = npt.NDArray[np.int64] | list[str] | list[bytes]


def splitmix64(value: int) -> int:
    value = (value + _GAMMA) & _MASK
    value = ((value ^ (value >> 30)) * _MIX_1) & _MASK
    value = ((value ^ (value >> 27)) * _MIX_2) & _MASK
    return value ^ (value >> 31)


def key_hash(key: Any) -> int:
    """Return the 64-bit hash of a key, unsigned. Raises `UnsupportedKey`."""
    if isinstance(key, str):
        return xxh3_64_intdigest(key.encode("utf-8", "surrogatepass"))
    if isinstance(key, (bytes, bytearray)):
        return xxh3_64_intdigest(key)
    if isinstance(key, (tuple, list)):
        folded = 0
        for item in key:
            folded = splitmix64(folded ^ (NONE_HASH if item is None else key_hash(item)))
        return folded
    data = encode(key)
    if data[0] == _INTEGER_TAG:
        return splitmix64(int.from_bytes(data[1:], "little"))
    return xxh3_64_intdigest(data)


def hash_int64(values: npt.NDArray[np.int64]) -> Hashes:
    """Return `key_hash` of each value of a LONG column without nulls (about 3 ns each)."""
    x = values.astype(np.int64, copy=False).view(np.uint64) + np.uint64(_GAMMA)
    x ^= x >> np.uint64(30)
    x *= np.uint64(_MIX_1)
    x ^= x >> np.uint64(27)
    x *= np.uint64(_MIX_2)
    x ^= x >> np.uint64(31)
    return x


def hash_strings(values: Sequence[str]) -> Hashes:
    """Return `key_hash` of each string (about 200 ns each: pass the distinct values of a dictionary-encoded column)."""
    digest = xxh3_64_intdigest
    hashes = [digest(value.encode("utf-8", "surrogatepass")) for value in values]
    return np.array(hashes, dtype=np.uint64)


def key_group(hash_value: int, max_parallelism: int) -> int:
    """Return the top 32 bits of the hash, scaled to [0, max_parallelism)."""
    return ((hash_value >> 32) * max_parallelism) >> 32


def key_groups(hashes: Hashes, max_parallelism: int) -> KeyGroups:
    """Return `key_group` of each hash."""
    return (((hashes >> np.uint64(32)) * np.uint64(max_parallelism)) >> np.uint64(32)).astype(np.uint16)


def key_group_range(max_parallelism: int, parallelism: int, subtask: int) -> range:
    """Return the key groups that a subtask owns (Flink's
    KeyGroupRangeAssignment.computeKeyGroupRangeForOperatorIndex).
    """
    if not 0 < parallelism <= max_parallelism <= MAX_PARALLELISM_LIMIT:
        raise ValueError(
            f"parallelism {parallelism} and max parallelism {max_parallelism} must satisfy "
            f"0 < parallelism <= max parallelism <= {MAX_PARALLELISM_LIMIT}"
        )
    first = (subtask * max_parallelism + parallelism - 1) // parallelism
    last = ((subtask + 1) * max_parallelism - 1) // parallelism
    return range(first, last + 1)


def owner(group: int, max_parallelism: int, parallelism: int) -> int:
    """Return the subtask that owns a key group (KeyGroupRangeAssignment.computeOperatorIndexForKeyGroup)."""
    return group * parallelism // max_parallelism


class _GroupOfString(dict[str, int]):
    """Computes the key group of a string once, and keeps it."""

    def __init__(self, max_parallelism: int) -> None:
        self.max_parallelism = max_parallelism

    def __missing__(self, key: str) -> int:
        if not isinstance(key, str):
            raise UnsupportedKey(_not_of_type(key, "STRING"))
        group = self[key] = key_group(key_hash(key), self.max_parallelism)
        return group


class _CanonicalKey(dict[Any, tuple[bytes, int]]):
    """Computes the canonical encoding and the key group of a key once, and keeps them."""

    def __init__(self, max_parallelism: int) -> None:
        self.max_parallelism = max_parallelism

    def __missing__(self, key: Any) -> tuple[bytes, int]:
        entry = self[key] = self.of(key)
        return entry

    def of(self, key: Any) -> tuple[bytes, int]:
        return encode(key), key_group(key_hash(key), self.max_parallelism)


class KeyEncoder:
    """Turns the keys of rows into the values of the key column and their key groups.

    `declared` is "long" or "string" where the key's type is declared so, else "canonical". Distinct keys are
    remembered, at most `memo_keys_max` of them between two calls. One thread uses it. Per row, keys known: long
    60 ns, string 70 ns, canonical 100 ns (numbers, strings and pairs alike); a new pair costs about 5 us.
    """

    def __init__(self, declared: DeclaredKey, max_parallelism: int, memo_keys_max: int = 65_536) -> None:
        if not 0 < max_parallelism <= MAX_PARALLELISM_LIMIT:
            raise ValueError(f"max parallelism must be in 1..{MAX_PARALLELISM_LIMIT}, not {max_parallelism}")
        self.declared = declared
        self.max_parallelism = max_parallelism
        self._memo_keys_max = memo_keys_max
        self._group_of = _GroupOfString(max_parallelism)
        self._entry_of = _CanonicalKey(max_parallelism)
        methods: dict[str, Callable[[list[Any]], tuple[KeyColumn, KeyGroups]]] = {
            "long": self._longs,
            "string": self._strings,
            "canonical": self._canonical,
        }
        self._encode = methods[declared]

    def encode(self, keys: list[Any]) -> tuple[KeyColumn, KeyGroups]:
        """Return (values, key groups): an int64 array for "long", else a list of str or bytes. Raises `UnsupportedKey`
        with the `row_index` of the first key that cannot be encoded.
        """
        return self._encode(keys)

    def _longs(self, keys: list[Any]) -> tuple[npt.NDArray[np.int64], KeyGroups]:
        try:
            values = np.array(keys) if keys else np.empty(0, np.int64)
        except ValueError:
            values = np.empty(0, object)
        if values.dtype != np.int64 or values.ndim != 1:
            values = np.array([_long(key, i) for i, key in enumerate(keys)], dtype=np.int64)
        return values, key_groups(hash_int64(values), self.max_parallelism)

    def _strings(self, keys: list[Any]) -> tuple[list[str], KeyGroups]:
        memo = self._group_of
        if len(memo) > self._memo_keys_max:
            memo.clear()
        try:
            groups = list(map(memo.__getitem__, keys))
        except TypeError:
            raise _first_refused(memo.__missing__, keys) from None
        return keys, np.array(groups, dtype=np.uint16)

    def _canonical(self, keys: list[Any]) -> tuple[list[bytes], KeyGroups]:
        memo = self._entry_of
        if len(memo) > self._memo_keys_max:
            memo.clear()
        try:
            entries = list(map(memo.__getitem__, keys))
        except UnsupportedKey:
            raise _first_refused(memo.of, keys) from None
        except TypeError:
            # Lists, sets and bytearrays cannot be remembered: they are not hashable.
            try:
                entries = list(map(memo.of, keys))
            except UnsupportedKey:
                raise _first_refused(memo.of, keys) from None
        return [entry[0] for entry in entries], np.array([entry[1] for entry in entries], dtype=np.uint16)


def _long(key: Any, row_index: int) -> int:
    if isinstance(key, float) and key.is_integer():
        key = int(key)
    if isinstance(key, (int, np.integer, np.bool_)) and not isinstance(key, np.timedelta64):
        number = int(key)
        if INT64_MIN <= number <= INT64_MAX:
            return number
        raise UnsupportedKey(f"the key {number} does not fit in 64 bits, but the key is declared LONG", row_index)
    raise UnsupportedKey(_not_of_type(key, "LONG"), row_index)


def _not_of_type(key: Any, declared: str) -> str:
    if key is None:
        return NULL_KEY
    return f"the key {key!r:.80} is a {type(key).__name__}, but the key is declared {declared}"


def _first_refused(encode_one: Any, keys: list[Any]) -> UnsupportedKey:
    for index, key in enumerate(keys):
        try:
            encode_one(key)
        except UnsupportedKey as error:
            return UnsupportedKey(str(error), index)
        except TypeError as error:
            return UnsupportedKey(f"the key {key!r:.80} cannot be encoded: {error}", index)
    raise AssertionError("every key can be encoded now: a key has changed while it was being encoded")


class _KeyOfBytes(dict[bytes, Any]):
    """Decodes a canonical key once, and keeps it."""

    def __missing__(self, data: bytes) -> Any:
        key = self[data] = decode(data)
        return key


class KeyDecoder:
    """Turns values of a canonical key column back into keys; remembers like `KeyEncoder`. One thread uses it.
    Per row, keys known: 30 ns; a new pair costs about 2 us."""

    def __init__(self, memo_keys_max: int = 65_536) -> None:
        self._memo_keys_max = memo_keys_max
        self._key_of = _KeyOfBytes()

    def decode(self, values: list[bytes]) -> list[Any]:
        """Return the keys, hashable. Equal keys are one object while they are remembered."""
        memo = self._key_of
        if len(memo) > self._memo_keys_max:
            memo.clear()
        return list(map(memo.__getitem__, values))
