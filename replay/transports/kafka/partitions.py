"""Which partition a key has: as Java and kafka-python place it, and librdkafka's ``murmur2``."""

from __future__ import annotations

__all__ = ["partition_of"]

_MASK = 0xFFFFFFFF
_FACTOR = 0x5BD1E995


def partition_of(key: bytes, partitions: int) -> int:
    """The partition of a key. All clients must agree, or a job is split in two.

    Examples:
        >>> [partition_of(f"Job{number}".encode(), 4) for number in range(1, 9)]
        [...]

    """
    return (_murmur2(key) & 0x7FFFFFFF) % partitions


def _murmur2(key: bytes) -> int:
    """MurmurHash 2 of 32 bits by Austin Appleby, with the seed that Kafka uses."""
    whole = len(key) & ~3
    state = 0x9747B28C ^ len(key)
    for place in range(0, whole, 4):
        word = int.from_bytes(key[place : place + 4], "little") * _FACTOR & _MASK
        word = (word ^ word >> 24) * _FACTOR & _MASK
        state = state * _FACTOR & _MASK ^ word
    if whole < len(key):
        state = (state ^ int.from_bytes(key[whole:], "little")) * _FACTOR & _MASK
    state = (state ^ state >> 13) * _FACTOR & _MASK
    return state ^ state >> 15
