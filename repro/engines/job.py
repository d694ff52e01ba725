"""A job: one unit of work as JSON in, JSON out. It runs inside a container.

`repro job FOLDER` reads FOLDER/jobs.jsonl, runs the jobs in order and appends a line for each to
FOLDER/outcomes.jsonl, so that finished work survives a later failure. Progress is printed as lines.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import signal
import sys
import traceback
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, cast

from repro import config, fingerprint
from repro.engines.settled import Settled, settle
from repro.errors import ReproError, UsageError, located
from repro.fingerprint.telemetry import Telemetry
from repro.judge.processes import launcher, pool, preload
from repro.problems import constants
from repro.system import importing, jsonio, signals, stopwatch
from repro.system.prctl import PR_SET_PDEATHSIG, prctl
from repro.system.procfs import alive

if TYPE_CHECKING:  # the launcher needs no pydantic
    from repro.engines.resources import Progress
    from repro.records.fingerprint import Fingerprint
    from repro.records.fixture import Fixture
    from repro.records.job import Job, Outcome
    from repro.records.row import Result


def begin(folder: Path, owner: str = "") -> list[Job]:
    """Fork a launcher and a judge, and return a folder's jobs in the judge.

    All end with the process that started this one: without it, the lease of the GPU is gone and outcomes would not be
    read. owner: the id of that process, unless it is a container's first.
    """
    # SIGCHLD may be inherited as ignored, and then exit codes of children are lost.
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if owner and not alive(owner):  # it ended before the signal was asked for
        os._exit(1)
    launcher.divide()  # returns in the judge; only the judge may be able to read the folder
    signals.END_AT_ONCE.set()
    from repro.records.job import JOBS, Job

    config.own_caches(folder)
    return [Job.from_json(json.loads(line)) for line in (folder / JOBS).read_text().splitlines()]


def serve(folder: Path, owner: str = "") -> int:
    """Run the jobs of a folder; a failed job does not stop the next one. owner: as for `begin`. Return 0."""
    jobs = begin(folder, owner)
    from repro.records.job import ENDED, OUTCOMES

    for job in jobs:
        jsonio.append(folder / OUTCOMES, _outcome(job, folder).to_json())
        print(ENDED, flush=True)
    return 0


def _outcome(job: Job, folder: Path) -> Outcome:
    """Run one job and observe the machine meanwhile."""
    from repro.records.job import Outcome

    prepare(job)
    outcome, clock, observed = Outcome(job.id, "failed"), stopwatch.Clock(), Telemetry(job.device)
    beside = ThreadPoolExecutor(1)
    try:
        outcome.fingerprint = fingerprint_of(job)
        if _audited(job):  # a worker that fails to start is started again where it is needed
            beside.submit(pool.prepare, _wanted(job), job.device)
        outcome.result = run(job, folder, lambda line: print(line, flush=True), observed.mark)
        outcome.status = "done"
    except ReproError as error:
        outcome.status, outcome.error = "unmet" if error.exit_code == 1 else "failed", str(error)
    except Exception as error:
        outcome.error = located(error)
        traceback.print_exc()
    beside.shutdown()
    pool.close()
    if job.device == "cuda" and "torch" in sys.modules:
        sys.modules["torch"].cuda.empty_cache()  # cached by the judge's allocator; the next job needs it
    seen = observed.end()
    if outcome.result is not None:
        outcome.result = outcome.result.model_copy(update=seen)
    outcome.wall_s = clock.total()
    return outcome


def _audited(job: Job) -> bool:
    """Return whether solutions of a job run in processes of their own."""
    return job.verb in ("evaluate", "session") and job.options.trust == "audited"


def _wanted(job: Job) -> Counter[str]:
    return pool.wanted(job.device, job.dtype, len(job.solutions), job.options)


def prepare(job: Job) -> None:
    """Begin what takes long, beside the imports of this process: the fork server imports what workers need."""
    if _audited(job):
        launcher.current().start_forkserver(job.device, compiles=_wanted(job)[pool.COMPILES] > 0)
    elif job.device == "cpu" and job.options.trust == "dev":  # workers get this by their environment
        config.interpret()


#: The fingerprints of this process's machine, one for each device, taken once.
_taken: dict[str, Fingerprint] = {}


def fingerprint_of(job: Job) -> Fingerprint:
    """Return the fingerprint for a job's device. The first time, also import and start torch."""
    from repro.records.fingerprint import Fingerprint

    if job.device not in _taken:
        begun = fingerprint.begin(job.device)
        if job.verb != "fingerprint":  # so that the fingerprint's time does not include these imports
            _start_torch(job.device)
        _taken[job.device] = Fingerprint.written(fingerprint.collect(job.device, begun))
    return _taken[job.device]


