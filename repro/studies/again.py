"""One call of a solution on the inputs of a trial, in this process, for a debugger."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from repro import config
from repro.errors import UsageError
from repro.inputs import stress as stresses
from repro.inputs.stress import Stress
from repro.judge.correctness import input_cases
from repro.judge.correctness.reference import Reference
from repro.judge.worker import binding, triton_interpreter
from repro.problems import plan as plans
from repro.problems.catalogue import Problem
from repro.system import importing


def call(
    problem: Problem, file: Path, seed: int, stress: Stress | None, *, perturbed: bool, device: str
) -> tuple[Any, Any]:  # fmt: skip
    """Return the output of a solution and that of the fp64 reference; lists where there are several outputs.

    Raises UsageError if the file defines no entry point.
    """
    if device == "cpu":
        config.interpret()
        triton_interpreter.mend()
    where, plan = torch.device(device), plans.plan(problem)
    weights = native = plans.weights(problem, plan.module)
    reference = Reference(plan, native, where)
    if perturbed:
        weights = input_cases.perturbed_weights(plan, native, where)
        reference.load(weights)
    solution = _callable(file, plan, weights, where)
    with torch.no_grad():
        if stresses.edits(stress):
            solution(*plan.make(seed, where, stress=stresses.base(problem.stress)))
        got = solution(*plan.make(seed, where, stress=stress))
    expected = reference(plan.make(seed, where, stress=stress))
    return got, expected if len(expected) > 1 else expected[0]


def _callable(file: Path, plan: plans.Plan, weights: plans.Weights, device: torch.device) -> Any:
    module = importing.module_of(file)
    entry = next((name for name in ("ModelNew", "kernel_function") if hasattr(module, name)), None)
    if entry is None:
        raise UsageError(f"{file} defines no ModelNew and no kernel_function")
    owner = module.ModelNew if entry == "ModelNew" else plan.module.Model
    model = owner(*weights.init).to(plans.torch_dtype(plan.problem.dtype)).to(device).eval()
    model.load_state_dict(weights.state)
    if entry == "ModelNew":
        return model
    return binding.bind(module.kernel_function, model, len(plan.spec), weights.init)
