"""Checks of driver and GPU: what there is, other users of it, limits on its clocks, and whether it can be profiled."""

from __future__ import annotations

import fcntl
import shutil
from pathlib import Path
from typing import Any

from repro import config
from repro.doctor.finding import Finding, Setting, fail, ok, skip, warn
from repro.fingerprint import gpu as facts
from repro.fingerprint import state
from repro.fingerprint.series import SLOWED

PARAMETERS = Path("/proc/driver/nvidia/params")
# CUDA 12.8 as NVML writes it, and the oldest CUDA of a driver that runs anything built for 12.
PINNED_CUDA, OLDEST_CUDA = 12080, 12000
MIN_CAPABILITY = (8, 0)
# An unused GPU holds a few hundred MB for the driver.
IDLE_BYTES = 1 << 30
POWER_SHARE, HOT_C = 0.9, 85
SMOKE = "Without a GPU use --device cpu --size smoke: verdicts are real there, but times are not a measurement."


def _each(setting: Setting, names: tuple[str, ...], source: Any) -> list[dict[str, Any]]:
    """Return these fields of every GPU; None where NVML does not report one."""
    found = []
    for handle in setting.handles:
        values = source(handle)
        found.append({name: values[name].value for name in names})
    return found


def _lines(complaints: list[list[str]]) -> str:
    return "; ".join(f"GPU {n}: {', '.join(told)}" for n, told in enumerate(complaints) if told)


def driver(setting: Setting) -> Finding:
    """Check that the driver's CUDA is at least the pinned one."""
    if setting.device == "cpu":
        return skip("device cpu")
    if setting.silent:
        return (fail if setting.device == "cuda" else warn)(f"no NVIDIA driver: {setting.silent}", SMOKE)
    system = {name: told.value for name, told in facts.system().items()}
    cuda = system["cuda_driver"] or 0
    seen = f"{system['driver']}, CUDA {cuda // 1000}.{cuda % 1000 // 10}, {system['kernel_module'] or 'unknown'} module"
    if cuda < OLDEST_CUDA:
        return fail(seen, "Install driver 570 or newer.")
    return ok(seen) if cuda >= PINNED_CUDA else warn(seen, f"Driver 570 or newer has CUDA {config.PINS['cuda']}.")


def gpu(setting: Setting) -> Finding:
    """Check for a GPU with bfloat16 and TF32, undivided and not virtual."""
    if setting.device == "cpu":
        return skip("device cpu")
    if not setting.handles:
        return (fail if setting.device == "cuda" else warn)("no GPU", SMOKE)
    names = ("gpu_name", "compute_capability", "memory_total_bytes", "mig_mode", "virtualization_mode")
    found = _each(setting, names, facts.values)
    seen = "; ".join(
        f"{f['gpu_name']}, {(f['memory_total_bytes'] or 0) / 2**30:.0f} GiB, sm {f['compute_capability']}"
        for f in found
    )
    capability = [tuple(map(int, str(f["compute_capability"] or "0.0").split("."))) for f in found]
    if min(capability) < MIN_CAPABILITY:
        return warn(
            seen, "Below compute capability 8.0 there is no bfloat16 and no TF32: solutions that use them fail."
        )
    if any(f["mig_mode"] for f in found):
        return warn(f"{seen}; MIG is on", "Times of a MIG slice compare only with those of the same kind of slice.")
    return ok(seen)


def memory(setting: Setting) -> Finding:
    """Check that the GPU's memory is unused. This runs before the checks use the GPU themselves."""
    if setting.no_gpu:
        return skip(setting.no_gpu)
    found = _each(setting, ("memory_used_bytes",), state.values)
    used = [f["memory_used_bytes"] or 0 for f in found]
    seen = ", ".join(f"{u / 2**30:.1f} GiB used" for u in used)
    return (
        warn(seen, "End the processes that use it, or name another GPU in GPUS.")
        if max(used) > IDLE_BYTES
        else ok(seen)
    )


