"""`repro evaluate --self-test`: tests of the judge by two suites of solutions under tests/, one file each.

Adversarial solutions must never be accepted, honest ones never rejected. Each file begins with its `Header`; what many
files share stands in tests/frames.
"""

from __future__ import annotations

import functools
import re
import tomllib
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from pydantic import Field, ValidationError

from repro import config
from repro.bundle.write import Bundle
from repro.engines.base import Engine
from repro.errors import UsageError
from repro.problems import catalogue
from repro.problems.catalogue import Problem
from repro.records import row as record
from repro.records import wording
from repro.records.base import Record, faults
from repro.records.fingerprint import Device
from repro.records.options import MODES, Options
from repro.records.verdict import CaseOutcome, PrecisionClass, Reason, Verdict, VerdictWord
from repro.runs import fixtures
from repro.runs.loop import ROWS_A_PROCESS, Run
from repro.runs.rows import Row
from repro.studies import evaluation
from repro.studies.evaluation import Submission
from repro.system.groups import grouped

SUITES = ("adversarial", "honest")
MARK = "#: "
# Cases share constructors and helpers in tests/frames. Such an import is replaced by the text: a solution is one file.
_FRAME = re.compile(r"^from frames\.(\w+) import .*\n", re.MULTILINE)
TIMEOUT_S = 150.0
# Twice this if a time stays open. No case needs a precise time: 32 blocks show whether a cheat gained time.
TIMING_BUDGET_S = 2.0
# Cases of one row, judged side by side. Fewer where they are timed: after a rejection all others are timed again.
SIDE_BY_SIDE, TIMED_SIDE_BY_SIDE = 8, 4
# Looks for PROGRAM where jobs run; for nvcc also for torch's C++ headers of the same CUDA version.
_LOOK = r"""
import importlib.util, pathlib, re, shutil, subprocess, tempfile
path = shutil.which(PROGRAM)
if path is None:
    print(PROGRAM, "is missing")
elif PROGRAM == "nvcc":
    told = subprocess.run([path, "--version"], capture_output=True, text=True).stdout
    has = re.search(r"release (\d+)\.", told)
    torch = pathlib.Path(importlib.util.find_spec("torch").origin).parent
    due = re.search(r"^cuda[^=]*= *'(\d+)\.", (torch / "version.py").read_text(), re.MULTILINE)
    headers = "torch/extension.h", "torch/csrc/api/include/torch/types.h"
    if not all((torch / "include" / header).exists() for header in headers):
        print("torch's C++ headers are missing")
    elif shutil.which("ninja") is None:
        print("ninja is missing, which torch builds with")
    elif due and has and due[1] != has[1]:
        print(f"nvcc is of CUDA {has[1]} and torch of CUDA {due[1]}")
    else:
        with tempfile.NamedTemporaryFile("w", suffix=".cu") as source:
            source.write("#include <thrust/complex.h>\n")
            source.flush()
            if subprocess.run([path, "-E", source.name], capture_output=True).returncode:
                print("nvcc finds no thrust/complex.h, which torch's C++ headers include")
"""
# What a case can need, in words.
_NEEDS = {"cuda": "a GPU", "cpu": "--device cpu", "docker": "the docker engine", "local": "the local engine"}
# Outcomes of a cheat whose output is right: with a GPU its time is known, without one it is not.
_NO_TIME, _RIGHT = "no time bought", "right output, not timed"
# Why a bundle keeps the hash of a case and not its text.
_SHIPPED = "a case of the self-test, which ships with repro"
# A reason of a header that stands for these codes: values that are wrong.
_DISTANCE, DISTANCES = "distance", {"rel_l2", "max", "row", "zero_region", "bias", "stale", "differs", "not_finite"}
# A case with one of these expected reasons disturbs others, so it is timed alone.
_DISTURBING = {"background_work", "baseline_disturbed"}
# Labels that compare times. Like `max_speedup`, they are due only where times count: on a busy CPU they may be missing.
_OF_TIMES = {"input_dependent_time"}


class Expected(Record):
    """What is expected of a cheat."""

    verdict: list[VerdictWord] = Field(["incorrect"], min_length=1)
    """Any of these."""
    reasons: list[str] = []
    """Any of these, or none: any. `distance`: wrong values, by any measure."""


