"""Two published protocols, run beside ours to show what a protocol changes. Their numbers decide nothing.

- `measure`: the protocol of the artifact study's script. Eager, torch.compile, input and optimised kernel run in this
  order, in one process, on one unseeded draw of inputs that all share and may change. Nothing is verified. Grad mode is
  torch's default, enabled; whether the published script turns it off is unknown.
- `kernelbench`: KernelBench's own evaluation, by its `eval.py` at the commit in artifacts/sources.toml. Each solution
  has a process. Models are in training mode; every draw of inputs comes from torch's generator under a fixed seed, and
  is compared by `allclose` with one tolerance. A solution that passes all of them is timed, then the problem's Model.

Both run after a problem is judged, in confined processes that are started as workers are. Every number is such a
process's own claim.
"""

from __future__ import annotations

import base64
import contextlib
import functools
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from repro.errors import SolutionRejected, printable
from repro.judge.implementation import Progress
from repro.judge.processes import pool
from repro.judge.processes.wire import Channel, ChannelClosed, ChannelGarbage, ChannelTimeout, Json, printed
from repro.judge.timing import sampling
from repro.judge.worker import binding, triton_interpreter
from repro.problems.catalogue import Message, Problem
from repro.problems.plan import torch_dtype
from repro.records.result import PUBLISHED_BASELINES, Parity
from repro.records.verdict import KernelBenchVerdict
from repro.system import importing

if TYPE_CHECKING:
    from repro.judge.processes.forkserver import Request

Solutions = list[tuple[str, Path, str]]  # name, file, entry
_WHY_CHARS = 400


@dataclass(frozen=True)
class _Rules:
    """How a published script draws inputs and calls a solution.

    entry: what a solution defines. seed: of torch's generator before each use; None: never seeded. on_device: inputs
    are drawn on the device, else on the CPU. casts_integers: whether integer inputs, and tensors for the constructor,
    get the problem's dtype too. timeout_s: the most that one request may take.
    """

    entry: str
    seed: int | None
    on_device: bool
    casts_integers: bool
    timeout_s: float


_RULES = {
    # Starting, drawing inputs and compiling take seconds; do_bench takes 0.6 s and at least six calls.
    "published": _Rules("kernel_function", None, True, False, 90.0),
    # Inputs of full size are drawn on the CPU, six times.
    "kernelbench": _Rules("ModelNew", 42, False, True, 180.0),
}
# The published script's timer, and its description in results.
_WARMUP_MS, _REP_MS = 500, 100
PROTOCOL = {
    "timer": "triton.testing.do_bench",
    "warmup_ms": _WARMUP_MS,
    "rep_ms": _REP_MS,
    "statistic": "mean",
    "order": "eager, compile, input, optimised, in one process",
    "inputs": "one unseeded draw, shared, neither cloned nor compared",
    "verified": False,
}
# Verdicts of kernels that the published script runs: a kernel that hung, died or broke a rule is not run again.
_RUNNABLE = ("correct", "incorrect")
# KernelBench's trials, its tolerances (absolute and relative, by the problem's dtype), and its timer: the mean of calls
# between CUDA events, each behind a flush of the L2 cache, rounded to three digits.
TRIALS = 5
_TOLERANCES = {"float32": 1e-4, "float16": 1e-2, "bfloat16": 1e-2}
_WARMUP_CALLS, _DISCARDED_CALLS, _CALLS = 3, 1, 100
_FLUSH_ELEMENTS = 32 * 1024 * 1024  # of 8 bytes
# Calls that are timed where there is no GPU.
_HOST_CALLS = 3


def measure(
    problem: Problem,
    solutions: Solutions,
    verdicts: dict[str, str],
    device: str,
    progress: Progress,
    timeout_s: float = _RULES["published"].timeout_s,
) -> Parity:
    """Time eager, torch.compile and the solutions of one problem, in this order, by the published script's protocol.

    A fault becomes a reason; no error is raised. timeout_s bounds one variant.
    """
    times_ms, reasons = dict[str, float | None](), dict[str, str]()
    variants: list[tuple[str, Path | None]] = [(name, None) for name in PUBLISHED_BASELINES]
    variants += [(name, file) for name, file, _ in solutions]
    with contextlib.closing(_Child(device)) as child:
        ready = child.ask(timeout_s, "prepare", problem=asdict(problem.message()))
        blocked = str(ready.get("error", ""))
        for name, file in variants:
            progress(f"{problem.key}: published protocol: {name}")
            if blocked:
                answer: Json = {"error": blocked}
            elif file is not None and verdicts.get(name) not in _RUNNABLE:
                answer = {"error": f"not run: the verdict is {verdicts.get(name) or 'missing'}"}
            else:
                answer = child.ask(timeout_s, "time", variant=name, source=_encoded(file))
                blocked = f"the protocol's process ended with {name}: {child.ended}" if child.ended else ""
            times_ms[name], reason = _time(answer)
            reasons |= {name: reason} if reason is not None else {}
    grad = ready.get("grad")
    return Parity(
        times_ms=times_ms, reasons=reasons, protocol=PROTOCOL, grad=grad if isinstance(grad, bool) else None,
        measurement=device == "cuda",
    )  # fmt: skip


