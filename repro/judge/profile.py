"""Hardware counters of kernels, by Nsight Compute (ncu), on the judge's own inputs and call. They decide no verdict.

Each kernel and dtype runs in a process of its own under ncu: calls that compile and warm up, then one call between
cudaProfilerStart and cudaProfilerStop, of which every launch is profiled. Clocks are left alone (`--clock-control
none`), and ncu flushes the caches before each pass. The process has a worker's environment and a time limit, and it is
killed with all that it started; it is not confined further, because counters need rights that confinement takes away.
"""

from __future__ import annotations

import contextlib
import csv
import importlib.util
import io
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from repro import settings
from repro.errors import printable
from repro.judge.procfs import descendants
from repro.problems import Problem

DTYPES = ("bfloat16", "float32")
# Name in a profile -> ncu's metric, its unit, and how the launches of one call make a total.
METRICS = {
    "duration_ns": ("gpu__time_duration.sum", "ns", "sum"),
    "dram_read_bytes": ("dram__bytes_read.sum", "B", "sum"),
    "dram_write_bytes": ("dram__bytes_write.sum", "B", "sum"),
    "dram_pct": ("dram__throughput.avg.pct_of_peak_sustained_elapsed", "%", "mean"),
    "dram_bytes_per_s": ("dram__bytes.sum.per_second", "B/s", "mean"),
    "l2_pct": ("lts__throughput.avg.pct_of_peak_sustained_elapsed", "%", "mean"),
    "l1_pct": ("l1tex__throughput.avg.pct_of_peak_sustained_elapsed", "%", "mean"),
    "sm_pct": ("sm__throughput.avg.pct_of_peak_sustained_elapsed", "%", "mean"),
    "compute_memory_pct": ("gpu__compute_memory_throughput.avg.pct_of_peak_sustained_elapsed", "%", "mean"),
    "tensor_pct": ("sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_elapsed", "%", "mean"),
    "warps_pct": ("sm__warps_active.avg.pct_of_peak_sustained_active", "%", "mean"),
    "l1_hit_pct": ("l1tex__t_sector_hit_rate.pct", "%", "mean"),
    "l2_hit_pct": ("lts__t_sector_hit_rate.pct", "%", "mean"),
    "sm_clock_hz": ("sm__cycles_elapsed.avg.per_second", "1/s", "mean"),
    "instructions": ("smsp__inst_executed.sum", "count", "sum"),
    "registers": ("launch__registers_per_thread", "count", "max"),
    "shared_bytes": ("launch__shared_mem_per_block", "B", "max"),
    "threads": ("launch__block_size", "count", "max"),
    "blocks": ("launch__grid_size", "count", "max"),
}
STATES = ("profiled", "no_gpu", "no_ncu", "no_permission", "not_run", "failed")
WARM_CALLS, SEED = 3, 1
TIMEOUT_S = 180.0
CUDA_NCU = "/usr/local/cuda/bin/ncu"
DENIED = "ERR_NVGPUCTRPERM"
# The target's own last words, and its exit code, where the kernel fails before it is profiled.
FAILED, FAILED_CODE = "repro-kernel-failed: ", 3


def measure(
    problem: Callable[[str], Problem], solutions: list[tuple[str, Path, str]], device: str,
    progress: Callable[[str], None],
) -> list[dict[str, Any]]:  # fmt: skip
    """Profile solutions (name, file, entry) in every dtype. problem: returns it in a dtype.

    Return for each [{"kernel", "dtype", "state", "why", "ncu", "clock_control", "launches": [{"name", "values"}],
    "totals"}]: values in the units of METRICS, None where ncu has none. A fault becomes a state; no error is raised.
    """
    found = []
    ncu = shutil.which("ncu") or (CUDA_NCU if Path(CUDA_NCU).exists() else "")
    version = _version(ncu) if ncu else ""
    for name, file, _ in solutions:
        for dtype in DTYPES:
            progress(f"{problem(dtype).key}: profile of {name}")
            entry: dict[str, Any] = {
                "kernel": name, "dtype": dtype, "state": "profiled", "why": "", "ncu": version, "clock_control": "none",
                "launches": [], "totals": dict.fromkeys(METRICS),
            }  # fmt: skip
            if device != "cuda":
                entry |= {"state": "no_gpu", "why": "there is no NVIDIA GPU here"}
            elif not ncu:
                entry |= {"state": "no_ncu", "why": "ncu (Nsight Compute) is not on the PATH; the CUDA toolkit has it"}
            else:
                entry |= _profiled(ncu, problem(dtype), file)
            found.append(entry)
    return found


def command(ncu: str, request: Path) -> list[str]:
    """Return the command that profiles one kernel."""
    metrics = ",".join(metric for metric, _, _ in METRICS.values())
    return [
        ncu, "--csv", "--page", "raw", "--print-units", "base", "--clock-control", "none",
        "--profile-from-start", "off", "--target-processes", "application-only", "--metrics", metrics,
        sys.executable, "-P", "-s", "-m", "repro.judge.profile", str(request),
    ]  # fmt: skip


def _version(ncu: str) -> str:
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        told = subprocess.run([ncu, "--version"], capture_output=True, text=True, timeout=20, check=False).stdout
        return next((line.strip() for line in told.splitlines() if line.startswith("Version")), "")
    return ""


