"""One fingerprint value, and how an identity is hidden."""

from __future__ import annotations

import hashlib
from typing import Any

# Equal hashes mean the same physical GPU. A UUID is 122 random bits, which nobody finds by trying; whatever has fewer
# (serial, PCI address) is hashed together with the UUID of its GPU, so that it cannot be found by trying either.
IDENTITY_SALT = "repro/gpu/1"


def entry(value: Any, source: str, status: str = "ok") -> dict[str, Any]:
    """`{"value", "source", "status"}`; an empty value is never `ok`. Its class stands in `classes`."""
    status = "absent" if value is None and status == "ok" else status
    return {"value": value, "source": source, "status": status}


def hashed(identity: str, of: str = "") -> str:
    """An identity as a salted hash of 12 hexadecimal digits. of: the UUID that it belongs to, for one that is short."""
    text = "|".join((IDENTITY_SALT, *([of] if of else []), identity))
    return hashlib.sha256(text.encode()).hexdigest()[:12]
