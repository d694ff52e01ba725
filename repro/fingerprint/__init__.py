"""Fingerprints: the machine-readable description of GPU, driver, software and container beside every result.

Every value is {"value", "source", "status", "class"}. Status: ok, or one of not_supported, no_permission,
function_not_found, absent, unknown, failed, with the reason after a colon. `classes` lists the classes, `difference`
says what they mean for a comparison, and `telemetry` observes the GPU while a job runs.
"""

from __future__ import annotations

import hashlib
import json
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from repro.fingerprint import classes, container, git, gpu, host, nvml, software, state, toolchain
from repro.fingerprint.entry import entry
from repro.records.fingerprint import Found, Stack
from repro.system import stopwatch

# 1: some 60 fields. 2: all NVML fields, toolchain, container. Ids are hashes of the stored values, so ids of different
# versions do not compare; `difference` compares field by field.
SCHEMA_VERSION = 2


def digest(values: dict[str, Any], classes: str) -> str:
    """Return the id of the values of these classes: 12 hexadecimal digits."""
    chosen = {k: v["value"] for k, v in sorted(values.items()) if v["class"] in classes}
    return hashlib.sha256(json.dumps(chosen, sort_keys=True, default=str).encode()).hexdigest()[:12]


def _gpu(device: str) -> dict[str, Found]:
    """Return everything that NVML reports, or a `gpu_name` with the reason why it does not answer."""
    if device != "cuda":
        return {"gpu_name": entry(None, "device cpu", "absent: the run used the CPU")}
    if why := nvml.start():
        return {"gpu_name": entry(None, "nvmlInit", why)}
    handle, why = nvml.device()
    if handle is None:
        return gpu.system() | {"gpu_name": entry(None, "nvml", why)}
    return gpu.system() | gpu.values(handle) | state.values(handle)


def _outside(device: str) -> dict[str, Found]:
    """Return everything known without torch and Triton: from NVML, files and other programs."""
    return _gpu(device) | host.values() | container.values() | git.values() | toolchain.programs()


def begin(device: str) -> Future[dict[str, Found]]:
    """Start collecting values that need no torch in a thread; `collect` takes the result."""
    pool = ThreadPoolExecutor(1)
    begun = pool.submit(_outside, device)
    pool.shutdown(wait=False)
    return begun


def collect(device: str, begun: Future[dict[str, Found]] | None = None) -> dict[str, Any]:
    """Return a whole fingerprint. device: cuda or cpu; without a GPU the hardware part says so. begun: from `begin`.

    `sku_id` covers class H; `fingerprint_id` covers H, C and V. Dynamic values and identity change neither.
    """
    begun = begun or begin(device)
    inside = software.values() | toolchain.triton_values()
    values = classes.stamped(begun.result() | inside)
    return {
        "schema_version": SCHEMA_VERSION,
        "taken": stopwatch.utc(),
        "device": device,
        "sku_id": digest(values, "H"),
        "fingerprint_id": digest(values, "HCV"),
        "off_pin": software.off_pin(),
        "values": values,
    }


def headline(fingerprint: dict[str, Any]) -> str:
    """Return one line for tables: GPU or CPU, driver, torch, Triton, off-pin stamp."""
    values = fingerprint["values"]

    def value(name: str) -> str:
        return str(values.get(name, {}).get("value") or "?")

    gpu = fingerprint["device"] == "cuda"
    parts = [value("gpu_name") + f", driver {value('driver')}" if gpu else f"CPU ({value('cpu_model')}), no GPU"]
    parts += [f"torch {value('torch')}", f"Triton {value('triton')}", f"Python {value('python')}"]
    if fingerprint["off_pin"]:
        parts.append("off-pin: " + ", ".join(f"{k} {v}" for k, v in fingerprint["off_pin"].items()))
    return " · ".join(parts)


def stack(fingerprint: dict[str, Any]) -> Stack:
    """Return the software that decides the speed of torch and Triton."""
    values = fingerprint["values"]
    found = {name: str(values.get(name, {}).get("value") or "?") for name in ("torch", "triton", "cudnn")}
    pinned = not fingerprint["off_pin"]
    words = f"torch {found['torch']}, Triton {found['triton']}, cuDNN {found['cudnn']}"
    return Stack(**found, pinned=pinned, label=f"{'pinned' if pinned else 'off-pin'}: {words}")
