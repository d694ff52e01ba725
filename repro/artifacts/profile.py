"""Hardware counters of an artifact's kernels, by Nsight Compute, for the walk in its NOTES.md.

    python -m repro.artifacts.profile FOLDER... [--json FILE]

Each kernel file is run in a process of its own under ncu: two calls that compile and warm up, then one call between
cudaProfilerStart and cudaProfilerStop, whose launches are profiled, every one of them. Clocks are left alone
(--clock-control none), the cache is flushed before each pass. The process is neither confined nor judged: profile what
you trust. Counters need the right to read them (NVreg_RestrictProfilingToAdminUsers=0, or root).
"""

from __future__ import annotations

import argparse
import csv
import importlib.util
import io
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from repro import jsonio, settings
from repro.errors import PrerequisiteError, UsageError

# Name in the report -> ncu's metric. Units are ncu's: bytes, nanoseconds, per cent, counts.
METRICS = {
    "duration_ns": "gpu__time_duration.sum",
    "dram_read_bytes": "dram__bytes_read.sum",
    "dram_write_bytes": "dram__bytes_write.sum",
    "dram_pct": "dram__throughput.avg.pct_of_peak_sustained_elapsed",
    "l2_pct": "lts__throughput.avg.pct_of_peak_sustained_elapsed",
    "l1_pct": "l1tex__throughput.avg.pct_of_peak_sustained_elapsed",
    "sm_pct": "sm__throughput.avg.pct_of_peak_sustained_elapsed",
    "issue_pct": "sm__inst_issued.avg.pct_of_peak_sustained_elapsed",
    "tensor_pct": "sm__inst_executed_pipe_tensor.avg.pct_of_peak_sustained_elapsed",
    "warps_pct": "sm__warps_active.avg.pct_of_peak_sustained_active",
    "l2_hit_pct": "lts__t_sector_hit_rate.pct",
    "instructions": "smsp__inst_executed.sum",
    "registers": "launch__registers_per_thread",
    "shared_bytes": "launch__shared_mem_per_block",
    "spilled_bytes": "launch__local_memory_per_thread",
    "threads": "launch__block_size",
    "blocks": "launch__grid_size",
}
WARM_CALLS = 2
TIMEOUT_S = 300.0


def command(ncu: str, folder: Path, file: str) -> list[str]:
    """Return the command that profiles one kernel file of an artifact folder."""
    return [
        ncu, "--csv", "--page", "raw", "--print-units", "base", "--clock-control", "none",
        "--profile-from-start", "off", "--target-processes", "application-only",
        "--metrics", ",".join(METRICS.values()),
        sys.executable, "-m", "repro.artifacts.profile", "--target", str(folder), file,
    ]  # fmt: skip


def parse(text: str) -> list[dict[str, Any]]:
    """Return ncu's raw page as one entry for each launch: its name and METRICS; None where ncu has no value.

    The page has a line of names, a line of units and a line for each launch, after the program's own output.
    """
    lines = text.splitlines()
    first = next((at for at, line in enumerate(lines) if line.startswith('"ID"')), None)
    if first is None:
        return []
    rows = list(csv.DictReader(io.StringIO("\n".join(lines[first:]))))[1:]
    return [{"kernel": row["Kernel Name"]} | {name: _number(row.get(m)) for name, m in METRICS.items()} for row in rows]


def _number(text: str | None) -> float | None:
    try:
        return float((text or "").replace(",", ""))
    except ValueError:
        return None


def run(folder: Path, file: str) -> dict[str, Any]:
    """Return the launches of one call of a kernel file, or why there are none. Raises PrerequisiteError without ncu."""
    ncu = shutil.which("ncu")
    if ncu is None:
        raise PrerequisiteError("ncu (Nsight Compute) is not on the PATH", "it comes with the CUDA toolkit")
    done = subprocess.run(
        command(ncu, folder.resolve(), file),
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        cwd=settings.PACKAGE.parent,
    )
    launches = parse(done.stdout)
    found: dict[str, Any] = {"artifact": folder.name, "file": file, "launches": launches}
    if not launches:
        told = [line for line in (done.stdout + done.stderr).splitlines() if line.strip()]
        found["reason"] = " / ".join(told[-3:])[:500] or f"ncu ended with {done.returncode}"
    return found


def target(folder: Path, file: str) -> None:
    """Run under ncu: the kernel on the published inputs in bfloat16, profiled once after WARM_CALLS calls."""
    import torch

    from repro import inputs, problems
    from repro.judge import binder

    problem = problems.load_file(folder / "problem.py", dtype="bfloat16", size="full")
    plan = inputs.plan(problem)
    device = torch.device("cuda")
    weights = inputs.weights(problem, plan.module)
    model = inputs.build(problem, plan.module, weights.init)
    model.load_state_dict(weights.state)
    model = model.to(device, torch.bfloat16).eval()
    made = plan.make(1, device)
    spec = importlib.util.spec_from_file_location("solution", folder / file)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    call = binder.bind(module.kernel_function, model, len(made), weights.init)
    with torch.no_grad():
        for _ in range(WARM_CALLS):
            call(*made)
        torch.cuda.synchronize()
        torch.cuda.profiler.start()
        call(*made)
        torch.cuda.synchronize()
        torch.cuda.profiler.stop()


def main() -> None:
    """Profile the kernels of artifact folders and print a line for each launch."""
    from repro.artifacts.layout import KERNELS

    parser = argparse.ArgumentParser(prog="python -m repro.artifacts.profile", description=__doc__)
    parser.add_argument("folder", type=Path, nargs="+")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--target", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.target:
        folder, file = args.folder
        return target(folder, str(file))
    found = []
    for folder in args.folder:
        if not (folder / "problem.py").is_file():
            raise UsageError(f"{folder} has no problem.py")
        for file in KERNELS.values():
            if (folder / file).is_file():
                found.append(run(folder, file))
                for launch in found[-1]["launches"] or [found[-1].get("reason")]:
                    print(f"{folder.name}: {file}: {launch}", flush=True)
    if args.json:
        jsonio.write(args.json, found)
    return None


if __name__ == "__main__":
    main()
