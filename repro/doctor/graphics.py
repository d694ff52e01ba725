"""Checks of driver and GPU: what there is, other users of it, its settings, and what holds its clocks down."""

from __future__ import annotations

import fcntl
from typing import Any

from repro import config
from repro.doctor.finding import Finding, Setting, fail, ok, warn
from repro.fingerprint import gpu as facts
from repro.system.jsonio import Json

# CUDA 12.8 as NVML writes it, and the oldest CUDA of a driver that runs anything built for 12.
_PINNED_CUDA, _OLDEST_CUDA = 12080, 12000
_MIN_CAPABILITY = (8, 0)
# An unused GPU holds a few hundred MB for the driver.
_IDLE_BYTES = 1 << 30
_POWER_SHARE, _HOT_C = 0.9, 85
_MODEL = ("gpu_name", "compute_capability", "memory_total_bytes", "mig_mode")
_USERS = ("compute_processes", "graphics_processes", "mps_processes")
_SLOWED = ("hw_slowdown", "sw_thermal", "hw_thermal", "hw_power_brake")
_CONDITION = (
    *_USERS, "memory_used_bytes", "power_limit_w", "power_limit_default_w", "ecc", "persistence", "temperature_c",
    "clock_event_reasons",
)  # fmt: skip
_REMEDY = (
    "End other programs on it, or name another GPU in GPUS; a hot GPU needs cooling. As root: nvidia-smi -pm 1, -e 1, "
    "-pl WATTS, -rgc. Or leave it: every result states it."
)
_SMOKE = "Without a GPU use --device cpu --size smoke: verdicts are real at these small shapes, times are not."


def driver(setting: Setting) -> Finding:
    """Check that the driver's CUDA is at least the pinned one."""
    if setting.silent:
        return (fail if setting.device == "cuda" else warn)(f"no NVIDIA driver: {setting.silent}", _SMOKE)
    version, cuda = (query.ask().value for query in facts.SYSTEM)
    cuda = cuda or 0
    seen = f"{version}, CUDA {cuda // 1000}.{cuda % 1000 // 10}"
    if cuda < _OLDEST_CUDA:
        return fail(seen, "Install driver 570 or newer.")
    return ok(seen) if cuda >= _PINNED_CUDA else warn(seen, f"Driver 570 or newer has CUDA {config.PINS['cuda']}.")


def gpu(setting: Setting) -> Finding:
    """Check for a GPU with bfloat16 and TF32, undivided and not virtual."""
    if not setting.handles:
        return (fail if setting.device == "cuda" else warn)("no GPU", _SMOKE)
    gpus = [_asked(_MODEL, handle) for handle in setting.handles]
    seen = "; ".join(
        f"{g['gpu_name']}, {(g['memory_total_bytes'] or 0) / 2**30:.0f} GiB, sm {g['compute_capability']}" for g in gpus
    )
    capability = [tuple(map(int, str(g["compute_capability"] or "0.0").split("."))) for g in gpus]
    if min(capability) < _MIN_CAPABILITY:
        remedy = "Below compute capability 8.0 there is no bfloat16 and no TF32: solutions that use them fail."
        return warn(seen, remedy)
    if any(g["mig_mode"] for g in gpus):
        return warn(f"{seen}; MIG is on", "Times of a MIG slice compare only with those of the same kind of slice.")
    return ok(seen)


def _asked(names: tuple[str, ...], handle: Any) -> Json:
    """Return some fields of a GPU's fingerprint."""
    queries = (query for query in (*facts.FIELDS, *facts.STATE) if query.name in names)
    return {query.name: query.ask(handle).value for query in queries}


def _doubts(gpu: Json) -> dict[str, object]:
    """Return what makes times on a GPU doubtful: words -> whether it holds."""
    limit, default, used, hot = (
        gpu[name] or 0 for name in ("power_limit_w", "power_limit_default_w", "memory_used_bytes", "temperature_c")
    )
    names = facts.reasons(gpu["clock_event_reasons"] or 0)
    slowed = [name for name in names if name in _SLOWED]
    return {
        f"{used / 2**30:.1f} GiB used": used > _IDLE_BYTES,
        **{f"{gpu[name]} {name.replace('_', ' ')}": gpu[name] for name in _USERS},
        f"power limit {limit:.0f} of {default:.0f} W": 0 < limit < _POWER_SHARE * default,
        "ECC is off": gpu["ecc"] is False,
        "persistence is off": gpu["persistence"] is False,
        f"{hot} °C": hot > _HOT_C,
        f"slowed while idle by {', '.join(slowed)}": slowed,
        "its clocks are set by hand": "clocks_setting" in names,
    }


def state(setting: Setting) -> Finding:
    """Check for other users of the GPU, unusual settings, and what holds its clocks down now.

    This runs before the checks use the GPU themselves. A container may not see other processes; used memory shows them.
    """
    complaints = [
        [words for words, holds in _doubts(_asked(_CONDITION, handle)).items() if holds] for handle in setting.handles
    ]
    if any(complaints):
        seen = "; ".join(f"GPU {n}: {', '.join(words)}" for n, words in enumerate(complaints) if words)
        return warn(seen, _REMEDY)
    return ok("unused, with its usual settings")


def lease_free(setting: Setting) -> Finding:
    """Check that no other run of repro holds the GPU."""
    held = 0
    for file in sorted(config.state_dir().glob("gpu-*.lock")):
        with file.open() as stream:
            try:
                fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                held += 1
    if held:
        return warn(f"{held} of {len(setting.handles)} held by another run", "A run waits until it is free.")
    return ok("free")
