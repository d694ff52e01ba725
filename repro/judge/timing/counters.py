"""Hardware counters of kernels by Nsight Compute, `ncu`: what `benchmark --profile` adds. They decide nothing.

The launcher starts a process for each kernel. It becomes ncu, which starts this module as its child. The child draws
the published inputs and makes the weights as the judge does, in every dtype. For each dtype it imports the kernel anew,
calls it to warm up, and then once between cudaProfilerStart and cudaProfilerStop, in an NVTX range of the dtype's name.
ncu profiles every launch of that call. It leaves the clocks alone and flushes the caches before each pass. A dtype that
the other one may have disturbed is profiled again, in a process of its own.

The process has a user of its own where workers have one. ncu works through threads and connections in the child, so the
child is confined late: after CUDA and the inputs are ready, before it reads the kernel. What that does not bind stands
in `confine.confine` under `late`. ncu itself is not confined, and runs as the same user as the kernel. The counters are
therefore that process's own claim.

Where only root may read counters, kernels run as the launcher's user. This is tried with a call of torch first, because
a kernel could print ncu's refusal.
"""

from __future__ import annotations

import base64
import csv
import io
import json
import math
import os
import re
import shutil
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from repro import config
from repro.errors import JudgeError, printable
from repro.judge.isolation import confinement
from repro.judge.processes import launcher as launch
from repro.judge.processes import pool
from repro.judge.processes.wire import Channel, ChannelClosed, ChannelTimeout, Json
from repro.judge.source.bans import bans
from repro.problems.catalogue import Message, Problem
from repro.system.prctl import PR_SET_PDEATHSIG, prctl

DTYPES = ("bfloat16", "float32")
WARM_CALLS = 3
# One kernel: imports, inputs and compilation take 20 s; ncu repeats each launch some ten times.
TIMEOUT_S = 120.0
CLOCK_CONTROL = "none"
# Key -> ncu's metric and the unit of our value. ncu names the unit of each column, and values are converted.
METRICS = {
    "duration_ns": ("gpu__time_duration.sum", "ns"),
    "dram_read_bytes": ("dram__bytes_read.sum", "byte"),
    "dram_write_bytes": ("dram__bytes_write.sum", "byte"),
    "dram_pct": ("dram__throughput.avg.pct_of_peak_sustained_elapsed", "%"),
    "dram_bytes_per_s": ("dram__bytes.sum.per_second", "byte/s"),
    "l2_pct": ("lts__throughput.avg.pct_of_peak_sustained_elapsed", "%"),
    "l1_pct": ("l1tex__throughput.avg.pct_of_peak_sustained_elapsed", "%"),
    "sm_pct": ("sm__throughput.avg.pct_of_peak_sustained_elapsed", "%"),
    "compute_memory_pct": ("gpu__compute_memory_throughput.avg.pct_of_peak_sustained_elapsed", "%"),
    "tensor_pct": ("sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_elapsed", "%"),
    "warps_pct": ("sm__warps_active.avg.pct_of_peak_sustained_active", "%"),
    "l1_hit_pct": ("l1tex__t_sector_hit_rate.pct", "%"),
    "l2_hit_pct": ("lts__t_sector_hit_rate.pct", "%"),
    "instructions": ("smsp__inst_executed.sum", "inst"),
    "registers": ("launch__registers_per_thread", "register/thread"),
    "shared_bytes": ("launch__shared_mem_per_block", "byte/block"),
    "spilled_bytes": ("l1tex__t_bytes_pipe_lsu_mem_local_op_st.sum", "byte"),
    "threads": ("launch__block_size", ""),
    "blocks": ("launch__grid_size", ""),
    "sm_clock_hz": ("sm__cycles_elapsed.avg.per_second", "hz"),
}
# How one value of a whole call comes from its launches. Other keys have the mean, weighted by duration.
SUMMED = ("duration_ns", "dram_read_bytes", "dram_write_bytes", "instructions", "spilled_bytes")
LARGEST = ("registers", "shared_bytes", "threads", "blocks")
PREFIXES = {"": 1.0, "n": 1e-9, "u": 1e-6, "k": 1e3, "m": 1e6, "g": 1e9, "t": 1e12}
# The units that ncu scales, in its spellings; `m` is milli before a second and mega before the others.
SCALED = re.compile(r"([numkgt]?)(byte|second|s|hz|cycle)")

