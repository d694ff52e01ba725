"""The published script's protocol, run beside ours to show what the protocol changes.

It is the mean of `triton.testing.do_bench(warmup=500, rep=100)`, both in milliseconds. Eager, torch.compile, input and
optimised kernel run in this order, in one process, on one unseeded draw of inputs that all share and may change.
Nothing is verified. Grad mode is torch's default, enabled; whether the published script turns it off is unknown.

It runs after a problem is judged, in a confined process of its own that is started as workers are. Its numbers are that
process's own claim and decide nothing.
"""

from __future__ import annotations

import base64
import functools
import importlib.util
import os
import sys
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from repro.errors import SolutionRejected, printable
from repro.judge.processes import pool
from repro.judge.processes.wire import Channel, ChannelClosed, ChannelGarbage, ChannelTimeout, Json
from repro.judge.timing import sampling
from repro.judge.worker import binding, triton_interpreter
from repro.problems.catalogue import Message, Problem
from repro.problems.plan import torch_dtype
from repro.records.result import Parity

WARMUP_MS, REP_MS = 500, 100
# Calls that are timed where there is no GPU.
HOST_CALLS = 3
BASELINES = ("eager", "compile")
# Starting, drawing inputs and compiling take seconds; do_bench takes 0.6 s and at least six calls.
TIMEOUT_S = 90.0
# Verdicts of kernels that are run here: a kernel that hung, died or broke a rule is not run again.
RUNNABLE = ("correct", "incorrect")
PROTOCOL = {
    "timer": "triton.testing.do_bench",
    "warmup_ms": WARMUP_MS,
    "rep_ms": REP_MS,
    "statistic": "mean",
    "order": "eager, compile, input, optimised, in one process",
    "inputs": "one unseeded draw, shared, neither cloned nor compared",
    "verified": False,
}


def measure(
    problem: Problem,
    solutions: list[tuple[str, Path, str]],
    verdicts: dict[str, str],
    device: str,
    progress: Callable[[str], None],
    timeout_s: float = TIMEOUT_S,
) -> Parity:
    """Time eager, torch.compile and the solutions (name, file, entry; in this order) of one problem.

    A fault becomes a reason; no error is raised. timeout_s bounds one variant.
    """
    begin = time.monotonic()
    times_ms, reasons, grad = dict[str, float | None](), dict[str, str](), None
    variants: list[tuple[str, Path | None]] = [(name, None) for name in BASELINES]
    variants += [(name, file) for name, file, _ in solutions]
    child: Child | None = None
    why = ""
    if device == "cuda":
        torch.cuda.empty_cache()  # cached by the judge's allocator
    try:
        child = Child(device)
        answer = child.ask({"op": "prepare", "problem": asdict(problem.message())}, timeout_s)
        told = answer.get("grad")
        grad = told if isinstance(told, bool) else None
        why = str(answer.get("error", ""))
        for name, file in variants:
            progress(f"{problem.key}: published protocol: {name}")
            times_ms[name] = None
            verdict = verdicts.get(name, "")
            if why:
                reasons[name] = why
            elif file is not None and verdict not in RUNNABLE:
                reasons[name] = f"not run: the verdict is {verdict or 'missing'}"
            else:
                source = base64.b64encode(file.read_bytes()).decode() if file is not None else None
                try:
                    answer = child.ask({"op": "time", "variant": name, "source": source}, timeout_s)
                except Ended as error:
                    why = f"the protocol's process ended with {name}: {error}"
                    answer = {"error": str(error)}
                times_ms[name], reason = _time(answer)
                reasons |= {name: reason} if reason is not None else {}
    except Ended as error:
        reasons |= {name: str(error) for name, _ in variants}
        times_ms |= {name: None for name, _ in variants}
    finally:
        if child is not None:
            child.close()
    measured, wall_s = device == "cuda", round(time.monotonic() - begin, 3)
    return Parity(times_ms=times_ms, reasons=reasons, protocol=PROTOCOL, grad=grad, measurement=measured, wall_s=wall_s)


def _time(answer: Json) -> tuple[float | None, str | None]:
    """Return the time that a process answered, ms, or why there is none."""
    if "error" in answer:
        return None, str(answer["error"])[:400]
    try:
        return sampling.reported(answer.get("ms")), None
    except SolutionRejected as error:
        return None, error.detail[:400]


class Ended(Exception):
    """The process ended, or was ended because it took too long or broke the protocol of messages."""


