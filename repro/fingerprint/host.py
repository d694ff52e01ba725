"""The machine around the GPU: CPU, memory, kernel, and a container's limits on them."""

from __future__ import annotations

import os
import platform
from pathlib import Path

from repro.fingerprint.entry import entry
from repro.records.fingerprint import Found

CPUINFO, CGROUP = Path("/proc/cpuinfo"), Path("/sys/fs/cgroup")
GOVERNOR = Path("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor")


def read(path: Path, source: str = "") -> Found:
    """Return the first line of a file as an entry."""
    try:
        return entry(path.read_text().splitlines()[0].strip() or None, source or str(path))
    except (OSError, IndexError, UnicodeDecodeError) as error:
        return entry(None, source or str(path), f"absent: {getattr(error, 'strerror', None) or 'it is empty'}")


def _model() -> str | None:
    try:
        lines = CPUINFO.read_text().splitlines()
    except OSError:
        return None
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), None)


def _distribution() -> Found:
    try:
        told = platform.freedesktop_os_release()
    except OSError as error:
        return entry(None, "/etc/os-release", f"absent: {error.strerror}")
    return entry(told.get("PRETTY_NAME") or told.get("NAME"), "/etc/os-release")


def _limit(second: str, first: Path) -> Found:
    """Return a limit of this process's control group, of version 2, else of version 1."""
    found = read(CGROUP / second)
    return found if found.value is not None else read(first)


def load() -> Found:
    """Return the load: processes that want a processor, mean of one minute."""
    return entry(round(os.getloadavg()[0], 2), "getloadavg")


def values() -> dict[str, Found]:
    """Return CPU, memory, kernel, limits and load."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    nodes = sorted(path.name for path in Path("/sys/devices/system/node").glob("node[0-9]*"))
    return {
        "cpu_model": entry(_model(), "/proc/cpuinfo"),
        "cpu_count": entry(len(os.sched_getaffinity(0)), "sched_getaffinity"),
        "cpu_governor": read(GOVERNOR, "cpufreq"),
        "numa_nodes": entry(len(nodes) or None, "/sys/devices/system/node"),
        "memory_gib": entry(round(memory / 2**30), "sysconf"),
        "kernel": entry(platform.release(), "uname"),
        "machine": entry(platform.machine(), "uname"),
        "distribution": _distribution(),
        "cpu_quota": _limit("cpu.max", CGROUP / "cpu/cpu.cfs_quota_us"),
        "memory_limit": _limit("memory.max", CGROUP / "memory/memory.limit_in_bytes"),
        "load_1m": load(),
    }