NO_GPU = "hardware counters need an NVIDIA GPU; this ran on the CPU"
NO_NCU = "ncu (Nsight Compute) is not on the PATH: it comes with the CUDA toolkit"
NO_NCU_IN_IMAGE = f"{NO_NCU}, in an image based on nvidia/cuda's devel image"
NO_PERMISSION = (
    "only an administrator may read the GPU's counters here: load the NVIDIA driver with "
    "NVreg_RestrictProfilingToAdminUsers=0, or run as root without a container"
)
AS_ROOT = "as the user of the launcher, since no other user may read the counters here"
REFUSED = "ERR_NVGPUCTRPERM"
# How the child begins a line for the judge, between what ncu prints.
TOLD = "==REPRO== "
TASK = "task.json"
LOG_BYTES, NAME_CHARS, WHY_CHARS = 16 << 20, 300, 400
VERSION_TIMEOUT_S, SEND_TIMEOUT_S, POLL_S = 20.0, 60.0, 0.05

Values = dict[str, float | None]  # by the names of METRICS; None where ncu has no value


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


def command(ncu: str, scratch: str) -> list[str]:
    """Return the command line that profiles what the task in a scratch folder asks for."""
    return [
        ncu, "--csv", "--page", "raw", "--print-units", "base", "--clock-control", CLOCK_CONTROL,
        "--profile-from-start", "off", "--target-processes", "application-only", "--nvtx",
        "--metrics", ",".join(metric for metric, _ in METRICS.values()),
        sys.executable, "-P", "-s", "-m", "repro.judge.timing.counters", scratch,
    ]  # fmt: skip


def range_of(dtype: str) -> str:
    """Return the name of the NVTX range around the profiled call in a dtype."""
    return f"repro_{dtype}"


def parse(text: str, within: str = "") -> list[Launch]:
    """Return the launches of ncu's raw page, or those in the NVTX range `within`.

    The page has a line of names, a line of units and a line for each launch, after other output. Raises csv.Error.
    """
    lines = text.split("\n")
    first = next((at for at, line in enumerate(lines) if line.startswith('"ID"')), None)
    if first is None:
        return []
    reader = csv.DictReader(io.StringIO("\n".join(lines[first:])), restkey="", restval="")
    units: dict[str, str] = {}
    found = []
    for row in reader:
        if not row["ID"]:
            units = units or row
        elif row["ID"].isdigit() and within in _ranges(row):
            values = {key: _value(row.get(m, ""), units.get(m, ""), unit) for key, (m, unit) in METRICS.items()}
            found.append(Launch(printable(row.get("Kernel Name", ""))[:NAME_CHARS], values))
    return found


def _ranges(row: dict[str, str]) -> str:
    """Return ncu's cells of the NVTX ranges in which a launch happened."""
    return " ".join(text for column, text in row.items() if "Range" in column)


def _value(text: str, given: str, unit: str) -> float | None:
    """Return a number of ncu's in our unit; None if ncu has none, or none that a counter can have."""
    try:
        value = float(text.replace(",", "")) * _scale(given) / (_scale(unit) if given else 1.0)
    except ValueError:
        return None
    return value if math.isfinite(value) and value >= 0 else None


def _scale(unit: str) -> float:
    """Return what one of a unit is in bytes, seconds, hertz, or a ratio of two of them; 1 for a count."""
    above, _, below = unit.strip().partition("/")
    return _prefix(above) / (_prefix(below) if below else 1.0)


