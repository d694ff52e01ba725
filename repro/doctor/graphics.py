"""Checks of driver and GPU: what there is, other users of it, limits on its clocks, and whether it can be profiled."""

from __future__ import annotations

import fcntl
import shutil
from pathlib import Path

from repro import config
from repro.doctor.finding import Finding, Setting, fail, ok, skip, warn
from repro.fingerprint import gpu as facts
from repro.fingerprint.series import SLOWED
from repro.system.jsonio import Json

_PARAMETERS = Path("/proc/driver/nvidia/params")
# CUDA 12.8 as NVML writes it, and the oldest CUDA of a driver that runs anything built for 12.
_PINNED_CUDA, _OLDEST_CUDA = 12080, 12000
_MIN_CAPABILITY = (8, 0)
# An unused GPU holds a few hundred MB for the driver.
_IDLE_BYTES = 1 << 30
_POWER_SHARE, _HOT_C = 0.9, 85
_SMOKE = "Without a GPU use --device cpu --size smoke: verdicts are real at these small shapes, times are not."


def _gpus(setting: Setting, *names: str) -> list[Json]:
    """Return these fields of every GPU; None where NVML does not report one."""
    queries = [query for query in (*facts.FIELDS, *facts.STATE) if query.name in names]
    return [{query.name: query.ask(handle).value for query in queries} for handle in setting.handles]


def _lines(complaints: list[list[str]]) -> str:
    return "; ".join(f"GPU {n}: {', '.join(words)}" for n, words in enumerate(complaints) if words)


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
    gpus = _gpus(setting, "gpu_name", "compute_capability", "memory_total_bytes", "mig_mode")
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


def memory(setting: Setting) -> Finding:
    """Check that the GPU's memory is unused. This runs before the checks use the GPU themselves."""
    used = [g["memory_used_bytes"] or 0 for g in _gpus(setting, "memory_used_bytes")]
    seen = ", ".join(f"{u / 2**30:.1f} GiB used" for u in used)
    if max(used) > _IDLE_BYTES:
        return warn(seen, "End the processes that use it, or name another GPU in GPUS.")
    return ok(seen)


def processes(setting: Setting) -> Finding:
    """Check that no process computes or draws on the GPU. A container may not see them; then used memory shows it."""
    gpus = _gpus(setting, "compute_processes", "graphics_processes", "mps_processes")
    complaints = [[f"{count} {name.replace('_', ' ')}" for name, count in g.items() if count] for g in gpus]
    if any(complaints):
        return warn(_lines(complaints), "They would disturb the timing: end them, or name another GPU in GPUS.")
    if all(count is None for g in gpus for count in g.values()):
        return skip("NVML lists no processes here")
    return ok("none" + (", as far as a container sees" if config.in_container() else ""))


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


def settings_of(setting: Setting) -> Finding:
    """Check that power limit, ECC and persistence have their usual values."""
    gpus = _gpus(setting, "power_limit_w", "power_limit_default_w", "ecc", "persistence")
    complaints = []
    for g in gpus:
        limit, default = g["power_limit_w"] or 0, g["power_limit_default_w"] or 0
        words = {
            f"power limit {limit:.0f} of {default:.0f} W": 0 < limit < _POWER_SHARE * default,
            "ECC is off": g["ecc"] is False,
            "persistence is off": g["persistence"] is False,
        }
        complaints.append([word for word, holds in words.items() if holds])
    if any(complaints):
        remedy = "As root: nvidia-smi -pm 1, -pl WATTS, -e 1. Or leave it: every result states it."
        return warn(_lines(complaints), remedy)
    return ok(", ".join(f"{g['power_limit_w'] or 0:.0f} W, ECC {'on' if g['ecc'] else 'unknown'}" for g in gpus))


def clocks(setting: Setting) -> Finding:
    """Check that nothing holds the clocks down now, and that the GPU is not hot before it works."""
    gpus = _gpus(setting, "sm_mhz", "temperature_c", "clock_event_reasons")
    reasons = [facts.reasons(g["clock_event_reasons"] or 0) for g in gpus]
    seen = "; ".join(
        f"{g['sm_mhz']} MHz, {g['temperature_c']} °C, {', '.join(names) or 'no reason'}"
        for g, names in zip(gpus, reasons, strict=True)
    )
    every = {name for names in reasons for name in names}
    if every & set(SLOWED) or max(g["temperature_c"] or 0 for g in gpus) > _HOT_C:
        return warn(seen, "The GPU is slowed while it is idle: check cooling and power, or wait.")
    if "clocks_setting" in every:
        return warn(seen, "The clocks are set by hand: times do not compare with those of a GPU with default clocks.")
    return ok(seen)


def profiling(setting: Setting) -> Finding:
    """Check that performance counters may be read and that ncu is installed. Nothing needs either by default."""
    program = shutil.which("ncu")
    try:
        lines = dict(line.split(":", 1) for line in _PARAMETERS.read_text().splitlines() if ":" in line)
    except OSError as error:
        return skip(f"{_PARAMETERS}: {error.strerror}")
    admin = lines.get("RmProfilingAdminOnly", "").strip()
    if admin == "0":
        return ok("all users may profile" + ("" if program else "; ncu is not installed"))
    remedy = (
        "As root: options nvidia NVreg_RestrictProfilingToAdminUsers=0 in /etc/modprobe.d, then load the driver again. "
        "Or give the profiled container CAP_PERFMON (driver 565 or newer), else SYS_ADMIN. Timing does not need it."
    )
    return warn(f"RmProfilingAdminOnly is {admin or 'unknown'}" + ("" if program else "; no ncu"), remedy)
