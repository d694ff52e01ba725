"""Hardware counters of kernels by Nsight Compute, `ncu`: what `benchmark --profile` adds. They decide nothing.

The launcher starts a process for each kernel and dtype. It becomes ncu, which starts this module as its child. The
child draws the published inputs and makes the weights as the judge does. It imports the kernel, calls it to warm up,
and then once between cudaProfilerStart and cudaProfilerStop. ncu profiles every launch of that call. It leaves the
clocks alone and flushes the caches before each pass.

The process has a user of its own where workers have one. ncu works through threads and connections in the child, so the
child is confined late: after CUDA and the inputs are ready, before it reads the kernel. What that does not bind stands
in `confinement.confine` under `late`. ncu itself is not confined, and runs as the same user as the kernel. The counters
are therefore that process's own claim.

Where only root may read counters, kernels run as the launcher's user. This is tried with a call of torch first, because
a kernel could print ncu's refusal.
"""

from __future__ import annotations

import base64
import contextlib
import csv
import io
import json
import math
import os
import shutil
import signal
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from repro import config
from repro.errors import JudgeError, located, printable
from repro.judge.isolation import confinement
from repro.judge.processes import launcher as launch
from repro.judge.processes import pool
from repro.judge.processes.wire import Channel, ChannelClosed, ChannelTimeout, Json
from repro.judge.source.bans import bans
from repro.problems.catalogue import Message, Problem
from repro.system import importing
from repro.system.prctl import PR_SET_PDEATHSIG, prctl

if TYPE_CHECKING:
    from repro.judge.processes.forkserver import Request

DTYPES = ("bfloat16", "float32")
# The process becomes ncu, and confines what runs below it.
CONFINES_ITSELF = True
_WARM_CALLS = 3
# One kernel: imports, inputs and compilation take 20 s; ncu repeats each launch some ten times.
_TIMEOUT_S = 120.0
# Key -> ncu's metric. The unit is the base unit of ncu that the key names.
METRICS = {
    "duration_ns": "gpu__time_duration.sum",
    "dram_read_bytes": "dram__bytes_read.sum",
    "dram_write_bytes": "dram__bytes_write.sum",
    "dram_pct": "dram__throughput.avg.pct_of_peak_sustained_elapsed",
    "dram_bytes_per_s": "dram__bytes.sum.per_second",
    "l2_pct": "lts__throughput.avg.pct_of_peak_sustained_elapsed",
    "l1_pct": "l1tex__throughput.avg.pct_of_peak_sustained_elapsed",
    "sm_pct": "sm__throughput.avg.pct_of_peak_sustained_elapsed",
    "compute_memory_pct": "gpu__compute_memory_throughput.avg.pct_of_peak_sustained_elapsed",
    "tensor_pct": "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_elapsed",
    "warps_pct": "sm__warps_active.avg.pct_of_peak_sustained_active",
    "l1_hit_pct": "l1tex__t_sector_hit_rate.pct",
    "l2_hit_pct": "lts__t_sector_hit_rate.pct",
    "instructions": "smsp__inst_executed.sum",
    "registers": "launch__registers_per_thread",
    "shared_bytes": "launch__shared_mem_per_block",
    "spilled_bytes": "l1tex__t_bytes_pipe_lsu_mem_local_op_st.sum",
    "threads": "launch__block_size",
    "blocks": "launch__grid_size",
    "sm_clock_hz": "sm__cycles_elapsed.avg.per_second",
}
# How one value of a whole call comes from its launches. Other keys have the mean, weighted by duration.
_SUMMED = ("duration_ns", "dram_read_bytes", "dram_write_bytes", "instructions", "spilled_bytes")
_LARGEST = ("registers", "shared_bytes", "threads", "blocks")

_NO_GPU = "hardware counters need an NVIDIA GPU; this ran on the CPU"
_NO_NCU = "ncu (Nsight Compute) is not on the PATH: it comes with the CUDA toolkit"
_NO_NCU_IN_IMAGE = f"{_NO_NCU}, in an image based on nvidia/cuda's devel image"
_NO_PERMISSION = (
    "only an administrator may read the GPU's counters here: load the NVIDIA driver with "
    "NVreg_RestrictProfilingToAdminUsers=0, or run as root without a container"
)
_AS_ROOT = "as the user of the launcher, since no other user may read the counters here"
_REFUSED = "ERR_NVGPUCTRPERM"
# How the child begins a line for the judge, between what ncu prints.
_MARK = "==REPRO== "
_TASK = "task.json"
_LOG_BYTES, _NAME_CHARS, _WHY_CHARS = 16 << 20, 300, 400
_SEND_TIMEOUT_S, _POLL_S = 60.0, 0.05

