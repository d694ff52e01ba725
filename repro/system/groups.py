"""Pairs of a key and a value, by their keys."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import TypeVar

_K = TypeVar("_K", bound=Hashable)
_V = TypeVar("_V")


def grouped(pairs: Iterable[tuple[_K, _V]]) -> dict[_K, list[_V]]:
    """Return key -> its values, both in their first order."""
    groups: dict[_K, list[_V]] = {}
    for key, one in pairs:
        groups.setdefault(key, []).append(one)
    return groups