class Header(Record):
    """Lines of a case that begin with MARK: TOML."""

    problem: str
    """A shipped problem; `L1_36@bf16` for one of the artifacts; `topk.py` for a file of tests/frames/problems."""
    dtype: str = "float32"
    """Of the inputs and weights of a problem that is a file."""
    right_in: list[str] = []
    """Dtypes in which it is no mistake, or one that no number shows."""
    size: Literal["smoke", "full"] = "smoke"
    """On a GPU; the CPU has smoke. A case about time needs full: the host dominates calls of 10 us, and `at_least` then
    confirms no speedup."""
    device: list[Device] = []
    """Where the case exists; everywhere by default."""
    engine: list[Literal["docker", "local"]] = []
    """The same of engines."""
    needs: str = ""
    """A program; nvcc also requires torch's C++ headers."""
    timing: bool | list[Device] = False
    """Whether it is timed, or the devices on which."""
    compiled: bool = False
    """Whether torch.compile is a baseline."""
    timeout_s: float | None = None
    """Bound of one request."""
    labels: list[str] = []
    """Labels that it must have."""
    expect: Expected = Expected(reasons=[_DISTANCE])
    """Of a cheat."""
    max_speedup: float | None = None
    """Of a cheat that may be correct: limit of `at_least`."""
    precision_class: list[PrecisionClass] = []
    """The same: its classes."""
    klass: PrecisionClass | list[PrecisionClass] = Field([], alias="class")
    """Of an honest solution: the class, or classes."""


@dataclass(frozen=True)
class Case:
    """One file of a suite, with its header. dtype: in which a shipped problem is judged."""

    suite: str
    file: Path
    header: Header
    dtype: str = "float32"

    @property
    def id(self) -> str:
        return f"{self.suite}/{self.file.stem}"

    @property
    def exploit(self) -> str:
        """Return the id of the exploit that begins the file's name, as A9 for A09; "" where there is none."""
        found = re.match(r"([ABC])0*(\d+)_", self.file.stem)
        return f"{found[1]}{found[2]}" if found else ""

    def source(self) -> bytes:
        """Return the case as one file, with the frames that it imports."""
        frames = self.file.parents[1] / "frames"
        return _FRAME.sub(lambda line: (frames / f"{line[1]}.py").read_text(), self.file.read_text()).encode()

    def problem(self, engine: Engine) -> Problem:
        """Return the problem at the size that is judged here."""
        name, size = self.header.problem, self.header.size if engine.device == "cuda" else "smoke"
        if not name.endswith(".py"):
            return catalogue.load(name, size=size, dtype=self.dtype)
        folder = self.file.parents[1] / "frames" / "problems"
        return catalogue.load_file(folder / name, size=size, dtype=self.header.dtype)

    def reasons(self) -> set[str]:
        """Return the codes of the reasons that are expected."""
        named = set(self.header.expect.reasons)
        return (named - {_DISTANCE}) | DISTANCES if _DISTANCE in named else named

    def timed(self, engine: Engine) -> bool:
        """Return whether the case is timed here."""
        timing = self.header.timing
        return engine.device in timing if isinstance(timing, list) else timing

    def alone(self, engine: Engine) -> bool:
        """Return whether the case is judged alone.

        These are attacks on processes (catalogue C), cases with a time limit of their own, and timed cases that disturb
        others.
        """
        disturbing = _DISTURBING & self.reasons()
        apart = self.header.timeout_s is not None or self.exploit.startswith("C")
        return apart or (self.timed(engine) and bool(disturbing))

    def skipped(self, engine: Engine) -> str:
        """Return why the case cannot run here, or the empty string."""
        own = self.header.problem.endswith(".py") or "@" in self.header.problem or self.dtype in self.header.right_in
        if self.dtype != "float32" and (own or self.suite == "honest"):
            return f"it is not for {self.dtype}"
        for named, here in ((self.header.device, engine.device), (self.header.engine, engine.name)):
            if named and here not in named:
                return f"needs {' or '.join(_NEEDS[each] for each in named)}"
        return _missing(engine, self.header.needs) if self.header.needs else ""


