"""Differences of two fingerprints, sorted by class, and whether absolute times still compare."""

from __future__ import annotations

from typing import Any

from repro import fingerprint
from repro.fingerprint import classes
from repro.records.comparison import Difference
from repro.system.jsonio import Json


def differences(a: Json, b: Json) -> list[Difference]:
    """Return every field that differs, in the order identity, hard, configuration, dynamic, version, then by name.

    a, b: whole fingerprints, as `fingerprint.collect` makes them; one may be older than the other and lack fields. A
    hard field that one side did not record is listed but not hard, since the values may be equal.
    """
    mine, theirs = a["values"], b["values"]
    found = []
    for name in mine.keys() | theirs.keys():
        one, other = mine.get(name), theirs.get(name)
        left, right = (entry["value"] if entry else None for entry in (one, other))
        if left == right:
            continue
        known = left is not None and right is not None
        klass = classes.of(name, one or other)
        far, limit = False, classes.HARD_BEYOND.get(name)
        if limit is not None and isinstance(left, int | float) and isinstance(right, int | float):
            # a configured number that differs so much makes another machine
            far = abs(left - right) > limit * max(abs(left), abs(right))
        hard = known and (klass == "hard" or far)
        found.append(Difference(name=name, klass=klass, hard=hard, known=known, a=told(one), b=told(other)))
    order = list(classes.NAMES.values())
    return sorted(found, key=lambda d: (order.index(d.klass), d.name))


def same_unit(a: Json, b: Json) -> bool:
    """Return whether both are known to be of the same physical GPU."""
    one, other = (fingerprint.value(side, "gpu_uuid_hash") for side in (a, b))
    return bool(one is not None and one == other)


def told(entry: Json | None) -> Any:
    """Return the value of a field, or why there is none."""
    if entry is None:
        return "not recorded"
    return entry["status"] if entry["value"] is None else entry["value"]