def _time(answer: Json) -> tuple[float | None, str | None]:
    """Return the time that a process answered, ms, or why there is none."""
    if "error" in answer:
        return None, str(answer["error"])[:_WHY_CHARS]
    try:
        return sampling.reported(answer.get("ms")), None
    except SolutionRejected as error:
        return None, error.detail[:_WHY_CHARS]


def kernelbench(
    problem: Problem,
    solutions: Solutions,
    verdicts: dict[str, str],
    device: str,
    progress: Progress,
    timeout_s: float = _RULES["kernelbench"].timeout_s,
) -> dict[str, KernelBenchVerdict]:
    """Evaluate solutions as KernelBench does, and return its verdicts by name.

    timeout_s bounds one solution. A fault becomes a reason; no error is raised.
    """
    results = {}
    for name, file, entry in solutions:
        progress(f"{problem.key}: KernelBench's protocol: {name}")
        if entry != _RULES["kernelbench"].entry:
            answer: Json = {"why": f"not run: KernelBench takes {_RULES['kernelbench'].entry} alone"}
        elif verdicts.get(name) == "timeout":
            answer = {"why": "not run: the verdict is timeout"}
        else:
            with contextlib.closing(_Child(device)) as child:
                answer = child.ask(timeout_s, "evaluate", problem=asdict(problem.message()), source=_encoded(file))
        results[name] = _kernelbench_verdict(answer, _TOLERANCES[problem.dtype], measurement=device == "cuda")
    return results


def _kernelbench_verdict(answer: Json, tolerance: float, *, measurement: bool) -> KernelBenchVerdict:
    """Return the facts of an answer. Whatever else a solution's process wrote is left out."""
    why = str(answer.get("why", answer.get("error", "")))
    passed = answer.get("passed", 0 if "error" in answer else None)
    passed = passed if type(passed) is int else None
    ms = eager_ms = None
    if passed == TRIALS:
        try:
            ms, eager_ms = (sampling.reported(answer.get(name)) for name in ("ms", "eager_ms"))
        except SolutionRejected as error:
            why = error.detail
    return KernelBenchVerdict(
        correct=None if passed is None else passed == TRIALS, passed=passed, trials=TRIALS, tolerance=tolerance, ms=ms,
        eager_ms=eager_ms, speedup=eager_ms / ms if ms and eager_ms else None, measurement=measurement,
        why=why[:_WHY_CHARS],
    )  # fmt: skip


def _encoded(file: Path | None) -> str | None:
    return None if file is None else base64.b64encode(file.read_bytes()).decode()


class _Child(pool.Process):
    """The judge's client of a process that runs a protocol. ended: why the process ended, or was ended, if it did."""

    def __init__(self, device: str) -> None:
        if device == "cuda":
            torch.cuda.empty_cache()  # cached by the judge's allocator
        super().__init__("parity", device, serves=__name__)
        self.ended = ""

    def ask(self, timeout_s: float, op: str, **arguments: object) -> Json:
        """Send one request and return its answer; its `error` says why there is none."""
        try:
            self.channel.send({"op": op, **arguments}, timeout_s)
            return self.channel.receive(timeout_s)
        except ChannelTimeout:
            self.ended = f"no answer within {timeout_s:.0f} s"
        except ChannelClosed:
            tail = printed(self.log).strip().splitlines()
            self.ended = printable(f"it died{': ' + tail[-1] if tail else ''}")
        except ChannelGarbage as error:
            self.ended = f"it did not answer in JSON ({error})"
        self.launcher.kill(self.started.pid)
        return {"error": self.ended}


# -- the other process ------------------------------------------------------------------------------------------------


