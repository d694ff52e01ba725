"""Queries: one line a field of a fingerprint, with its class and how to ask. An answer is a value or why there is none.

The class says what a difference means:

    I  identity       another unit of the same kind; stored as a hash
    H  hard           another kind of machine: absolute times do not compare
    C  configuration  may change speed: reported with every comparison
    D  dynamic        the machine's state at that moment
    V  version        software and firmware
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Literal

import pynvml

from repro.records.fingerprint import Value
from repro.system.digest import sha256

NAMES = {"I": "identity", "H": "hard", "C": "configuration", "D": "dynamic", "V": "version"}
_STATUS = {
    pynvml.NVML_ERROR_NOT_SUPPORTED: "not_supported",
    pynvml.NVML_ERROR_NO_PERMISSION: "no_permission",
    pynvml.NVML_ERROR_FUNCTION_NOT_FOUND: "function_not_found",
    pynvml.NVML_ERROR_LIBRARY_NOT_FOUND: "absent",
    pynvml.NVML_ERROR_DRIVER_NOT_LOADED: "absent",
}
# Equal hashes mean the same physical GPU. A UUID has 122 random bits and cannot be guessed. Shorter identities are
# hashed with another one that they belong to, so that they cannot be guessed either.
_IDENTITY_SALT = "repro/gpu/1"

Class = Literal["I", "H", "C", "D", "V"]
# Field -> its answer.
Answers = dict[str, Value]


class Absent(Exception):
    """Raised by a query that has no value, with the status and its reason."""


@dataclass(frozen=True)
class Query:
    """A field: its name, which ends with its unit; its class; what returns its value; where that comes from."""

    name: str
    klass: Class
    how: Callable[..., Any]
    source: str

    def ask(self, *given: Any) -> Value:
        """Return the answer. Never raises: drivers and packages of other releases may answer in unexpected ways."""
        try:
            value = self.how(*given)
        except Exception as error:
            return self.value(None, why(error))
        return self.value(value)

    def value(self, value: Any, status: str = "ok") -> Value:
        """Return an answer; an empty one is never `ok`."""
        status = "absent" if value is None and status == "ok" else status
        return Value(value=value, source=self.source, status=status, klass=self.klass)


def answers(queries: Iterable[Query], *given: Any) -> Answers:
    """Ask every query; return field -> answer."""
    return {query.name: query.ask(*given) for query in queries}


def why(error: BaseException) -> str:
    """Return the status of a query that failed, with the reason after a colon."""
    match error:
        case Absent():
            return str(error)
        case pynvml.NVMLLibraryMismatchError():
            return "function_not_found: the driver is older than the binding"
        case pynvml.NVMLError():
            return f"{_STATUS.get(error.value, 'failed')}: NVML error {error.value}, {error}"
        case ImportError():
            return f"absent: {error}"
        case OSError():
            return f"absent: {error.strerror or error}"
        case AttributeError():
            return f"function_not_found: {error}"
    return f"failed: {type(error).__name__}: {error}"


def hashed(identity: str, of: str = "") -> str:
    """Return a salted hash of an identity, 12 hexadecimal digits. of: what a short identity belongs to."""
    return sha256("|".join((_IDENTITY_SALT, *([of] if of else []), identity)))[:12]
