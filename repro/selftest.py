"""`repro evaluate --self-test`: the judge judged. Two suites of solutions under tests/, one file each: what must never
be accepted (adversarial) and what must never be rejected (honest). Each file says in its head what must come of it.

    #: problem = "L1_36"                     a shipped problem; `L1_36@bf16` for one of the artifacts
    #: size = "smoke"                        or full, on a GPU; the CPU always runs smoke
    #: device = ["cpu", "cuda"]              where it exists
    #: timing = true                         whether it must be timed
    #: expect = { verdict = ["incorrect"], reasons = ["rel_l2"] }      adversarial: any of these; no reasons: any reason
    #: labels = ["triton"]                   labels that it must be given
    #: unbought = true, max_speedup = 1.3    where it may be `correct`: it must not be faster than eager by more
    #: class = "fp32"                        honest: the class, or classes, expected
    #: needs = "nvcc"                        a program without which it cannot run
    #: timeout_s = 15                        bound of one request
"""

from __future__ import annotations

import shutil
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from repro import evaluation, fixtures, problems, settings
from repro.bundle.write import Bundle
from repro.engines.base import Engine
from repro.errors import UsageError
from repro.evaluation import JudgeOptions, Submission
from repro.progress import Progress
from repro.runs import execute, open_bundle

SUITES = ("adversarial", "honest")
MARK = "#: "
TIMEOUT_S = 60.0
TIMING_BUDGET_S = 5.0
# A judge process serves so many cases: starting one takes 4 s, and what is done is kept when the rest is interrupted.
CASES_A_PROCESS = 12


@dataclass(frozen=True)
class Case:
    """One file of a suite and what it says of itself."""

    suite: str
    file: Path
    meta: dict[str, Any]

    @property
    def id(self) -> str:
        return f"{self.suite}/{self.file.stem}"

    def skipped(self, device: str) -> str:
        """Why it cannot run here, or the empty string."""
        if device not in self.meta["device"]:
            return f"it needs {' or '.join(self.meta['device'])}"
        needs = self.meta.get("needs", "")
        return f"{needs} is missing" if needs and shutil.which(needs) is None else ""


def cases(suites: list[str], names: list[str]) -> list[Case]:
    """The files of the suites, narrowed to `names` (parts of file names). Raises UsageError where there are none."""
    found = []
    for suite in suites:
        folder = settings.ROOT / "tests" / suite
        for file in sorted(folder.glob("*.py")):
            lines = [line.removeprefix(MARK) for line in file.read_text().splitlines() if line.startswith(MARK)]
            try:
                meta = tomllib.loads("\n".join(lines))
            except tomllib.TOMLDecodeError as error:
                raise UsageError(f"{file} has no head that can be read", str(error)) from error
            if not {"problem", "device"} <= set(meta):
                raise UsageError(f"{file} does not say its problem and device")
            if not names or any(name in file.name for name in names):
                found.append(Case(suite, file, meta))
    if not found:
        raise UsageError("no case of the self-test is left", f"suites {', '.join(suites)}, names {', '.join(names)}")
    return found


def complaints(case: Case, entry: dict[str, Any]) -> list[str]:
    """What is not as the file says it must be. entry: one verdict."""
    found = []
    verdict, reasons = entry["verdict"], [reason["code"] for reason in entry["reasons"]]
    missing = sorted(set(case.meta.get("labels", [])) - set(entry.get("labels", [])))
    if missing:
        found.append(f"label {', '.join(missing)} is missing")
    if case.suite == "honest":
        classes = case.meta.get("class", [])
        wanted = [classes] if isinstance(classes, str) else classes
        if verdict != "correct":
            found.append(f"false reject: {evaluation.line(entry)}")
        elif wanted and entry["precision_class"] not in wanted:
            found.append(f"class {entry['precision_class']} instead of {' or '.join(wanted)}")
        return found
    expect = case.meta["expect"]
    if verdict not in expect["verdict"]:
        kind = "false accept" if verdict == "correct" else "another verdict"
        found.append(f"{kind}: {evaluation.line(entry)}")
    elif verdict != "correct" and expect.get("reasons") and not set(reasons) & set(expect["reasons"]):
        found.append(f"reason {', '.join(reasons)} instead of {', '.join(expect['reasons'])}")
    if verdict == "correct" and case.meta.get("unbought") and entry.get("measurement"):
        ratio = entry["speedup"].get("eager", {}).get("ratio")
        limit = case.meta["max_speedup"]
        if ratio is not None and ratio > limit:
            found.append(f"bought time: {ratio:.3g}x eager, at most {limit}x was due")
    return found