@functools.cache
def _missing(engine: Engine, program: str) -> str:
    """Return why a program cannot be used where jobs run, or the empty string."""
    return engine.look(f"PROGRAM = {program!r}\n{_LOOK}").strip()


def cases(suites: list[str], names: list[str], dtype: str = "float32") -> list[Case]:
    """Return the files of the suites, narrowed to `names`: parts of file names, or of paths if they have a slash.

    Raises UsageError if there are none.
    """
    found = []
    for suite in suites:
        folder = config.ROOT / "tests" / suite
        for file in sorted(folder.glob("*.py")):
            lines = [line.removeprefix(MARK) for line in file.read_text().splitlines() if line.startswith(MARK)]
            try:
                header = Header.written(tomllib.loads("\n".join(lines)))
            except ValueError as error:
                why = "; ".join(faults(error)) if isinstance(error, ValidationError) else str(error)
                raise UsageError(f"{file} has no header that can be read", why) from error
            if not names or any(name in (str(file) if "/" in name else file.name) for name in names):
                found.append(Case(suite, file, header, dtype))
    if not found:
        raise UsageError("no case of the self-test is left", f"suites {', '.join(suites)}, names {', '.join(names)}")
    return found


def complaints(case: Case, entry: Verdict) -> list[str]:
    """Return the differences between one verdict (`entry`) and the file's header."""
    header, honest, word = case.header, case.suite == "honest", entry.verdict
    expected = Expected(verdict=["correct"]) if honest else header.expect
    if case.dtype != "float32" and word != "unjudgeable":  # a case may fail for its dtype alone
        return _accepted(case, entry) if word == "correct" else []
    due = set(header.labels) - (set() if entry.measurement else _OF_TIMES)
    missing = sorted(due - set(entry.labels))
    found = [f"label {', '.join(missing)} is missing"] if missing else []
    codes = [reason.code for reason in entry.reasons]
    if word not in expected.verdict:
        kind = "false reject" if honest else "false accept" if word == "correct" else "another verdict"
        found.append(f"{kind}: {evaluation.line(entry)}")
    elif word != "correct" and expected.reasons and not case.reasons().intersection(codes):
        found.append(f"reason {', '.join(codes)} instead of {', '.join(expected.reasons)}")
    return found + (_of_a_correct(header, entry) if word == "correct" else [])


def _of_a_correct(header: Header, entry: Verdict) -> list[str]:
    """Return a class or a speedup that a correct solution must not have."""
    klass = [header.klass] if isinstance(header.klass, str) else header.klass
    wanted, found = klass or header.precision_class, []
    if wanted and entry.precision_class not in wanted:
        found.append(f"class {entry.precision_class} instead of {' or '.join(wanted)}")
    return found + _bought(header, entry)


def _accepted(case: Case, entry: Verdict) -> list[str]:
    """Return what a cheat that is correct in 16 bits must not be."""
    due = "correct" in case.header.expect.verdict
    return _bought(case.header, entry) if due else [f"false accept: {evaluation.line(entry)}"]


def _bought(header: Header, entry: Verdict) -> list[str]:
    """Return the time that a solution must not have gained."""
    eager, limit = entry.speedup.get("eager"), header.max_speedup
    if eager and entry.measurement and limit is not None and (eager.at_least or 0.0) > limit:
        return [f"bought time: at least {eager.at_least:.3g}x eager, at most {limit}x was due"]
    return []


def options(case: Case, engine: Engine, base: Options) -> Options:
    """Return how this case is judged."""
    return Options(
        timing=case.timed(engine),
        modes=MODES if case.header.compiled else ("eager",),
        timeout_s=case.header.timeout_s or TIMEOUT_S,
        timing_budget_s=min(base.timing_budget_s, TIMING_BUDGET_S),
        trust=base.trust,
        compile_timeout_s=base.compile_timeout_s,
        passes=("control",),  # no case is about the profile, and starting the profiler takes two seconds
    )


