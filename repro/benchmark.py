"""`repro benchmark`: the artifact study. Every kernel of a folder is judged before it is timed."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

from repro import evaluation, problems
from repro.bundle.write import Bundle
from repro.cells import Cell
from repro.engines.base import Engine
from repro.errors import UsageError
from repro.evaluation import JudgeOptions
from repro.problems import Problem
from repro.progress import Progress
from repro.runs import Row, execute, open_bundle

DTYPE = "bfloat16"
KERNELS = {"input_kernel": "input_kernel.py", "optimized": "optimized_kernel_beam_search.py"}


def number(folder: Path) -> int | None:
    """The leading integer of an artifact folder's name: `04_Matrix...` and `4_Matrix...` are the same problem."""
    match = re.match(r"0*(\d+)", folder.name)
    return int(match.group(1)) if match else None


def find(root: Path, names: list[str]) -> list[Path]:
    """Artifact folders below `root`, by number; `names` narrows by number, folder name or a part of it."""
    if not root.is_dir():
        raise UsageError(f"no such folder: {root}")
    folders = sorted((f for f in root.iterdir() if f.is_dir() and number(f) is not None), key=lambda f: number(f) or 0)
    if not folders:
        raise UsageError(f"no artifact in {root}", "the published layout has folders named NN_Name with a problem.py")
    if not names:
        return folders
    chosen = [f for f in folders if any(_matches(f, name) for name in names)]
    missing = [name for name in names if not any(_matches(f, name) for f in folders)]
    if missing:
        raise UsageError(
            f"no artifact {', '.join(missing)} in {root}", f"there are {', '.join(f.name for f in folders)}"
        )
    return chosen


def _matches(folder: Path, name: str) -> bool:
    bare = name.removeprefix("L1_").removesuffix("@bf16")
    return int(bare) == number(folder) if bare.isdigit() else name.lower() in folder.name.lower()


def _problem(folder: Path, size: str) -> tuple[Problem, str]:
    """The folder's own problem.py, with the sizes of our problem of that number where there is one."""
    known = f"L1_{number(folder):02d}"
    loaded = problems.load_file(folder / "problem.py", dtype=DTYPE, size=size)
    if known in problems.ids():
        return problems.as_known(loaded, known), known
    return loaded, ""


def row(folder: Path, size: str, results: Path, engine: Engine, options: JudgeOptions) -> Row:
    """The row of one folder; what is missing or unreadable becomes its error."""
    columns: dict[str, Any] = {"problem": folder.name, "number": number(folder)}
    kernels = {label: folder / file for label, file in KERNELS.items() if (folder / file).exists()}
    columns["missing"] = [file for file in KERNELS.values() if not (folder / file).exists()]

    def build() -> Cell:
        problem, known = _problem(folder, size)
        if not kernels:
            raise UsageError(f"{folder.name} holds no kernel", f"none of {', '.join(KERNELS.values())} is there")
        submissions = [
            replace(evaluation.read(file), name=label, entry="kernel_function") for label, file in kernels.items()
        ]
        return evaluation.cell(folder.name, problem, submissions, results, engine, options, known_as=known)

    return evaluation.row_for(folder.name, build, columns)


def entry(row: dict[str, Any]) -> dict[str, Any]:
    """One entry of `--json`: the published script's keys, and beside them verdicts, intervals and fingerprint."""
    found: dict[str, Any] = {
        "problem": row["problem"],
        "eager_ms": None,
        "compile_ms": None,
        "input_kernel_ms": None,
        "optimized_ms": None,
        "status": row["status"],
        "fingerprint_id": row["fingerprint_id"],
        "kernels": {},
        "baselines": {},
        "samples_ms": {},
        "reasons": [f"{name} is missing" for name in row.get("missing", [])],
    }
    if row["status"] != "done":
        return found | {"reasons": [*found["reasons"], row["error"]]}
    result = row["result"]
    for name, baseline in result["baselines"].items():
        if name in ("eager", "compile"):
            found[f"{name}_ms"] = baseline["time_ms"]["median"]
    for verdict in result["results"]:
        found["kernels"][verdict["solution"]] = verdict
        if verdict["time_ms"] is not None:
            found[f"{verdict['solution']}_ms"] = verdict["time_ms"]["median"]
        if verdict["verdict"] != "correct":
            found["reasons"].append(f"{verdict['solution']}: {evaluation.line(verdict)}")
    keep = ("ceilings", "timing", "trials", "margin", "wall_s")
    return found | {"baselines": result["baselines"], "samples_ms": result["samples_ms"]} | {k: result[k] for k in keep}


def published_line(found: dict[str, Any]) -> str:
    """The published script's line: times in ms and the speedup over torch.compile, or over eager where it is absent."""

    def ms(name: str) -> str:
        value = found[name]
        return "N/A" if value is None else f"{value:.3f}"

    base = found["compile_ms"] or found["eager_ms"]
    speedup = f"{base / found['optimized_ms']:.2f}x" if base and found["optimized_ms"] else "N/A"
    times = f"eager={ms('eager_ms')} compile={ms('compile_ms')} input={ms('input_kernel_ms')} opt={ms('optimized_ms')}"
    return f"{times} {speedup}"


def summary(row: dict[str, Any]) -> str:
    """One line for a finished folder: the published script's, or the verdicts where times mean nothing."""
    found = entry(row)
    if any(kernel["measurement"] for kernel in found["kernels"].values()):
        return published_line(found)
    return "; ".join(f"{name} {evaluation.line(kernel)}" for name, kernel in found["kernels"].items())


def run(
    root: Path,
    names: list[str],
    size: str,
    results: Path,
    engine: Engine,
    options: JudgeOptions,
    progress: Progress,
    *,
    resume: bool,
) -> tuple[Bundle, list[dict[str, Any]]]:
    """Judges and times every folder; returns the bundle and the entries of `--json`."""
    rows = [row(folder, size, results, engine, options) for folder in find(root, names)]
    parameters = {"artifacts": root.name, "size": size, "device": engine.device,
                  "options": options.for_cell(engine.device)}  # fmt: skip
    bundle = open_bundle(results, "benchmark", rows, parameters, resume=resume)
    judged = execute(rows, engine, bundle, progress, summary)
    bundle.finish("complete" if all(r["status"] == "done" for r in judged) else "incomplete")
    return bundle, [entry(r) for r in judged]