def _start_torch(device: str) -> None:
    """Start what all judging needs: Triton, torch, what it imports for shapes, and on a GPU a context.

    Meanwhile a thread there does what the judge's first Triton kernel would wait for.
    """
    with importing.uncollected(), ThreadPoolExecutor(1) as beside:
        for name in ("triton", "torch", "torch.fx.experimental.symbolic_shapes"):
            with contextlib.suppress(ImportError):  # the fingerprint lists missing packages
                importlib.import_module(name)
            if device == "cuda":
                beside.submit(preload.read_triton)  # which reads once
        if device == "cuda":
            beside.submit(preload.triton)
            with contextlib.suppress(RuntimeError, AssertionError):  # reported where it is needed
                sys.modules["torch"].cuda.init()


# -- the verbs


def run(job: Job, folder: Path, progress: Progress, mark: Progress = lambda _: None) -> Result:
    """Run one job in this process. mark: called with `warm` and `timed` before and after timing. Raises ReproError."""
    from repro.records.result import Observed

    if job.verb == "fingerprint":
        return Observed()
    require_device(job)
    match job.verb:
        case "profile":
            return _profile(job, folder, progress)
        case "fixture":
            return cast("Result", fixture_of(job, folder, settle(job, folder), progress))
        case "evaluate":
            return _evaluate(job, folder, progress, mark)
    raise UsageError(f"no verb of jobs {job.verb!r}")


def require_device(job: Job) -> None:
    """Prepare torch for a job's device. Raises UsageError if the job needs a GPU and none is visible."""
    import torch

    if job.device == "cuda" and not torch.cuda.is_available():
        raise UsageError("no GPU is visible", "torch.cuda.is_available() is false", "Use --device cpu --size smoke.")
    if job.device == "cpu":
        torch.set_num_threads(1)  # smoke shapes: more threads are 50 times slower on a busy machine


def _solutions(job: Job, folder: Path) -> list[tuple[str, Path, str]]:
    return [(name, (folder / file).resolve(), entry) for name, file, entry in job.solutions]


def _profile(job: Job, folder: Path, progress: Progress) -> Result:
    from repro.judge.timing import counters
    from repro.records.profile import ProfileResult

    dtypes = job.dtypes or counters.DTYPES if job.device == "cuda" else ()  # nothing runs on the CPU
    problems = {dtype: settle(replace(job, dtype=dtype), folder).fitting(job.device) for dtype in dtypes}
    return ProfileResult.written(counters.measure(problems, _solutions(job, folder), job.device, progress))


def fixture_of(job: Job, folder: Path, settled: Settled, progress: Progress) -> Fixture:
    """Return the fixture that a job's folder holds, or measure it. One that is refused judges nothing."""
    import torch

    from repro.fixtures import calibration, store

    device = torch.device(job.device)
    if settled.refused is not None:
        return calibration.refused(settled.problem, device, settled.refused)
    problem = settled.fitting(job.device)
    if job.fixture:
        return store.load(folder / job.fixture, problem)
    return calibration.build(problem, device, progress)


def _evaluate(job: Job, folder: Path, progress: Progress, mark: Progress) -> Result:
    """Judge a job's solutions, and time them by the published protocols where that is asked for."""
    from repro.judge import session
    from repro.judge.timing import published_protocol
    from repro.records.result import Sizes

    clock = stopwatch.Clock()
    settled, solutions = settle(job, folder), _solutions(job, folder)
    problem, fixture = settled.problem, fixture_of(job, folder, settled, progress)
    clock.lap("fixture")
    judged = session.evaluate(problem, fixture, solutions, job.options, progress, mark)
    sizes = Sizes(stamp=constants.stamp(problem.size, problem.overrides), overrides=problem.overrides)
    more: dict[str, object] = {"sizes": sizes, "spent_s": clock.laps | judged.spent_s}
    verdicts: dict[str, str] = {entry.solution: entry.verdict for entry in judged.results}
    if job.options.parity:
        more["parity"] = published_protocol.measure(problem, solutions, verdicts, job.device, progress)
    if job.options.kernelbench:
        theirs = published_protocol.kernelbench(problem, solutions, verdicts, job.device, progress)
        more["results"] = [entry.model_copy(update={"kernelbench": theirs[entry.solution]}) for entry in judged.results]
    return judged.model_copy(update=more)