class Child(pool.Process):
    """The judge's client of the process, which is started, confined and ended as a worker is."""

    def __init__(self, device: str, serves: str = "parity") -> None:
        super().__init__("parity", device, kind=serves)

    def ask(self, message: Json, timeout_s: float) -> Json:
        """Send one request and return its answer. Raises Ended."""
        try:
            self.channel.send(message, timeout_s)
            return self.channel.receive(timeout_s)
        except ChannelTimeout:
            self.launcher.kill(self.started.pid)
            raise Ended(f"no answer within {timeout_s:.0f} s") from None
        except ChannelClosed:
            size = os.fstat(self.log).st_size
            tail = os.pread(self.log, 2000, max(0, size - 2000)).decode(errors="replace").strip().splitlines()
            raise Ended(printable(f"it died{': ' + tail[-1] if tail else ''}")) from None
        except ChannelGarbage as error:
            self.launcher.kill(self.started.pid)
            raise Ended(f"it did not answer in JSON ({error})") from None


# -- the other process ------------------------------------------------------------------------------------------------


class Bench:
    """One problem's model and inputs, and the timing of calls on them."""

    def __init__(self, device: torch.device, scratch: Path) -> None:
        self.device, self.scratch = device, scratch
        self.timer = _do_bench() if device.type == "cuda" else host_clock
        self.model: torch.nn.Module | None = None
        self.init: list[Any] = []
        self.inputs: list[Any] = []

    def prepare(self, problem: dict[str, Any]) -> Json:
        """Draw the inputs and build the model, both in the problem's dtype."""
        loaded = Message(**problem).problem(self.scratch / "problem.py")
        module, dtype = loaded.module(), torch_dtype(loaded.dtype)
        self.init = loaded.init_inputs(module)
        self.model = module.Model(*self.init).to(dtype).to(self.device)
        with self.device:
            drawn = list(module.get_inputs())
        while drawn:  # one at a time: in float32 the largest inputs take twice their memory
            value = drawn.pop(0)
            if isinstance(value, torch.Tensor):
                value = value.to(device=self.device, dtype=dtype if value.is_floating_point() else value.dtype)
            self.inputs.append(value)
        return {"grad": torch.is_grad_enabled()}

    def time(self, variant: str, source: str | None) -> Json:
        """Return the mean milliseconds of one variant. source (base64): a file that defines kernel_function."""
        assert self.model is not None
        call: Callable[..., Any] = self.model
        if variant == "compile":
            if self.device.type != "cuda":
                return {"error": "torch.compile is not run on the CPU"}
            call = torch.compile(self.model)
        elif source is not None:
            kernel = imported(variant, source, self.scratch).kernel_function
            call = binding.bind(kernel, self.model, len(self.inputs), self.init)
        return {"ms": self.timer(functools.partial(call, *self.inputs))}


def imported(name: str, source: str | None, scratch: Path) -> Any:
    """Import the scratch folder's module `name`, written from `source` (base64) if given."""
    file = scratch / f"{name}.py"
    if source is not None:
        file.write_bytes(base64.b64decode(source))
    spec = importlib.util.spec_from_file_location(name, file)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def _do_bench() -> Callable[[Callable[[], Any]], float]:
    from triton.testing import do_bench

    return lambda call: float(do_bench(call, warmup=WARMUP_MS, rep=REP_MS, return_mode="mean"))


def host_clock(call: Callable[[], Any]) -> float:
    """Return ms by the host's clock, where there is no GPU for do_bench; this is not a measurement."""
    call()
    begin = time.perf_counter()
    for _ in range(HOST_CALLS):
        call()
    return (time.perf_counter() - begin) / HOST_CALLS * 1e3


def serve(read_fd: int, write_fd: int, device: str, scratch: Path) -> None:
    """Answer the judge's requests."""
    bench = Bench(torch.device(device), scratch)
    answers(read_fd, write_fd, device, {"prepare": bench.prepare, "time": bench.time})


def answers(read_fd: int, write_fd: int, device: str, verbs: dict[str, Callable[..., Json]]) -> None:
    """Answer requests until the judge closes the pipe. An exception of the solution becomes an answer."""
    channel = Channel(read_fd, write_fd, from_judge=True)
    for fd in (read_fd, write_fd):
        os.set_inheritable(fd, False)
    if device == "cpu":
        torch.set_num_threads(1)
        triton_interpreter.mend()
    while True:
        try:
            message = channel.receive()
        except ChannelClosed:
            return
        verb = verbs[message.pop("op")]
        try:
            answer = verb(**message)
        except Exception as error:
            answer = {"error": f"{type(error).__name__}: {error}"[:1000]}
        channel.send(answer)
