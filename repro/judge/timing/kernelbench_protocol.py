"""KernelBench's own evaluation, run beside the judge's verdict to show what it says of the same solution.

It follows KernelBench's `eval.py` at the commit in artifacts/sources.toml: torch's generator under fixed seeds, models
in training mode, every input cast to the problem's dtype, TRIALS draws of inputs, each compared by `allclose` with one
tolerance. A solution that passes all of them is timed: the mean of CALLS calls between CUDA events on one draw, each
behind a flush of the L2 cache, rounded to three digits. Then the problem's Model is timed in the same way.

Each solution has a confined process of its own, started as workers are. It could forge every number, so that none of
them decides anything.
"""

from __future__ import annotations

import base64
import functools
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from repro.errors import SolutionRejected
from repro.judge.processes.wire import Json
from repro.judge.timing import sampling
from repro.judge.timing.published_protocol import Child, Ended, answers, host_clock, imported
from repro.problems.catalogue import Message, Problem
from repro.problems.plan import torch_dtype
from repro.records.verdict import KernelBenchVerdict

SEED, TRIALS = 42, 5
# Absolute and relative, by the problem's dtype.
TOLERANCES = {"float32": 1e-4, "float16": 1e-2, "bfloat16": 1e-2}
WARMUP_CALLS, DISCARDED_CALLS, CALLS = 3, 1, 100
FLUSH_ELEMENTS = 32 * 1024 * 1024  # of 8 bytes
# Inputs of full size are drawn on the CPU, six times.
TIMEOUT_S = 180.0
ENTRY = "ModelNew"


def measure(
    problem: Problem,
    solutions: list[tuple[str, Path, str]],
    verdicts: dict[str, str],
    device: str,
    progress: Callable[[str], None],
    timeout_s: float = TIMEOUT_S,
) -> dict[str, KernelBenchVerdict]:
    """Evaluate solutions (name, file, entry) and return verdicts by name.

    timeout_s bounds one solution. A fault becomes a reason; no error is raised.
    """
    if device == "cuda":
        torch.cuda.empty_cache()  # cached by the judge's allocator
    found = {}
    for name, file, entry in solutions:
        progress(f"{problem.key}: KernelBench's protocol: {name}")
        if entry != ENTRY:
            answer: Json = {"why": f"not run: KernelBench takes {ENTRY} alone"}
        elif verdicts.get(name) == "timeout":
            answer = {"why": "not run: the verdict is timeout"}
        else:
            answer = _asked(problem, file, device, timeout_s)
        found[name] = _read(answer, TOLERANCES[problem.dtype], measurement=device == "cuda")
    return found


def _asked(problem: Problem, file: Path, device: str, timeout_s: float) -> Json:
    child = None
    try:
        child = Child(device, "kernelbench")
        source = base64.b64encode(file.read_bytes()).decode()
        return child.ask({"op": "evaluate", "problem": asdict(problem.message()), "source": source}, timeout_s)
    except Ended as error:
        return {"passed": 0, "why": str(error)}
    finally:
        if child is not None:
            child.close()


def _read(answer: Json, tolerance: float, *, measurement: bool) -> KernelBenchVerdict:
    """Return the facts of an answer. Whatever else a solution's process wrote is left out."""
    told, why = answer.get("passed"), str(answer.get("why", answer.get("error", "")))[:400]
    if "passed" not in answer and "error" in answer:
        told = 0
    passed = told if isinstance(told, int) and not isinstance(told, bool) else None
    correct = passed == TRIALS if passed is not None else None
    ms = eager_ms = speedup = None
    if correct:
        try:
            ms, eager_ms = (sampling.reported(answer.get(name)) for name in ("ms", "eager_ms"))
            speedup = eager_ms / ms
        except SolutionRejected as error:
            why = error.detail
    return KernelBenchVerdict(
        correct=correct, passed=passed, trials=TRIALS, tolerance=tolerance, ms=ms, eager_ms=eager_ms, speedup=speedup,
        measurement=measurement, why=why,
    )  # fmt: skip


# -- the other process ------------------------------------------------------------------------------------------------


class Evaluation:
    """One problem and one solution under KernelBench's rules."""

    def __init__(self, device: torch.device, scratch: Path) -> None:
        self.device, self.scratch = device, scratch

    def evaluate(self, problem: dict[str, Any], source: str) -> Json:
        """Return how many trials passed, why one did not, and the times in ms of what passed all."""
        loaded = Message(**problem).problem(self.scratch / "problem.py")
        module, self.dtype = loaded.module(), torch_dtype(loaded.dtype)
        _seed(SEED)
        init = [self._moved(x) for x in loaded.init_inputs(module)]
        with torch.no_grad():
            models = []
            for make in (module.Model, getattr(imported("solution", source, self.scratch), ENTRY)):
                _seed(SEED)
                models.append(make(*init))
            original, new = (model.to(device=self.device, dtype=self.dtype) for model in models)
            passed, why = self._compared(original, new, module.get_inputs, TOLERANCES[loaded.dtype])
        if passed < TRIALS:
            return {"passed": passed, "why": why}
        _seed(SEED)
        inputs = [self._moved(x) for x in module.get_inputs()]
        timed = {"ms": new, "eager_ms": original}
        return {"passed": passed} | {name: self._mean_ms(functools.partial(f, *inputs)) for name, f in timed.items()}

    def _moved(self, value: Any) -> Any:
        return value.to(dtype=self.dtype).to(device=self.device) if isinstance(value, torch.Tensor) else value

    def _compared(self, original: Any, new: Any, draw: Callable[[], Any], tolerance: float) -> tuple[int, str]:
        passed, why = 0, ""
        torch.manual_seed(SEED)
        for seed in [int(torch.randint(0, 2**32 - 1, (1,)).item()) for _ in range(TRIALS)]:
            _seed(seed)
            inputs = [self._moved(x) for x in draw()]
            _seed(seed)
            expected = original(*inputs)
            output = new(*inputs)
            if expected.shape != output.shape:
                return 0, f"the shape is {tuple(output.shape)} instead of {tuple(expected.shape)}"
            if torch.allclose(expected, output, atol=tolerance, rtol=tolerance):
                passed += 1
            else:
                why = f"largest difference {float((expected - output).abs().max()):.3g}"
        return passed, why

    def _mean_ms(self, call: Callable[[], Any]) -> float:
        if self.device.type != "cuda":
            return host_clock(call)
        for _ in range(WARMUP_CALLS):
            call()
            torch.cuda.synchronize()
        torch.cuda.empty_cache()
        elapsed = []
        for _ in range(DISCARDED_CALLS + CALLS):
            torch.cuda.synchronize()
            start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            torch.empty(FLUSH_ELEMENTS, dtype=torch.int64, device=self.device).fill_(42)
            start.record()
            call()
            end.record()
            torch.cuda.synchronize()
            elapsed.append(start.elapsed_time(end))
        kept = elapsed[DISCARDED_CALLS:]
        return float(f"{sum(kept) / len(kept):.3g}")


def _seed(seed: int) -> None:
    torch.manual_seed(seed)  # of the GPU's generator too


def serve(read_fd: int, write_fd: int, device: str, scratch: Path) -> None:
    """Answer the judge's request and wait for the end of its pipe."""
    evaluation = Evaluation(torch.device(device), scratch)
    answers(read_fd, write_fd, device, {"evaluate": evaluation.evaluate})