Values = dict[str, float | None]  # by the names of METRICS; None where ncu has no value
Numbers = list[float | None]


@dataclass(frozen=True)
class Launch:
    """One launch of a profiled call. name: the kernel's."""

    name: str
    values: Values


@dataclass(frozen=True)
class Entry:
    """One call of a kernel in one dtype. state, why: as in `repro.records.profile`."""

    state: str
    why: str
    launches: list[Launch]
    totals: Values


# -- what ncu prints --------------------------------------------------------------------------------------------------


def _command(ncu: str) -> list[str]:
    """Return the command line that profiles the program behind it."""
    return [
        ncu, "--csv", "--page", "raw", "--print-units", "base", "--clock-control", "none",
        "--profile-from-start", "off", "--target-processes", "application-only",
        "--metrics", ",".join(METRICS.values()),
    ]  # fmt: skip


def _parse(text: str) -> list[Launch]:
    """Return the launches of ncu's raw page.

    The page has a line of names, a line of units and a line for each launch, after other output. Raises csv.Error.
    """
    start = text.find('"ID"') if text.startswith('"ID"') else text.find('\n"ID"') + 1
    if not text.startswith('"ID"', start):
        return []
    launches = []
    for row in csv.DictReader(io.StringIO(text[start:]), restkey="", restval=""):
        if row["ID"].isdigit():
            values = {key: _value(row.get(metric, "")) for key, metric in METRICS.items()}
            launches.append(Launch(printable(row.get("Kernel Name", ""))[:_NAME_CHARS], values))
    return launches


def _value(text: str) -> float | None:
    """Return a number of ncu's; None if ncu has none, or none that a counter can have."""
    try:
        value = float(text.replace(",", ""))
    except ValueError:
        return None
    return value if math.isfinite(value) and value >= 0 else None


def total(launches: list[Launch]) -> Values:
    """Return METRICS of all launches of one call together; None where a launch has no value.

    Durations, bytes and instructions are sums, numbers of a launch's shape the largest, shares and rates means weighted
    by duration. The DRAM rate is bytes over duration.
    """
    weights = [launch.values["duration_ns"] for launch in launches]
    totals = {key: _total(key, [launch.values[key] for launch in launches], weights) for key in METRICS}
    read, written, duration = (totals[key] for key in ("dram_read_bytes", "dram_write_bytes", "duration_ns"))
    totals["dram_bytes_per_s"] = None
    if read is not None and written is not None and duration:
        totals["dram_bytes_per_s"] = (read + written) / duration * 1e9
    return totals


def _total(key: str, values: Numbers, weights: Numbers) -> float | None:
    """Return one metric of all launches. weights: their durations."""
    known = [value for value in values if value is not None]
    if not known or len(known) < len(values):
        return None
    if key in _SUMMED:
        return sum(known)
    if key in _LARGEST:
        return max(known)
    durations = [weight for weight in weights if weight is not None]
    if len(known) > 1 and (len(durations) < len(known) or not sum(durations)):
        return None
    return statistics.fmean(known, durations if len(known) > 1 else None)


def _last_words(text: str) -> str:
    """Return the last lines that ncu printed of itself, else the last lines."""
    lines = [line.strip() for line in text.split("\n") if line.strip() and not line.startswith(_MARK)]
    own = [line for line in lines if line.startswith("==") and not line.startswith("==PROF==")]
    return printable(" / ".join((own or lines)[-3:]))[:_WHY_CHARS]


def facts(text: str) -> Json:
    """Return what the child said: `confined`, then `error` or `done`."""
    said: Json = {}
    for line in text.split("\n"):
        if line.startswith(_MARK):
            with contextlib.suppress(ValueError, TypeError, RecursionError):
                said |= json.loads(line.removeprefix(_MARK))
    return said


def _entry(text: str, late: str, code: int | None) -> Entry:
    """Return the entry of one run below ncu, by all that was printed. late: why it was killed, if it was."""
    said, words, launches = facts(text), _last_words(text), list[Launch]()
    state, why = "profiled", ""
    if _REFUSED in text:
        state, why = "no_permission", _NO_PERMISSION
    elif error := said.get("error"):
        state, why = "not_run", printable(str(error))[:_WHY_CHARS]
    elif late:
        state, why = "not_run", late
    elif "confined" in said and not said.get("done"):
        state, why = "not_run", f"its process ended before the call did: {words}"
    else:
        try:
            launches = _parse(text)
        except csv.Error as failure:
            words = f"ncu's table cannot be read: {failure}"
        if not launches:
            state, why = "failed", words or f"ncu ended with code {code} and said nothing"
    return Entry(state, why, launches, total(launches))


