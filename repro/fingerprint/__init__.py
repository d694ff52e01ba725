"""Fingerprints: the machine-readable description of GPU, driver, software and container beside every result.

Every value is {"value", "source", "status", "class"}. Status: ok, or one of not_supported, no_permission,
function_not_found, absent, unknown, failed, with the reason after a colon. `query` says what the classes mean,
`difference` what they mean for a comparison, and `telemetry` observes the GPU while a job runs.
"""

from __future__ import annotations

import functools
import json
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from repro.fingerprint import container, gpu, host, software
from repro.fingerprint.query import Answers, answers
from repro.records.fingerprint import Stack
from repro.system import stopwatch
from repro.system.digest import sha256
from repro.system.jsonio import Json

# 1: some 60 fields. 2: all NVML fields, toolchain, container. 3: those that a comparison, a report or the doctor uses.
# Ids are hashes of the stored values, so ids of different versions do not compare; `difference` compares by field.
SCHEMA_VERSION = 3


def digest(values: Json, klasses: str) -> str:
    """Return the id of the values of these classes: 12 hexadecimal digits."""
    chosen = {k: v["value"] for k, v in sorted(values.items()) if v["class"] in klasses}
    return sha256(json.dumps(chosen, sort_keys=True, default=str))[:12]


def _outside(device: str) -> Answers:
    """Return everything known without torch and Triton: from NVML, files and other programs."""
    return gpu.values(device) | answers((*host.FIELDS, *container.FIELDS, *container.GIT, *software.PROGRAMS))


def begin(device: str) -> Future[Answers]:
    """Start collecting values that need no torch in a thread; `collect` takes the result."""
    pool = ThreadPoolExecutor(1)
    begun = pool.submit(_outside, device)
    pool.shutdown(wait=False)
    return begun


def collect(device: str, begun: Future[Answers] | None = None) -> Json:
    """Return a whole fingerprint. device: cuda or cpu; without a GPU the hardware part says so. begun: from `begin`.

    `sku_id` covers class H; `fingerprint_id` covers H, C and V. Dynamic values and identity change neither.
    """
    begun = begun or begin(device)
    taken = begun.result() | answers(software.FIELDS)
    values = {name: value.to_json() for name, value in taken.items()}
    return {
        "schema_version": SCHEMA_VERSION,
        "taken": stopwatch.utc(),
        "device": device,
        "sku_id": digest(values, "H"),
        "fingerprint_id": digest(values, "HCV"),
        "off_pin": software.off_pin(),
        "values": values,
    }


def value(fingerprint: Json, name: str) -> Any:
    """Return a value of a fingerprint; None where there is none."""
    return fingerprint["values"].get(name, {}).get("value")


def _text(fingerprint: Json, name: str) -> str:
    return str(value(fingerprint, name) or "?")


def headline(fingerprint: Json) -> str:
    """Return one line for tables: GPU or CPU, driver, torch, Triton, off-pin stamp."""
    of = functools.partial(_text, fingerprint)
    gpu = fingerprint["device"] == "cuda"
    parts = [of("gpu_name") + f", driver {of('driver')}" if gpu else f"CPU ({of('cpu_model')}), no GPU"]
    parts += [f"torch {of('torch')}", f"Triton {of('triton')}", f"Python {of('python')}"]
    if fingerprint["off_pin"]:
        parts.append("off-pin: " + ", ".join(f"{k} {v}" for k, v in fingerprint["off_pin"].items()))
    return " · ".join(parts)


def stack(fingerprint: Json) -> Stack:
    """Return the software that decides the speed of torch and Triton."""
    found = {name: _text(fingerprint, name) for name in ("torch", "triton", "cudnn")}
    pinned = not fingerprint["off_pin"]
    words = f"torch {found['torch']}, Triton {found['triton']}, cuDNN {found['cudnn']}"
    return Stack(**found, pinned=pinned, label=f"{'pinned' if pinned else 'off-pin'}: {words}")
