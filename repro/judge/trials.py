"""Trials: which inputs and which weights a solution must get right.

native            the published distribution and weights (two secret seeds)
stress            signed normal inputs with the problem's deviation, or the published ones with their sign turned
perturbed         published inputs; every parameter and running statistic away from its default, so that an output
                  that ignores a sub-operation or assumes scale 1 and bias 0 is wrong
perturbed_stress  both
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass

import torch
from torch import nn

from repro import philox
from repro.inputs import Plan, Weights, build, torch_dtype, weights
from repro.judge.precision import exact_float32
from repro.problems import Stress

PUBLIC_SEED = 20251121
PERTURBATION_SEED = 77
NORMS = (nn.LayerNorm, nn.GroupNorm, nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)
BATCH_NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)
# Rows of the batch that calibrate running statistics; enough for a per-layer scalar.
CALIBRATION_ROWS = 8


@dataclass(frozen=True)
class Trial:
    """One set of inputs and weights. kind: native, stress, perturbed or perturbed_stress."""

    kind: str
    seed: int
    stress: Stress | None
    perturbed: bool


def kinds(plan: Plan) -> dict[str, str]:
    """Trial kind -> why it is left out, or the empty string where it is run."""
    problem = plan.problem
    constant = not weights_vary(plan)
    dead = "" if problem.native_signal else "the published weights carry no signal"
    untouched = "the problem has no parameters" if constant else ""
    return {"native": dead, "stress": dead, "perturbed": untouched, "perturbed_stress": untouched}


def weights_vary(plan: Plan) -> bool:
    """Whether the problem has parameters or running statistics to perturb."""
    with torch.device("meta"):
        model = plan.module.Model(*plan.problem.init_inputs(plan.module))
    statistics = any(isinstance(m, BATCH_NORMS) for m in model.modules())
    return statistics or any(True for _ in model.parameters()) or bool(plan.problem.perturbed_init)


def secret_seed() -> int:
    """63 fresh random bits."""
    return secrets.randbits(63)


def make(plan: Plan, *, public: bool = False, count_native: int = 2) -> list[Trial]:
    """The trials of an evaluation under secret seeds, or those of a fixture under public ones."""
    trials = []
    for position, (kind, skipped) in enumerate(kinds(plan).items()):
        if skipped:
            continue
        for repeat in range(count_native if kind == "native" else 1):
            seed = PUBLIC_SEED + 16 * position + repeat if public else secret_seed()
            stress = plan.problem.stress if kind.endswith("stress") else None
            trials.append(Trial(kind, seed, stress, kind.startswith("perturbed")))
    return trials


def _draw(shape: torch.Size, kind: str, index: int, seed: int, std: float = 1.0) -> torch.Tensor:
    return philox.fill(torch.empty(shape, dtype=torch.float32), kind, seed, index, std=std)


def perturbed_weights(plan: Plan, device: torch.device, seed: int = PERTURBATION_SEED) -> Weights:
    """The published weights moved: norm weights U(.5, 1.5) (batch norms U(.75, 1.25)), biases +.2 (.1) normal, constant
    parameters times 1.37 or plus .2 normal where they are zero; running statistics calibrated on a few rows (one scalar
    mean square a layer, means of a tenth of that deviation).

    The scalar variance keeps a deep untrained net well conditioned: per-channel statistics amplify rounding.
    """
    base = weights(plan.problem, plan.module, perturbed=True)
    model = build(plan.problem, plan.module, base.init).float()
    owners = {id(p): m for m in model.modules() for p in m.parameters(recurse=False)}
    with torch.no_grad():
        for index, (name, parameter) in enumerate(model.named_parameters()):
            owner = owners[id(parameter)]
            if isinstance(owner, NORMS):
                narrow = isinstance(owner, BATCH_NORMS)
                if name.endswith("weight"):
                    low, width = (0.75, 0.5) if narrow else (0.5, 1.0)
                    parameter.copy_(low + width * _draw(parameter.shape, "uniform", index, seed))
                else:
                    parameter.copy_(_draw(parameter.shape, "normal", index, seed, 0.1 if narrow else 0.2))
            elif bool((parameter == parameter.flatten()[0]).all()):
                if float(parameter.flatten()[0]) == 0.0:
                    parameter.copy_(_draw(parameter.shape, "normal", index, seed, 0.2))
                else:
                    parameter.mul_(1.37)
        if any(isinstance(m, BATCH_NORMS) for m in model.modules()):
            _calibrate(model, plan, device, seed)
    dtype = torch_dtype(plan.problem.dtype)
    state = {
        name: (value.to(dtype) if value.is_floating_point() else value).cpu().clone()
        for name, value in model.state_dict().items()
    }
    return Weights(base.init, state)


def _calibrate(model: nn.Module, plan: Plan, device: torch.device, seed: int) -> None:
    """Sets every batch norm's running statistics from the inputs that reach it, layer after layer."""
    model.to(device)

    def before(module: nn.Module, args: tuple[torch.Tensor, ...]) -> None:
        assert isinstance(module, BATCH_NORMS) and module.running_var is not None and module.running_mean is not None
        variance = float(args[0].double().square().mean())
        module.running_var.fill_(variance)
        deviation = 0.1 * variance**0.5
        mean = _draw(module.running_mean.shape, "normal", 1000 + order[module], seed, deviation)
        module.running_mean.copy_(mean.to(module.running_mean.device))

    norms = [m for m in model.modules() if isinstance(m, BATCH_NORMS)]
    order = {module: position for position, module in enumerate(norms)}
    hooks = [module.register_forward_pre_hook(before) for module in norms]
    rows = slice(0, min(CALIBRATION_ROWS, plan.batch)) if plan.batch else None
    inputs = plan.chunk(rows, PUBLIC_SEED, device, None)
    with exact_float32():
        model(*[x.float() if isinstance(x, torch.Tensor) and x.is_floating_point() else x for x in inputs])
    for hook in hooks:
        hook.remove()
    model.cpu()
    if device.type == "cuda":
        torch.cuda.empty_cache()
