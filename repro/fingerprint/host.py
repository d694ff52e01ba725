"""The machine around the GPU: CPU, memory, kernel, and a container's limits on them."""

from __future__ import annotations

import os
import platform
from pathlib import Path

from repro.fingerprint.query import Absent, Query

_CGROUP, _CPUINFO = Path("/sys/fs/cgroup"), Path("/proc/cpuinfo")
_GOVERNOR = Path("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor")


def _first_line(*paths: Path) -> str:
    """Return the first line of the first of these files that exists."""
    path = next((path for path in paths if path.exists()), paths[-1])
    lines = path.read_text().splitlines()
    if not lines or not lines[0].strip():
        raise Absent("absent: it is empty")
    return lines[0].strip()


def _model() -> str | None:
    lines = _CPUINFO.read_text().splitlines()
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), None)


def _distribution() -> str | None:
    release = platform.freedesktop_os_release()
    return release.get("PRETTY_NAME") or release.get("NAME")


LOAD = Query("load_1m", "D", lambda: round(os.getloadavg()[0], 2), "getloadavg")
FIELDS = (
    Query("cpu_model", "C", _model, str(_CPUINFO)),
    Query("cpu_count", "C", lambda: len(os.sched_getaffinity(0)), "sched_getaffinity"),
    Query("cpu_governor", "C", lambda: _first_line(_GOVERNOR), "cpufreq"),
    Query("memory_gib", "C", lambda: round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30),
          "sysconf"),
    # limits of this process's control group, of version 2, else of version 1
    Query("cpu_quota", "C", lambda: _first_line(_CGROUP / "cpu.max", _CGROUP / "cpu/cpu.cfs_quota_us"), "cgroup"),
    Query("memory_limit", "C", lambda: _first_line(_CGROUP / "memory.max", _CGROUP / "memory/memory.limit_in_bytes"),
          "cgroup"),
    Query("kernel", "V", platform.release, "uname"),
    Query("machine", "H", platform.machine, "uname"),
    Query("distribution", "V", _distribution, "/etc/os-release"),
    LOAD,
)  # fmt: skip
