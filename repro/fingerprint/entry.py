"""One fingerprint value, and the hashing of identities."""

from __future__ import annotations

import hashlib
from typing import Any

from repro.records.fingerprint import Found

# Equal hashes mean the same physical GPU. A UUID has 122 random bits and cannot be guessed. Shorter identities (serial,
# PCI address) are hashed with their GPU's UUID, so that they cannot be guessed either.
IDENTITY_SALT = "repro/gpu/1"


def entry(value: Any, source: str, status: str = "ok") -> Found:
    """Return a value; an empty one is never `ok`. `classes` adds its class."""
    return Found(value=value, source=source, status="absent" if value is None and status == "ok" else status)


def hashed(identity: str, of: str = "") -> str:
    """Return a salted hash of an identity, 12 hexadecimal digits. of: the UUID that a short identity belongs to."""
    text = "|".join((IDENTITY_SALT, *([of] if of else []), identity))
    return hashlib.sha256(text.encode()).hexdigest()[:12]