def processes(setting: Setting) -> Finding:
    """Check that no process computes or draws on the GPU. A container may not see them; then used memory shows it."""
    if setting.no_gpu:
        return skip(setting.no_gpu)
    names = ("compute_processes", "graphics_processes", "mps_processes")
    found = _each(setting, names, state.values)
    complaints = [[f"{count} {name.replace('_', ' ')}" for name, count in f.items() if count] for f in found]
    if any(complaints):
        return warn(_lines(complaints), "They would disturb the timing: end them, or name another GPU in GPUS.")
    if all(count is None for f in found for count in f.values()):
        return skip("NVML lists no processes here")
    return ok("none" + (", as far as a container sees" if config.in_container() else ""))


def lease_free(setting: Setting) -> Finding:
    """Check that no other run of repro holds the GPU."""
    if setting.no_gpu:
        return skip(setting.no_gpu)
    held = []
    for file in sorted(config.state_dir().glob("gpu-*.lock")):
        with file.open() as stream:
            try:
                fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                held.append(file.name)
    if held:
        return warn(f"{len(held)} of {len(setting.handles)} held by another run", "A run waits until it is free.")
    return ok("free")


def settings_of(setting: Setting) -> Finding:
    """Check that power limit, ECC and persistence have their usual values."""
    if setting.no_gpu:
        return skip(setting.no_gpu)
    names = ("power_limit_w", "power_limit_default_w", "ecc", "persistence")
    found, complaints = _each(setting, names, facts.values), []
    for f in found:
        limit, default = f["power_limit_w"], f["power_limit_default_w"]
        low = bool(limit and default and limit < POWER_SHARE * default)
        told = [f"power limit {limit:.0f} of {default:.0f} W"] if low else []
        told += ["ECC is off"] if f["ecc"] is False else []
        told += ["persistence is off"] if f["persistence"] is False else []
        complaints.append(told)
    if any(complaints):
        remedy = "As root: nvidia-smi -pm 1, -pl WATTS, -e 1. Or leave it: every result states it."
        return warn(_lines(complaints), remedy)
    return ok(", ".join(f"{f['power_limit_w'] or 0:.0f} W, ECC {'on' if f['ecc'] else 'not told'}" for f in found))


def clocks(setting: Setting) -> Finding:
    """Check that nothing holds the clocks down now, and that the GPU is not hot before it works."""
    if setting.no_gpu:
        return skip(setting.no_gpu)
    found = _each(setting, ("sm_mhz", "temperature_c", "clock_event_reasons"), state.values)
    reasons = [state.names(f["clock_event_reasons"] or 0) for f in found]
    seen = "; ".join(
        f"{f['sm_mhz']} MHz, {f['temperature_c']} °C, {', '.join(why) or 'no reason'}"
        for f, why in zip(found, reasons, strict=True)
    )
    if any(name in SLOWED for why in reasons for name in why) or any((f["temperature_c"] or 0) > HOT_C for f in found):
        return warn(seen, "The GPU is slowed while it is idle: check cooling and power, or wait.")
    if any("clocks_setting" in why for why in reasons):
        return warn(seen, "The clocks are set by hand: times do not compare with those of a GPU with default clocks.")
    return ok(seen)


def profiling(setting: Setting) -> Finding:
    """Check that performance counters may be read and that ncu is installed. Nothing needs either by default."""
    if setting.no_gpu:
        return skip(setting.no_gpu)
    program = shutil.which("ncu")
    try:
        lines = dict(line.split(":", 1) for line in PARAMETERS.read_text().splitlines() if ":" in line)
        admin = lines.get("RmProfilingAdminOnly", "").strip()
    except OSError as error:
        return skip(f"{PARAMETERS}: {error.strerror}")
    if admin == "0":
        return ok("all users may profile" + ("" if program else "; ncu is not installed"))
    remedy = (
        "As root: options nvidia NVreg_RestrictProfilingToAdminUsers=0 in /etc/modprobe.d, then load the driver again. "
        "Or give the profiled container CAP_PERFMON (driver 565 or newer), else SYS_ADMIN. Timing does not need it."
    )
    return warn(f"RmProfilingAdminOnly is {admin or 'unknown'}" + ("" if program else "; no ncu"), remedy)