def _profiled(ncu: str, problem: Problem, file: Path, timeout_s: float = TIMEOUT_S) -> dict[str, Any]:
    """Run one kernel under ncu; return state, why, launches and totals."""
    with tempfile.TemporaryDirectory(prefix="repro-profile-", ignore_cleanup_errors=True) as scratch:
        folder = Path(scratch)
        shutil.copyfile(file, folder / "kernel.py")
        shutil.copyfile(problem.path, folder / "problem.py")
        told = {"id": problem.id, "dtype": problem.dtype, "size": problem.size, "overrides": problem.overrides}
        (folder / "request.json").write_text(json.dumps(told))
        environment = settings.worker_env(folder, interpret=False)
        with (folder / "errors").open("w+") as errors:
            child = subprocess.Popen(
                command(ncu, folder / "request.json"), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=errors,
                env=environment, cwd=folder, start_new_session=True, text=True, errors="replace",
            )  # fmt: skip
            try:
                out, _ = child.communicate(timeout=timeout_s)
            except subprocess.TimeoutExpired:
                return {"state": "not_run", "why": f"not done within {timeout_s:.0f} s"}
            finally:
                _kill(child)
            errors.seek(0)
            said = out + errors.read()
    launches = parse(out)
    if launches:
        return {"launches": launches, "totals": total(launches)}
    if DENIED in said:
        return {"state": "no_permission", "why": "the driver lets administrators alone read counters: run as root, or "
                "load the nvidia module with NVreg_RestrictProfilingToAdminUsers=0"}  # fmt: skip
    lines = [printable(line.strip()) for line in said.splitlines() if line.strip()]
    failed = next((line for line in lines if line.startswith(FAILED)), "")
    if failed:
        return {"state": "not_run", "why": failed.removeprefix(FAILED)[:300]}
    return {"state": "failed", "why": " / ".join(lines[-3:])[:300] or f"ncu ended with {child.returncode}"}


def _kill(child: subprocess.Popen[str]) -> None:
    for pid in descendants(child.pid):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    child.wait()
    assert child.stdout is not None
    child.stdout.close()


def parse(text: str) -> list[dict[str, Any]]:
    """Return ncu's raw page as {"name", "values"} for each launch.

    The page has a line of names, a line of units and a line for each launch, after the program's own output.
    """
    lines = text.splitlines()
    first = next((at for at, line in enumerate(lines) if line.startswith('"ID"')), None)
    if first is None:
        return []
    rows = list(csv.DictReader(io.StringIO("\n".join(lines[first:]))))[1:]
    return [
        {"name": row["Kernel Name"][:120], "values": {name: _number(row.get(m)) for name, (m, _, _) in METRICS.items()}}
        for row in rows
        if row.get("Kernel Name")
    ]


def _number(text: str | None) -> float | None:
    try:
        return float((text or "").replace(",", ""))
    except ValueError:
        return None


def total(launches: list[dict[str, Any]]) -> dict[str, float | None]:
    """Return the figures of a whole call: sums, maxima, means weighted by duration; None where a launch has none."""
    values = [launch["values"] for launch in launches]
    weights = [each["duration_ns"] or 0.0 for each in values]
    found: dict[str, float | None] = {}
    for name, (_, _, how) in METRICS.items():
        known = [each[name] for each in values]
        if None in known or (how == "mean" and not sum(weights)):
            found[name] = None
        elif how == "mean":
            found[name] = sum(value * weight for value, weight in zip(known, weights, strict=True)) / sum(weights)
        else:
            found[name] = sum(known) if how == "sum" else max(known)
    return found


# -- the process under ncu ---------------------------------------------------------------------------------------------


def target(request: Path) -> None:
    """Call the kernel on the published inputs, and have the last call profiled."""
    import torch

    from repro import inputs
    from repro.judge import binder

    told = json.loads(request.read_text())
    folder, device = request.parent, torch.device("cuda")
    overrides = {name: tuple(v) if isinstance(v, list) else v for name, v in told["overrides"].items()}
    problem = Problem(told["id"], told["id"], folder / "problem.py", told["dtype"], told["size"], overrides)
    plan = inputs.plan(problem)
    weights = inputs.weights(problem, plan.module)
    model = inputs.build(problem, plan.module, weights.init)
    model.load_state_dict(weights.state)
    model = model.to(device).eval()
    made = plan.make(SEED, device)
    spec = importlib.util.spec_from_file_location("solution", folder / "kernel.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["solution"] = module
    with torch.no_grad():
        try:
            spec.loader.exec_module(module)
            call = binder.bind(module.kernel_function, model, len(made), weights.init)
            for _ in range(WARM_CALLS):
                call(*made)
            torch.cuda.synchronize()
        except Exception as error:  # the kernel's own
            print(f"{FAILED}{type(error).__name__}: {error}".replace("\n", " "), flush=True)
            sys.exit(FAILED_CODE)
        torch.cuda.profiler.start()
        call(*made)
        torch.cuda.synchronize()
        torch.cuda.profiler.stop()


if __name__ == "__main__":
    target(Path(sys.argv[1]))