def _prefix(unit: str) -> float:
    match = SCALED.fullmatch(unit.lower())
    if match is None:
        return 1.0
    letter, base = match.groups()
    return 1e-3 if letter == "m" and base in ("second", "s") else PREFIXES[letter]


def total(launches: list[Launch]) -> Values:
    """Return METRICS of all launches of one call together; None where a launch has no value.

    Durations, bytes and instructions are sums, numbers of a launch's shape the largest, shares and rates means weighted
    by duration. The DRAM rate is bytes over duration.
    """
    every = [launch.values for launch in launches]
    weights = [each["duration_ns"] or 0.0 for each in every]
    timed, whole = all(each["duration_ns"] is not None for each in every), sum(weights)
    found: Values = {}
    for key in METRICS:
        values = [value for each in every if (value := each[key]) is not None]
        if not values or len(values) < len(every):
            found[key] = None
        elif key in SUMMED:
            found[key] = sum(values)
        elif key in LARGEST:
            found[key] = max(values)
        elif len(values) == 1:
            found[key] = values[0]
        elif whole and timed:
            found[key] = sum(v * weight for v, weight in zip(values, weights, strict=True)) / whole
        else:
            found[key] = None
    moved = [found["dram_read_bytes"], found["dram_write_bytes"]]
    duration = found["duration_ns"]
    found["dram_bytes_per_s"] = sum(v for v in moved if v is not None) / duration * 1e9 \
        if duration and None not in moved else None  # fmt: skip
    return found


def _last_words(text: str) -> str:
    """Return the last lines that ncu printed of itself, else the last lines."""
    lines = [line.strip() for line in text.split("\n") if line.strip() and not line.startswith(TOLD)]
    own = [line for line in lines if line.startswith("==") and not line.startswith("==PROF==")]
    return printable(" / ".join((own or lines)[-3:]))[:WHY_CHARS]


@dataclass(frozen=True)
class Run:
    """One run below ncu of a kernel in some dtypes, as it ended. late: it was killed after timeout_s."""

    dtypes: tuple[str, ...]
    text: str
    late: bool
    code: int | None
    timeout_s: float

    def entry(self, dtype: str) -> Entry:
        """Return state, reason, launches and totals of one dtype."""
        return _entry(*self._read(dtype))

    def settles(self, dtype: str) -> bool:
        """Return whether a process of its own would say the same of a dtype: no other one can have disturbed it."""
        state = self._read(dtype)[0]
        if len(self.dtypes) == 1 or state in ("profiled", "no_permission"):
            return True
        before, facts = self.dtypes[: self.dtypes.index(dtype)], self._facts(dtype)
        if facts.get("done"):  # its launches are lost, or look like the other dtype's
            return False
        if not before:
            return bool(facts)
        called = facts.get("called") and facts.get("error")
        return bool(called) and all(self._facts(other).get("done") for other in before)

    def told(self) -> Json:
        """Return what the child said: `confined`, `error` before any call, and by dtype `called`, `error` or `done`."""
        found: Json = {}
        for line in self.text.split("\n"):
            if line.startswith(TOLD):
                try:
                    found |= json.loads(line.removeprefix(TOLD))
                except (ValueError, TypeError, RecursionError):
                    continue
        return found

    def _facts(self, dtype: str) -> Json:
        facts = self.told().get(dtype)
        return facts if isinstance(facts, dict) else {}

    def _read(self, dtype: str) -> tuple[str, str, list[Launch]]:
        told, facts, words = self.told(), self._facts(dtype), _last_words(self.text)
        if REFUSED in self.text:
            return "no_permission", NO_PERMISSION, []
        if error := facts.get("error") or told.get("error"):
            return "not_run", printable(str(error))[:WHY_CHARS], []
        if self.late:
            return "not_run", f"it was killed after {self.timeout_s:.0f} s", []
        try:
            launches = parse(self.text, range_of(dtype) if len(self.dtypes) > 1 else "")
        except csv.Error as failure:
            return "failed", f"ncu's table cannot be read: {failure}", []
        if told.get("confined") is not None and not facts.get("done"):
            return "not_run", f"its process ended before the call did: {words}", []
        if not launches:
            return "failed", words or f"ncu ended with code {self.code} and said nothing", []
        return "profiled", "", launches