@dataclass
class _Bench:
    """One problem under the rules of one protocol: its model, its inputs, and calls on them."""

    device: torch.device
    scratch: Path
    inputs: list[Any] = field(default_factory=list)

    def prepare(self, problem: dict[str, Any]) -> Json:
        """Build the model and draw the inputs, both in the problem's dtype, by the published script's rules."""
        self._build(_RULES["published"], problem)
        self.inputs = self._drawn()
        return {"grad": torch.is_grad_enabled()}

    def time(self, variant: str, source: str | None) -> Json:
        """Return the mean milliseconds of one variant. source (base64): a file that defines the entry."""
        call: Callable[..., Any] = self.model
        if variant == "compile":
            if self.device.type != "cuda":
                return {"error": "torch.compile is not run on the CPU"}
            call = torch.compile(self.model)
        elif source is not None:
            kernel = getattr(_imported(variant, source, self.scratch), self.rules.entry)
            call = binding.bind(kernel, self.model, len(self.inputs), self.init)
        timer = _do_bench if self.device.type == "cuda" else _host_clock
        return {"ms": timer(functools.partial(call, *self.inputs))}

    def evaluate(self, problem: dict[str, Any], source: str) -> Json:
        """Return how many of KernelBench's trials passed, why one did not, and the times in ms of what passed all."""
        rules = _RULES["kernelbench"]
        with torch.no_grad():
            self._build(rules, problem)
            new = self._model(getattr(_imported("solution", source, self.scratch), rules.entry))
            passed, why = self._compared(new)
            if passed < TRIALS:
                return {"passed": passed, "why": why}
        self._seed()
        self.inputs = self._drawn()
        timer = _event_mean if self.device.type == "cuda" else _host_clock
        times = {"ms": new, "eager_ms": self.model}
        return {"passed": passed} | {name: timer(functools.partial(f, *self.inputs)) for name, f in times.items()}

    def _build(self, rules: _Rules, problem: dict[str, Any]) -> None:
        self.rules, loaded = rules, Message(**problem).problem(self.scratch / "problem.py")
        self.module, self.dtype, self.tolerance = loaded.module(), torch_dtype(loaded.dtype), _TOLERANCES[loaded.dtype]
        self._seed()
        self.init = loaded.init_inputs(self.module)
        if rules.casts_integers:
            self.init = [self._moved(value) for value in self.init]
        self.model = self._model(self.module.Model)

    def _model(self, make: Callable[..., torch.nn.Module]) -> torch.nn.Module:
        self._seed()
        return make(*self.init).to(self.dtype).to(self.device)

    def _drawn(self) -> list[Any]:
        with self.device if self.rules.on_device else contextlib.nullcontext():
            drawn = list(self.module.get_inputs())
        inputs = []
        while drawn:  # one at a time: in float32 the largest inputs take twice their memory
            inputs.append(self._moved(drawn.pop(0)))
        return inputs

    def _moved(self, value: Any) -> Any:
        if not isinstance(value, torch.Tensor):
            return value
        casts = value.is_floating_point() or self.rules.casts_integers
        return value.to(dtype=self.dtype if casts else value.dtype).to(device=self.device)

    def _seed(self) -> None:
        if self.rules.seed is not None:
            torch.manual_seed(self.rules.seed)  # of the GPU's generator too

    def _compared(self, new: torch.nn.Module) -> tuple[int, str]:
        passed, why = 0, ""
        self._seed()
        for seed in [int(torch.randint(0, 2**32 - 1, (1,)).item()) for _ in range(TRIALS)]:
            torch.manual_seed(seed)
            inputs = self._drawn()
            torch.manual_seed(seed)
            expected, output = self.model(*inputs), new(*inputs)
            if expected.shape != output.shape:
                return 0, f"the shape is {tuple(output.shape)} instead of {tuple(expected.shape)}"
            if torch.allclose(expected, output, atol=self.tolerance, rtol=self.tolerance):
                passed += 1
            else:
                why = f"largest difference {float((expected - output).abs().max()):.3g}"
        return passed, why


def _imported(name: str, source: str, scratch: Path) -> Any:
    """Import the scratch folder's module `name`, written from `source` (base64)."""
    file = scratch / f"{name}.py"
    file.write_bytes(base64.b64decode(source))
    return importing.module_of(file, name)


def _do_bench(call: Callable[[], Any]) -> float:
    from triton.testing import do_bench

    return float(do_bench(call, warmup=_WARMUP_MS, rep=_REP_MS, return_mode="mean"))


def _event_mean(call: Callable[[], Any]) -> float:
    for _ in range(_WARMUP_CALLS):
        call()
        torch.cuda.synchronize()
    torch.cuda.empty_cache()
    elapsed = []
    for _ in range(_DISCARDED_CALLS + _CALLS):
        torch.cuda.synchronize()
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        torch.empty(_FLUSH_ELEMENTS, dtype=torch.int64, device="cuda").fill_(42)
        start.record()
        call()
        end.record()
        torch.cuda.synchronize()
        elapsed.append(start.elapsed_time(end))
    return float(f"{sum(elapsed[_DISCARDED_CALLS:]) / _CALLS:.3g}")


def _host_clock(call: Callable[[], Any]) -> float:
    """Return ms by the host's clock, where there is no GPU; this is not a measurement."""
    call()
    begin = time.perf_counter()
    for _ in range(_HOST_CALLS):
        call()
    return (time.perf_counter() - begin) / _HOST_CALLS * 1e3


def serve(request: Request, confined: dict[str, str]) -> None:
    """Answer requests until the judge closes the pipe. An exception of the solution becomes an answer."""
    channel = Channel.of_worker(request.fds)
    if request.device == "cpu":
        torch.set_num_threads(1)
        triton_interpreter.mend()
    bench = _Bench(torch.device(request.device), Path(request.scratch))
    with contextlib.suppress(ChannelClosed):
        while True:
            message = channel.receive()
            try:
                answer = getattr(bench, message.pop("op"))(**message)
            except Exception as error:
                answer = {"error": f"{type(error).__name__}: {error}"[:1000]}
            channel.send(answer)
