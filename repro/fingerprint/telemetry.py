"""Observation of the GPU while a job runs: snapshots before, warm, timed and after, and the sampler between them.

Nothing here can fail a job or change a verdict: a missing observation has its reason. A solution with the judge's user
(under ENGINE=local without root) could end the sampler; then its series is short, and the status says so.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time

from repro import config
from repro.fingerprint import gpu, host, series
from repro.system.jsonio import Json

# window -> the snapshots at its begin and end
WINDOWS = {"job": ("before", "after"), "timing": ("warm", "timed")}


class Telemetry:
    """Observes the GPU that this process was given until `end`. device: cuda or cpu."""

    def __init__(self, device: str) -> None:
        self.device, self.uuid = device, config.visible_gpu()
        self.begin_s = time.monotonic()
        self.snapshots: dict[str, gpu.Snapshot] = {}
        self.marks: list[Json] = []
        self.status, self.period_ms = "off: the run used the CPU", 0
        self._file = -1
        self._process: subprocess.Popen[bytes] | None = None
        self.mark("before")
        if device == "cuda":
            self._start()

    def _start(self) -> None:
        try:
            self.period_ms = config.sample_ms()
            if not self.period_ms:
                self.status = "off: REPRO_SAMPLE_MS is 0"
                return
            self._file = os.memfd_create("telemetry")
            told = [self.uuid, str(self.period_ms), str(os.getpid())]
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-s", "-m", "repro.fingerprint.sampler", *told],
                stdin=subprocess.DEVNULL, stdout=self._file, stderr=subprocess.DEVNULL, cwd="/",
                env=config.sampler_env(),
            )  # fmt: skip
            self.status = "ok"
        except (OSError, ValueError) as error:
            self.status = f"failed: {error}"

    def mark(self, name: str) -> None:
        """Take a snapshot under this name, replacing an earlier one, and record its time."""
        taken = gpu.snapshot(self.device, self.uuid)
        taken.values["load_1m"] = host.LOAD.ask()
        self.snapshots[name] = taken
        self.marks.append({"name": name, "t_ms": round((taken.t_s - self.begin_s) * 1000)})

    def _series(self) -> series.Series:
        if self._process is None:
            return series.Series()
        if self._process.poll() is not None:
            self.status = f"ended early, exit code {self._process.returncode}"
        self._process.kill()
        self._process.wait()
        text = os.pread(self._file, os.fstat(self._file).st_size, 0).decode(errors="replace")
        os.close(self._file)
        self._process = None
        return series.parse(text)

    def end(self) -> Json:
        """End the sampler and return the observations.

        They are {"dynamic": snapshots, "telemetry": {"sampler", "marks", "windows", "series"}}. windows:
        `job`, and `timing` if something was timed.
        """
        self.mark("after")
        taken = self._series()
        windows = {}
        for name, (first, last) in WINDOWS.items():
            if first not in self.snapshots or last not in self.snapshots:
                continue
            a, b = self.snapshots[first], self.snapshots[last]
            if b.t_s < a.t_s:
                continue
            windows[name] = {"deltas": gpu.deltas(a, b)}
            if taken.n:
                windows[name] |= series.summary(taken.between(a.t_s, b.t_s))
        found: Json = {
            "sampler": {
                "status": self.status, "period_ms": self.period_ms, "samples": taken.n, "missing": taken.missing,
            },
            "marks": self.marks,
            "windows": windows,
        }  # fmt: skip
        if taken.n:
            found["series"] = taken.to_json(self.begin_s)
        dynamic = {name: {field: value.to_json() for field, value in taken.values.items()}
                   for name, taken in self.snapshots.items()}  # fmt: skip
        return {"dynamic": dynamic, "telemetry": found}