# -- the judge --------------------------------------------------------------------------------------------------------


def measure(
    problems: dict[str, Problem],
    solutions: list[tuple[str, Path, str]],
    device: str,
    progress: Callable[[str], None],
    timeout_s: float = _TIMEOUT_S,
) -> Json:
    """Profile solutions (name, file, entry) of one problem, given by dtype. Return a `repro.records.profile` as JSON.

    Without problems, as on the CPU, every dtype gets an entry. Whatever keeps a kernel from being profiled becomes its
    entry's state and reason; no error is raised. A solution whose file is missing has an entry too.
    """
    ncu = shutil.which("ncu") if device == "cuda" else None
    profiler = Profiler(ncu or "", device, timeout_s)
    entries, dtypes = [], tuple(problems) or DTYPES
    for name, file, entry in solutions:
        state, why = _blocked(device, ncu, file)
        for dtype in dtypes:
            progress(f"profile: {name} in {dtype}")
            if state:
                profile = Entry(state, why, [], total([]))
            else:
                profile = profiler.profile(problems[dtype], file.read_bytes(), entry)
            entries.append({"kernel": name, "dtype": dtype} | asdict(profile))
    return {
        "profiles": entries,
        "separation": profiler.separation,
        "confined": profiler.confined,
    }


def _blocked(device: str, ncu: str | None, file: Path) -> tuple[str, str]:
    """Return state and reason of a kernel that cannot be profiled, or two empty strings."""
    if device != "cuda":
        return "no_gpu", _NO_GPU
    if ncu is None:
        return "no_ncu", _NO_NCU_IN_IMAGE if config.in_container() else _NO_NCU
    if not file.is_file():
        return "not_run", "the folder has no such kernel"
    banned = bans(file)
    return ("not_run", f"rejected: {banned[0]}") if banned else ("", "")


@dataclass
class Profiler:
    """Runs kernels below ncu on one device, each in a process that the launcher starts and ends.

    own_user: whether these processes have a user of their own where workers have one. separation: as a worker's, empty
    before the first run. confined: what the last child could apply, by its own account.
    """

    ncu: str
    device: str
    timeout_s: float = _TIMEOUT_S
    own_user: bool = True
    separation: str = ""
    confined: dict[str, str] = field(default_factory=dict)

    def profile(self, problem: Problem, source: bytes, entry: str = "kernel_function") -> Entry:
        """Return the state, reason, launches and totals of one call of a kernel."""
        try:
            result = self._run(problem, source, entry)
            if result.state == "no_permission" and self.own_user and launch.may_administer():
                # A kernel can print the refusal too, and must not choose its user by that.
                if self._run(problem, None, "").state == "no_permission":
                    self.own_user = False
                    result = self._run(problem, source, entry)
        except JudgeError as error:
            return Entry("failed", str(error)[:_WHY_CHARS], [], total([]))
        if self.own_user or result.state == "no_permission":
            return result
        return replace(result, why="; ".join(filter(None, (result.why, _AS_ROOT))))

    def _run(self, problem: Problem, source: bytes | None, entry: str) -> Entry:
        """Run one kernel below ncu, or with source None a call of torch. Raises JudgeError."""
        ran = below(_command(self.ncu), self.device, problem, source, entry, self.timeout_s, own_user=self.own_user)
        self.separation = ran.separation
        confined = facts(ran.text).get("confined")
        self.confined = confined if isinstance(confined, dict) else self.confined
        return _entry(ran.text, ran.late, ran.code)


@dataclass(frozen=True)
class Ran:
    """How a program and the kernel below it ended. text: all that was printed. late: why it was killed, if it was.
    separation: as a worker's."""

    text: str
    late: str
    code: int | None
    separation: str


def below(
    command: list[str], device: str, problem: Problem, source: bytes | None, entry: str, timeout_s: float,
    *, own_user: bool = True,
) -> Ran:  # fmt: skip
    """Run a few calls of one kernel, or with source None of torch, as the child of a program. Raises JudgeError."""
    text = base64.b64encode(source).decode() if source is not None else None
    task = _Task(command, device, math.ceil(2 * timeout_s), problem.message(), text, entry)
    process = pool.Process("profile", device, serves=__name__, own_user=own_user)
    try:
        deadline, code = time.monotonic() + timeout_s, None
        try:
            process.channel.send(asdict(task), _SEND_TIMEOUT_S)
        except (ChannelClosed, ChannelTimeout):
            deadline = 0.0
        while (code := process.launcher.poll(process.started.pid)) is None and time.monotonic() < deadline:
            time.sleep(_POLL_S)
        process.launcher.kill(process.started.pid)  # with all that the kernel started
        printed = os.pread(process.log, _LOG_BYTES, 0).decode(errors="replace")
    finally:
        process.close()
    late = f"it was killed after {timeout_s:.0f} s" if code is None else ""
    return Ran(printed, late, code, "process" if process.started.uid is None else "user")