def run(run: Run, suites: list[str], names: list[str], dtype: str) -> tuple[Bundle, list[CaseOutcome]]:
    """Judge every case that can run here; return the bundle and one entry for each case. In another dtype than float32
    these are cheats of shipped problems, which must not be called correct.

    Missing and stale fixtures are measured first. Several rows share one process: the judge never imports a solution,
    and every worker is new, so cases do not influence each other.
    """
    engine, chosen = run.engine, cases(suites, names, dtype)
    skipped = {case.id: why for case in chosen if (why := case.skipped(engine))}
    able = [case for case in chosen if case.id not in skipped]
    fixtures.ensure(run, [case.problem(engine) for case in able])
    rows = [_row(run, group) for group in groups(able, engine)]
    parameters = {"suites": suites, "device": engine.device, "trust": run.options.trust, "skipped": skipped}
    parameters |= {"dtype": dtype} if dtype != "float32" else {}
    bundle = run.open("self-test", rows, parameters)
    known = {case.id: case for case in able}

    def summary(row: record.Row) -> str:
        wrong = [entry for entry in _outcomes(known, row) if entry.complaints]
        told = "; ".join(f"{entry.case}: {', '.join(entry.complaints)}" for entry in wrong)
        return f"{len(row.cases or [])} as expected" if not wrong else f"WRONG: {told}"

    run.execute(rows, bundle, summary, together=ROWS_A_PROCESS)
    return bundle, outcomes(bundle)


def groups(able: list[Case], engine: Engine) -> list[list[Case]]:
    """Return groups of cases that are judged side by side, with workers started together.

    A group has one problem and equal options.
    """
    together = grouped(
        ((repr(case.problem(engine)), case.timed(engine), case.header.compiled, case.alone(engine) and case.id), case)
        for case in able
    )
    found = []
    for of in together.values():
        step = TIMED_SIDE_BY_SIDE if of[0].timed(engine) else SIDE_BY_SIDE
        found += [of[at : at + step] for at in range(0, len(of), step)]
    return found


def _row(run: Run, group: list[Case]) -> Row:
    first = group[0]
    problem = first.problem(run.engine)
    name = first.id if len(group) == 1 else f"{problem.key}: {first.id} and {len(group) - 1} more"
    entry = "kernel_function" if problem.dtype == "bfloat16" else "ModelNew"
    submissions = [Submission(case.id, source := case.source(), evaluation.entry_of(source, entry)) for case in group]
    plan = record.Planned(row=name, problem=problem.key, cases=[case.id for case in group])
    how = replace(run, options=options(first, run.engine, run.options))
    build = functools.partial(evaluation.job, how, name, problem, submissions)
    return evaluation.row_for(plan, build, _SHIPPED)


def _outcomes(known: dict[str, Case], row: record.Row) -> list[CaseOutcome]:
    """Return one entry for each case of a row."""
    entries = {entry.solution: entry for entry in row.verdicts}
    return [_outcome(known[name], entries.get(name), row) for name in row.cases or [] if name in known]


def _outcome(case: Case, entry: Verdict | None, row: record.Row) -> CaseOutcome:
    problem, exploit = case.header.problem, case.exploit
    if entry is None:
        told = [wording.reason(Reason(code=row.status, detail=row.error))]
        return CaseOutcome(case=case.id, problem=problem, catalogue=exploit, verdict="not measured", reasons=[],
                           outcome="not measured", complaints=told)  # fmt: skip
    found = complaints(case, entry)
    return CaseOutcome(
        case=case.id, problem=problem, catalogue=exploit, verdict=entry.verdict, reasons=entry.reasons,
        precision_class=entry.precision_class, labels=entry.labels,
        outcome="wrong" if found else outcome(case, entry), complaints=found,
    )  # fmt: skip


def outcome(case: Case, entry: Verdict) -> str:
    """Return the outcome of a case that was judged as expected, in words for people.

    An honest solution is `accepted` and a cheat `caught`. A cheat with right output gained no time; without a GPU its
    time is unknown.
    """
    if case.suite == "honest":
        return "accepted"
    if entry.verdict != "correct":
        return "caught"
    return _NO_TIME if entry.measurement else _RIGHT


def outcomes(bundle: Bundle) -> list[CaseOutcome]:
    """Return the entries of a self-test's bundle, by suite and name."""
    known = {case.id: case for case in cases(list(SUITES), [], bundle.manifest["parameters"].get("dtype", "float32"))}
    found = (entry for row in bundle.records().values() for entry in _outcomes(known, row))
    return sorted(found, key=lambda entry: entry.case)