def _entry(state: str, why: str, launches: list[Launch]) -> Entry:
    return Entry(state, why, launches, total(launches))


# -- the judge --------------------------------------------------------------------------------------------------------


def measure(
    problems: dict[str, Problem],
    solutions: list[tuple[str, Path, str]],
    device: str,
    progress: Callable[[str], None],
    timeout_s: float = TIMEOUT_S,
) -> Json:
    """Profile solutions (name, file, entry) of one problem, given by dtype. Return a `repro.records.profile` as JSON.

    Without problems, as on the CPU, every dtype gets an entry. Whatever keeps a kernel from being profiled becomes its
    entry's state and reason; no error is raised. A solution whose file is missing has an entry too.
    """
    begin = time.monotonic()
    ncu = shutil.which("ncu") if device == "cuda" else None
    version = _version(ncu) if ncu else ""
    blocked = ("no_gpu", NO_GPU) if device != "cuda" else ("", "")
    if device == "cuda" and ncu is None:
        blocked = "no_ncu", NO_NCU_IN_IMAGE if config.in_container() else NO_NCU
    profiler = Profiler(ncu or "", device, timeout_s)
    entries, dtypes = [], tuple(problems) or DTYPES
    for name, file, entry in solutions:
        progress(f"profile: {name} in {' and '.join(dtypes)}")
        state, why = blocked
        if not state and not file.is_file():
            state, why = "not_run", "the folder has no such kernel"
        elif not state and (banned := bans(file)):
            state, why = "not_run", f"rejected: {banned[0]}"
        if state:
            found = {dtype: _entry(state, why, []) for dtype in dtypes}
        else:
            found = profiler.profile(problems, file.read_bytes(), entry)
        for dtype, profile in found.items():
            told = {"kernel": name, "dtype": dtype, "ncu": version, "clock_control": CLOCK_CONTROL}
            entries.append(told | asdict(profile))
    return {
        "profiles": entries,
        "separation": profiler.separation,
        "confined": profiler.confined,
        "wall_s": round(time.monotonic() - begin, 3),
    }