def options(case: Case, base: JudgeOptions) -> JudgeOptions:
    """How this case is judged."""
    return JudgeOptions(
        timing=bool(case.meta.get("timing", False)),
        compiled=bool(case.meta.get("compiled", False)),
        timeout_s=float(case.meta.get("timeout_s", TIMEOUT_S)),
        timing_budget_s=min(base.timing_budget_s, TIMING_BUDGET_S),
        trust=base.trust,
        compile_timeout_s=base.compile_timeout_s,
    )


def run(
    suites: list[str],
    names: list[str],
    results: Path,
    engine: Engine,
    base: JudgeOptions,
    progress: Progress,
    *,
    resume: bool,
) -> tuple[Bundle, list[dict[str, Any]]]:
    """Judges every case that can run here; returns the bundle and one entry a case.

    Fixtures that are missing or stale are measured first. A dozen cells follow each other in one process: the judge never
    imports a solution, so a case meets the same judge as the one before it, and every worker is new.
    """
    chosen = cases(suites, names)
    wanted = {(case.meta["problem"], _size(case, engine)) for case in chosen if not case.skipped(engine.device)}
    for size in sorted({size for _, size in wanted}):
        stale = [key for key, s in sorted(wanted) if s == size and not _ready(results, key, size, engine)]
        if stale:
            fixtures.run(stale, size, results, engine, progress, resume=False)
    rows, by_id = [], {}
    for position, case in enumerate(chosen):
        if case.skipped(engine.device):
            continue
        problem = problems.load(case.meta["problem"], size=_size(case, engine))
        entry = "kernel_function" if problem.dtype == "bfloat16" else "ModelNew"
        source = case.file.read_bytes()
        submission = Submission(case.file.stem, source, evaluation.entry_of(source, entry))
        columns = {"problem": problem.key, "file": case.file.name, "suite": case.suite}

        def build(p: Any = problem, s: Any = submission, c: Case = case, at: int = position) -> Any:
            return evaluation.cell(c.id, p, [s], results, engine, options(c, base), prefix=f"{at}_")

        rows.append(evaluation.row_for(case.id, build, columns))
        by_id[case.id] = case
    skipped = {case.id: case.skipped(engine.device) for case in chosen if case.skipped(engine.device)}
    parameters = {"suites": suites, "device": engine.device, "trust": base.trust, "skipped": skipped}
    bundle = open_bundle(results, "self-test", rows, parameters, resume=resume)

    def summary(row: dict[str, Any]) -> str:
        (entry,) = row["result"]["results"]
        wrong = complaints(by_id[row["row"]], entry)
        return ("as it must be: " if not wrong else f"WRONG, {'; '.join(wrong)}: ") + evaluation.line(entry)

    judged = execute(rows, engine, bundle, progress, summary, together=CASES_A_PROCESS)
    bundle.finish("complete" if all(row["status"] == "done" for row in judged) else "incomplete")
    return bundle, [_outcome(by_id[row["row"]], row) for row in judged]


def _size(case: Case, engine: Engine) -> str:
    return str(case.meta.get("size", "smoke")) if engine.device == "cuda" else "smoke"


def _ready(results: Path, key: str, size: str, engine: Engine) -> bool:
    problem = problems.load(key, size=size)
    return fixtures.matches(fixtures.path(results, problem, engine.device), problem)


def _outcome(case: Case, row: dict[str, Any]) -> dict[str, Any]:
    facts = {"case": case.id, "problem": case.meta["problem"], "catalogue": case.meta.get("id", "")}
    if row["status"] != "done":
        return facts | {"verdict": "not measured", "reasons": [], "complaints": [f"{row['status']}: {row['error']}"]}
    (entry,) = row["result"]["results"]
    return facts | {
        "verdict": entry["verdict"],
        "reasons": entry["reasons"],
        "precision_class": entry["precision_class"],
        "labels": entry["labels"],
        "complaints": complaints(case, entry),
        "wall_s": row["wall_s"],
    }


def outcomes(bundle: Bundle) -> list[dict[str, Any]]:
    """The entries of a bundle of the self-test, read again."""
    known = {case.id: case for case in cases(list(SUITES), [])}
    rows = [bundle.rows[name] for name in bundle.manifest["plan"] if name in bundle.rows and name in known]
    return [_outcome(known[row["row"]], row) for row in rows]