# -- the process that becomes ncu, and its child ----------------------------------------------------------------------


@dataclass(frozen=True)
class _Task:
    """What the child profiles.

    command: of the program above it. source: of the kernel, base64; None: a call of torch. entry: the name to call.
    shielded: see `confine`.
    """

    command: list[str]
    device: str
    limit_s: int
    problem: Message
    source: str | None
    entry: str
    shielded: tuple[int, ...] = ()

    @classmethod
    def of(cls, sent: dict[str, Any]) -> _Task:
        """Return the task that was sent as JSON."""
        return cls(**sent | {"problem": Message(**sent["problem"]), "shielded": tuple(sent["shielded"])})


def serve(request: Request, confined: dict[str, str]) -> None:
    """Receive the task, write it into the scratch folder, and replace this process by the program. Raises OSError."""
    scratch = Path(request.scratch)
    task = _Task.of(Channel.of_worker(request.fds).receive() | {"shielded": request.shielded})
    if task.source is not None:
        (scratch / "solution.py").write_bytes(base64.b64decode(task.source))
    (scratch / _TASK).write_text(json.dumps(asdict(task)))
    prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    child = (sys.executable, "-P", "-s", "-m", "repro.judge.timing.counters", str(scratch))
    os.execv(task.command[0], [*task.command, *child])  # noqa: S606


def _target(scratch: Path) -> None:
    """Run below ncu: profile one call. Tell the judge how it went."""
    out = os.dup(1)
    task = _Task.of(json.loads((scratch / _TASK).read_text()))
    signal.alarm(task.limit_s)  # a last bound, in case nothing is left that could end this process
    try:
        _profile(task, scratch, out)
        _tell(out, done=True)
    except BaseException as error:
        _tell(out, error=located(error))


def _tell(out: int, **facts: Any) -> None:
    os.write(out, f"\n{_MARK}{json.dumps(facts)[:_LOG_BYTES]}\n".encode())


def _profile(task: _Task, scratch: Path, out: int) -> None:
    """Make weights and inputs, confine this process, and profile the kernel."""
    import torch

    from repro.judge import baselines
    from repro.judge.correctness import input_cases
    from repro.problems import plan

    device = torch.device(task.device)
    if device.type == "cpu":
        from repro.judge.worker import triton_interpreter

        torch.set_num_threads(1)
        triton_interpreter.mend()
    problem = task.problem.problem(scratch / "problem.py")
    planned = plan.plan(problem)
    weights = plan.weights(problem, planned.module)
    model = plan.build(problem, planned.module, weights.init)
    model.load_state_dict(weights.state)
    model, inputs = model.to(device), planned.make(input_cases.PUBLIC_SEED, device)
    if device.type == "cuda":
        torch.cuda.synchronize()
    readable = [Path(word).resolve().parent for word in task.command if word.startswith("/")]
    _tell(out, confined=confinement.confine(scratch, readable, task.shielded, late=True))
    silent = os.open(os.devnull, os.O_WRONLY)
    for output in (1, 2):
        os.dup2(silent, output)
    baselines.set_flags("eager")
    if task.source is None:
        _call(torch.neg, [torch.ones(1 << 20, device=device)], device)
    else:
        _call(_bound(task, scratch, model, weights.init, len(inputs)), inputs, device)


def _bound(task: _Task, scratch: Path, model: Any, init: list[Any], inputs: int) -> Callable[..., Any]:
    """Import the kernel, and return it as a function of the inputs."""
    import torch

    from repro.judge.worker import binding

    solution = importing.module_of(scratch / "solution.py")
    if task.entry == "kernel_function":
        return binding.bind(solution.kernel_function, model, inputs, init)
    call = solution.ModelNew(*init).to(torch.empty(0, dtype=getattr(torch, task.problem.dtype), device=task.device))
    call.eval().load_state_dict(model.state_dict())
    return call  # type: ignore[no-any-return]


def _call(call: Callable[..., Any], inputs: list[Any], device: Any) -> None:
    """Warm up, then make one call that ncu profiles."""
    import torch

    gpu = device.type == "cuda"
    with torch.no_grad():
        for _ in range(_WARM_CALLS):
            call(*inputs)
        if gpu:
            torch.cuda.synchronize()
            torch.cuda.profiler.start()
        kept = call(*inputs)
        if gpu:
            torch.cuda.synchronize()
            torch.cuda.profiler.stop()
        del kept


if __name__ == "__main__":
    _target(Path(sys.argv[1]))