def _version(ncu: str) -> str:
    """Return the line by which ncu states its version; empty if it does not."""
    try:
        done = subprocess.run(
            [ncu, "--version"], capture_output=True, text=True, timeout=VERSION_TIMEOUT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    lines = [line for line in done.stdout.splitlines() if line.startswith("Version")]
    return printable(lines[0])[:NAME_CHARS] if lines else ""


class Profiler:
    """Runs kernels below ncu on one device, each in a process that the launcher starts and ends.

    own_user: whether these processes have a user of their own where workers have one. separation: as a worker's, empty
    before the first run. confined: what the last child could apply, by its own account.
    """

    def __init__(self, ncu: str, device: str, timeout_s: float = TIMEOUT_S) -> None:
        self.ncu, self.device, self.timeout_s = ncu, device, timeout_s
        self.own_user, self.separation = True, ""
        self.confined: dict[str, str] = {}

    def profile(self, problems: dict[str, Problem], source: bytes, entry: str = "kernel_function") -> dict[str, Entry]:
        """Return by dtype the state, reason, launches and totals of one call of a kernel.

        One process runs all dtypes. A dtype that another one may have disturbed runs again in a process of its own.
        """
        found = {}
        for dtype, (profile, settled) in self._attempt(problems, source, entry).items():
            found[dtype] = profile if settled else self._attempt({dtype: problems[dtype]}, source, entry)[dtype][0]
        return found

    def _attempt(self, problems: dict[str, Problem], source: bytes, entry: str) -> dict[str, tuple[Entry, bool]]:
        """Return by dtype the entry of one process, and whether no other dtype can have disturbed it."""
        try:
            run = self._run(problems, source, entry)
            if REFUSED in run.text and self.own_user and launch.may_administer():
                # A kernel can print the refusal too, and must not choose its user by that.
                if REFUSED in self._run(dict(list(problems.items())[:1]), None, "").text:
                    self.own_user = False
                    run = self._run(problems, source, entry)
        except JudgeError as error:
            return {dtype: (_entry("failed", str(error)[:WHY_CHARS], []), True) for dtype in problems}
        return {dtype: (self._as_run(run.entry(dtype)), run.settles(dtype)) for dtype in problems}

    def _as_run(self, entry: Entry) -> Entry:
        """Note in an entry that it ran as the launcher's user."""
        if self.own_user or entry.state == "no_permission":
            return entry
        return replace(entry, why="; ".join(filter(None, (entry.why, AS_ROOT))))

    def _run(self, problems: dict[str, Problem], source: bytes | None, entry: str) -> Run:
        """Run one kernel below ncu in some dtypes, or with source None a call of torch. Raises JudgeError."""
        task = Task(
            self.ncu,
            self.device,
            math.ceil(2 * self.timeout_s),
            [problem.message() for problem in problems.values()],
            base64.b64encode(source).decode() if source is not None else None,
            entry,
        )
        process = pool.Process("profile", self.device, kind="profile", own_user=self.own_user)
        try:
            self.separation = "process" if process.started.uid is None else "user"
            deadline, code = time.monotonic() + self.timeout_s, None
            try:
                process.channel.send(asdict(task), SEND_TIMEOUT_S)
            except (ChannelClosed, ChannelTimeout):
                deadline = 0.0
            while (code := process.launcher.poll(process.started.pid)) is None and time.monotonic() < deadline:
                time.sleep(POLL_S)
            process.launcher.kill(process.started.pid)  # with all that the kernel started
            text = os.pread(process.log, LOG_BYTES, 0).decode(errors="replace")
        finally:
            process.close()
        run = Run(tuple(problems), text, code is None, code, self.timeout_s)
        confined = run.told().get("confined")
        self.confined = confined if isinstance(confined, dict) else self.confined
        return run


# -- the process that becomes ncu, and its child ----------------------------------------------------------------------


@dataclass(frozen=True)
class Task:
    """What the child profiles.

    source: of the kernel, base64; None: a call of torch. entry: the name to call. shielded: see `confine`.
    """

    ncu: str
    device: str
    limit_s: int
    problems: list[Message]
    source: str | None
    entry: str
    shielded: tuple[int, ...] = ()

    @classmethod
    def of(cls, told: dict[str, Any]) -> Task:
        """Return the task that was sent as JSON."""
        problems = [Message(**each) for each in told["problems"]]
        return cls(**told | {"problems": problems, "shielded": tuple(told["shielded"])})


def become_ncu(read_fd: int, write_fd: int, scratch: Path, shielded: tuple[int, ...]) -> None:
    """Receive the task, write it into the scratch folder, and replace this process by ncu. Raises OSError."""
    channel = Channel(read_fd, write_fd, from_judge=True)
    for fd in (read_fd, write_fd):
        os.set_inheritable(fd, False)
    task = Task.of(channel.receive() | {"shielded": shielded})
    if task.source is not None:
        (scratch / "solution.py").write_bytes(base64.b64decode(task.source))
    (scratch / TASK).write_text(json.dumps(asdict(task)))
    prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    os.execv(task.ncu, command(task.ncu, str(scratch)))  # noqa: S606


def target(scratch: Path) -> None:
    """Run below ncu: profile one call in each dtype. Tell the judge how it went."""
    out = os.dup(1)
    task = Task.of(json.loads((scratch / TASK).read_text()))
    signal.alarm(task.limit_s)  # a last bound, in case nothing is left that could end this process
    try:
        _profile(task, scratch, out)
    except BaseException as error:
        _tell(out, error=_words(error))


def _tell(out: int, **facts: Any) -> None:
    os.write(out, f"\n{TOLD}{json.dumps(facts)[:LOG_BYTES]}\n".encode())


def _words(error: BaseException) -> str:
    last = traceback.extract_tb(error.__traceback__)[-1]
    return f"{type(error).__name__}: {error} ({Path(last.filename).name}:{last.lineno})"


def _profile(task: Task, scratch: Path, out: int) -> None:
    """Make the inputs of all dtypes, confine this process, and profile the kernel in one dtype after another."""
    import torch

    from repro.judge.timing.published_protocol import imported
    from repro.judge.worker import binding, triton_interpreter

    device = torch.device(task.device)
    if device.type == "cpu":
        torch.set_num_threads(1)
        triton_interpreter.mend()
    prepared = {told.dtype: _prepare(told, scratch, device) for told in task.problems}
    _wait(device)
    if device.type == "cuda":
        torch.cuda.nvtx.mark("repro")  # NVTX loads ncu's library at its first use
    readable = [Path(task.ncu).resolve().parent]
    _tell(out, confined=confinement.confine(scratch, readable, task.shielded, late=True))
    silent = os.open(os.devnull, os.O_WRONLY)
    for output in (1, 2):
        os.dup2(silent, output)
    for dtype in list(prepared):
        model, init, made = prepared.pop(dtype)  # its memory is free for the next dtype
        facts: dict[str, bool | str] = {}
        try:
            torch.backends.cudnn.allow_tf32, torch.backends.cuda.matmul.allow_tf32 = True, False
            call: Any = torch.neg
            if task.source is not None:
                like = torch.empty(0, dtype=getattr(torch, dtype), device=device)
                solution = imported("solution", None, scratch)
                if task.entry == "kernel_function":
                    call = binding.bind(solution.kernel_function, model, len(made), init)
                else:
                    call = solution.ModelNew(*init).to(like).eval()
                    call.load_state_dict(model.state_dict())
            else:
                made = [torch.ones(1 << 20, device=device)]
            facts["called"] = True
            _tell(out, **{dtype: facts})
            _call(call, made, device, range_of(dtype))
            facts["done"] = True
        except BaseException as error:
            facts["error"] = _words(error)
        _tell(out, **{dtype: facts})


def _prepare(told: Message, scratch: Path, device: Any) -> tuple[Any, Any, list[Any]]:
    """Return the model with the published weights, its constructor's arguments and the published inputs."""
    from repro.judge.correctness import input_cases
    from repro.problems import plan as inputs

    problem = told.problem(scratch / "problem.py")
    plan = inputs.plan(problem)
    weights = inputs.weights(problem, plan.module)
    model = inputs.build(problem, plan.module, weights.init)
    model.load_state_dict(weights.state)
    return model.to(device), weights.init, plan.make(input_cases.PUBLIC_SEED, device)


def _call(call: Callable[..., Any], made: list[Any], device: Any, name: str) -> None:
    """Warm up, then make one call that ncu profiles, in the NVTX range `name`."""
    import torch

    gpu = device.type == "cuda"
    with torch.no_grad():
        for _ in range(WARM_CALLS):
            call(*made)
        _wait(device)
        if gpu:
            within = torch.cuda.nvtx.range_start(name)
            torch.cuda.profiler.start()
        kept = call(*made)
        _wait(device)
        if gpu:
            torch.cuda.profiler.stop()
            torch.cuda.nvtx.range_end(within)
        del kept


def _wait(device: Any) -> None:
    if device.type == "cuda":
        import torch

        torch.cuda.synchronize()


if __name__ == "__main__":
    target(Path(sys.argv[1]))
