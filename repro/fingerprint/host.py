"""The machine around the GPU: CPU, kernel and distribution."""

from __future__ import annotations

import os
import platform
from pathlib import Path

from repro.fingerprint.query import Query

_CPUINFO = Path("/proc/cpuinfo")
_GOVERNOR = Path("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor")


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
    Query("cpu_governor", "C", lambda: _GOVERNOR.read_text().strip(), "cpufreq"),
    Query("kernel", "V", platform.release, "uname"),
    Query("machine", "H", platform.machine, "uname"),
    Query("distribution", "V", _distribution, "/etc/os-release"),
    LOAD,
)  # fmt: skip
