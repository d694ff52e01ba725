"""The class of every fingerprint field, as its query says it; a field of an older bundle has its own.

To add a field, add its query: it is then stamped, hashed into the ids of a fingerprint, compared and shared.
"""

from __future__ import annotations

from repro.fingerprint import container, gpu, host, software
from repro.fingerprint.query import NAMES as NAMES
from repro.system.jsonio import Json

QUERIES = (*gpu.SYSTEM, *gpu.FIELDS, *gpu.STATE, *host.FIELDS, *software.FIELDS, *software.PROGRAMS, *container.FIELDS,
           *container.GIT)  # fmt: skip
CLASS: dict[str, str] = {query.name: query.klass for query in QUERIES}
# Configuration that makes another machine if its values differ by more than this share of the larger one: a GPU held to
# nine tenths of its power runs at other clocks.
HARD_BEYOND = {"power_limit_w": 0.10}


def of(name: str, entry: Json | None = None) -> str:
    """Return a field's class in a word: of its query, else the one stored with the entry, else version."""
    return NAMES.get(CLASS.get(name) or (entry or {}).get("class", ""), "version")
