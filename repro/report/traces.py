"""What was judged as traces and solutions of FlashInfer-Bench and SOL-ExecBench, in the layout of their data sets."""

from __future__ import annotations

import re

from repro.analysis import records
from repro.bundle.write import Bundle
from repro.records import wording
from repro.records.formats import Line
from repro.records.verdict import Verdict
from repro.report import kernels, sources
from repro.report.sources import Solution
from repro.studies import evaluation
from repro.system import jsonio
from repro.system.jsonio import Json

FOLDER = "flashinfer-trace"
_STATUS = {"correct": "PASSED", "incorrect": "INCORRECT_NUMERICAL", "timeout": "TIMEOUT", "error": "RUNTIME_ERROR",
           "rejected": "RUNTIME_ERROR", "wrong_shape": "INCORRECT_SHAPE", "wrong_structure": "INCORRECT_SHAPE",
           "wrong_dtype": "INCORRECT_DTYPE", "syntax_error": "COMPILE_ERROR",
           "import_error": "COMPILE_ERROR"}  # fmt: skip
# What their library calls.
_ENTRY = "\n\ndef run(*inputs):\n    return ModelNew()(*inputs)\n"


def files(bundles: list[Bundle]) -> dict[str, str]:
    """Return file -> content: the traces of each problem, and the solutions to definitions whose text is kept.

    The weights of another problem are no inputs of it, so that their libraries could not run its solutions.
    """
    found: dict[str, str] = {}
    for each in (each for bundle in bundles for each in sources.solutions(records.source(bundle))):
        verdict = each.verdict
        definition, name = each.row.problem.partition("@")[0], verdict.solution
        place = [re.sub(r"[^\w-]+", "_", word) for word in (definition, name)]
        lines = f"{FOLDER}/traces/{place[0]}.jsonl"
        found[lines] = found.get(lines, "") + jsonio.dumps({"definition": definition, **_trace(each)}) + "\n"
        text = each.row.workload and kernels.kept_text(each, verdict)
        if text:
            triton = "triton" in verdict.labels
            spec = {"language": "triton" if triton else "python", "languages": ["triton" if triton else "pytorch"],
                    "target_hardware": ["LOCAL"], "entry_point": "main.py::run",
                    "destination_passing_style": False}  # fmt: skip
            solution = {"name": name, "definition": definition, "author": "unknown", "spec": spec,
                        "sources": [{"path": "main.py", "content": text + _ENTRY}]}  # fmt: skip
            found[f"{FOLDER}/solutions/{'/'.join(place)}.json"] = jsonio.dumps(solution, indent=1)
    return found


def _trace(each: Solution) -> Json:
    """Return one verdict as a trace. One that judges nothing has no evaluation."""
    verdict, row = each.verdict, each.row
    line = row.workload and row.workload.line or Line(axes={})
    sizes = each.result.sizes.overrides if each.result.sizes else {}
    axes = {name: size for name, size in sizes.items() if isinstance(size, int) and name not in line.inputs}
    own = {"axes": axes, "uuid": line.uuid if axes == line.axes else f"{line.uuid}-smaller"}
    words = [*(reason.code for reason in verdict.reasons[:1]), verdict.verdict]
    judged = ({"solution": verdict.solution, "evaluation": {
        "status": _STATUS[word], "timestamp": row.ended or each.source.started, "log": evaluation.line(verdict),
        "environment": {"hardware": each.source.machine}, **_measured(verdict, _STATUS[word]),
    }} for word in words if word in _STATUS and not wording.not_judged(verdict))  # fmt: skip
    return {"workload": {"inputs": {}} | line.to_json() | own} | next(judged, {})


def _measured(verdict: Verdict, status: str) -> Json:
    """Return distance and times in ms, 0 where there is none.

    The distance of one element is over the root mean square of the output; no absolute one is known.
    """
    if status not in ("PASSED", "INCORRECT_NUMERICAL"):
        return {}
    largest = max((each.max for trial in verdict.distances.values() for each in trial), default=float("nan"))
    measured = {"correctness": {"max_relative_error": largest, "max_absolute_error": float("nan")}}
    if status == "PASSED":
        ms = verdict.time_ms.median if verdict.time_ms and verdict.measurement else 0.0
        ratio = verdict.speedup["eager"].ratio if ms and "eager" in verdict.speedup else 0.0
        measured["performance"] = {"latency_ms": ms, "reference_latency_ms": ms * ratio, "speedup_factor": ratio}
    return measured
