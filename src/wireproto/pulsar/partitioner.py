"""Which partition a record goes to.

What it is: the two hashes that Pulsar's clients share, and the choice by key. A key that is not UTF-8 is hashed in the form in which
it travels: its base64 text. Both hashes are masked to 31 bits; the partition is hash mod partitions.

    JavaStringHash   h = 31 * h + unit, over UTF-16 units           Java's default, and ours
    Murmur3Hash      murmur3, 32 bits, seed 0, over UTF-8           the same in every client

Must not: know connections or time; round robin's change of partition is the producer's.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Final

from wireproto._codec import java_hash

from .keys import wire_key

_MASK = 0x7FFFFFFF
_U32 = 0xFFFFFFFF


def java_string_hash(text: str) -> int:
    """``String.hashCode`` of Java, without its sign."""
    return java_hash(text.encode("utf-8", "surrogatepass")) & _MASK


def murmur3_hash(text: str) -> int:
    """MurmurHash3 x86 32 bits with seed 0 of the text's UTF-8, without its sign."""
    data = text.encode("utf-8")
    value = 0
    whole = len(data) & ~3
    for i in range(0, whole, 4):
        k = int.from_bytes(data[i : i + 4], "little") * 0xCC9E2D51 & _U32
        k = (k << 15 | k >> 17) * 0x1B873593 & _U32
        value ^= k
        value = ((value << 13 | value >> 19) & _U32) * 5 + 0xE6546B64 & _U32
    if whole != len(data):
        k = int.from_bytes(data[whole:], "little") * 0xCC9E2D51 & _U32
        value ^= (k << 15 | k >> 17) * 0x1B873593 & _U32
    value ^= len(data)
    value = (value ^ value >> 16) * 0x85EBCA6B & _U32
    value = (value ^ value >> 13) * 0xC2B2AE35 & _U32
    return (value ^ value >> 16) & _MASK


HASHES: Final[dict[str, Callable[[str], int]]] = {"java": java_string_hash, "murmur3": murmur3_hash}


def key_hasher(name: str) -> Callable[[bytes], int]:
    """A cached function from key bytes to hash, by the option's name; keys repeat, so it remembers some thousands."""
    hasher = HASHES[name]

    @lru_cache(maxsize=8192)
    def hash_of(key: bytes) -> int:
        return hasher(wire_key(key)[0])

    return hash_of
