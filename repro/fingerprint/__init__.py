"""The machine-readable description of GPU, driver, software and container that stands beside every result.

Every value is {"value", "source", "status", "class"}. Status: ok, not_supported, no_permission, function_not_found,
absent. The classes stand in `classes`, and what they mean for a comparison in `difference`.
"""

from __future__ import annotations

import hashlib
import json
import time
from typing import Any

from repro.fingerprint import classes, hardware, software

SCHEMA_VERSION = 1


def digest(values: dict[str, Any], classes: str) -> str:
    """The id that the values of these classes have: 12 hexadecimal digits."""
    chosen = {k: v["value"] for k, v in sorted(values.items()) if v["class"] in classes}
    return hashlib.sha256(json.dumps(chosen, sort_keys=True, default=str).encode()).hexdigest()[:12]


def collect(device: str) -> dict[str, Any]:
    """A whole fingerprint. device: cuda or cpu; without a GPU the hardware part says so.

    `sku_id` is over class H, `fingerprint_id` over H, C and V: dynamic values and identity change neither.
    """
    values = classes.stamped(hardware.values(device) | software.values())
    return {
        "schema_version": SCHEMA_VERSION,
        "taken": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "device": device,
        "sku_id": digest(values, "H"),
        "fingerprint_id": digest(values, "HCV"),
        "off_pin": software.off_pin(),
        "values": values,
    }


def dynamic(device: str) -> dict[str, Any]:
    """Clocks, power, temperature and event reasons now."""
    return {k: v for k, v in classes.stamped(hardware.values(device)).items() if v["class"] == "D"}


def headline(fingerprint: dict[str, Any]) -> str:
    """One line for tables: GPU or CPU, driver, torch, Triton, off-pin stamp."""
    values = fingerprint["values"]

    def value(name: str) -> str:
        return str(values.get(name, {}).get("value") or "?")

    gpu = fingerprint["device"] == "cuda"
    parts = [value("gpu_name") + f", driver {value('driver')}" if gpu else f"CPU ({value('cpu_model')}), no GPU"]
    parts += [f"torch {value('torch')}", f"Triton {value('triton')}", f"Python {value('python')}"]
    if fingerprint["off_pin"]:
        parts.append("off-pin: " + ", ".join(f"{k} {v}" for k, v in fingerprint["off_pin"].items()))
    return " · ".join(parts)


def stack(fingerprint: dict[str, Any]) -> dict[str, Any]:
    """The software that decides how fast torch and Triton are: versions, `pinned` (whether it is the pinned stack) and
    a `label` that says all of it."""
    values = fingerprint["values"]
    found = {name: str(values.get(name, {}).get("value") or "?") for name in ("torch", "triton", "cudnn")}
    pinned = not fingerprint["off_pin"]
    words = f"torch {found['torch']}, Triton {found['triton']}, cuDNN {found['cudnn']}"
    return found | {"pinned": pinned, "label": f"{'pinned' if pinned else 'off-pin'}: {words}"}
