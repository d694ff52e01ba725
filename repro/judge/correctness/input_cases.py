"""Trials: the inputs and weights on which a solution must be right.

native            the published distribution and weights (two secret seeds)
stress            signed normal inputs with the problem's standard deviation, in runs of equal values where the problem
                  says so, or the published inputs negated
spiked            published inputs with one element in 8191 far outside their range, of either sign
perturbed         published inputs (two secret seeds); every parameter and running statistic away from its default, so
                  that an output that ignores a sub-operation or assumes scale 1 and bias 0 is wrong
perturbed_stress  stress inputs with perturbed weights
perturbed_spiked  spiked inputs with perturbed weights, where the published weights carry no signal

Probes look where a caller may go. A fixture says which of them a problem has, and at which strength: the largest at
which the fp64 reference stays finite and an honest kernel's error bounded. A class whose honest kernel has no such
bound has no limit there. A fixture also leaves out stress and spikes at which torch's own Model overflows.

tiny, large       published inputs, every floating-point tensor multiplied by 1e-4 to 1e-2, or by 30 to 1e4, with
                  regions of both signs and away from zero; two strengths where inputs are small
mixed             the same by turns: large, small, large
heavy             elements with heavy tails, so that any part of a mean, norm or loss tells little of the whole
offset            inputs far from zero for their deviation: what subtracts large numbers, or counts padding, is wrong
scaled            perturbed weights of which norms or matrices are up to 16 times as large, where arguments of
                  elementwise functions lie in their tails in no other trial
unit              1 or -1, where elements of the output are negligible in every other trial, as of a product that
                  underflows
curved            signed inputs at a deviation at which the arguments of elementwise functions lie where these curve
banded            inputs of which the channels, or the rows or columns of a sample, lie far apart
edited            inputs that equal those of the call before except a few elements

Three more kinds decide nothing. `nonfinite` has one element that is NaN, and `needs_contiguous` published inputs with
the last two dimensions swapped in memory; they are findings of their own. `warmup` uses the published weights where no
trial has them, so that a solution's weights change.
"""

from __future__ import annotations

import functools
import secrets
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from repro.errors import ProblemError
from repro.inputs import philox
from repro.inputs import stress as stresses
from repro.inputs.stress import Stress
from repro.judge.correctness.precision import exact_float32
from repro.problems import meta
from repro.problems.plan import Plan, Weights, build, torch_dtype
from repro.records.fixture import PUBLISHED, Fixture

PUBLIC_SEED = 20251121
_PERTURBATION_SEED = 77
_NORMS = (nn.LayerNorm, nn.GroupNorm, nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)
_BATCH_NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)
_GATED, _KEPT = (nn.LSTM, nn.GRU, nn.LSTMCell, nn.GRUCell), 0.5
# The least size of a constant parameter that moved: one of 1e-6, as of a layer scale, hides all that it multiplies.
_SEEN = 0.2
# What other parameters are multiplied by: a scale that is kept from the first weights shows.
_SCALED = 0.9375
# From a parameter's index to that of the draw of its signs.
_SIGNS = 4000
# The same for the first buffer.
_BUFFERS = 8000
# Rows of the batch that calibrate running statistics: enough for one scalar a layer.
_CALIBRATION_ROWS = 8
# Probe -> its stresses, the strongest first; those of `curved` and `scaled` are measured.
PROBES: dict[str, tuple[str, ...]] = {
    "tiny": ("signed 0.0001 0.01 0.001", "times 0.0001 0.01 0.001", "times 0.01"),
    "large": ("signed 10000 300 30", "signed 100 30 10", "times 10000 300 30", "times 100 30", "times 10"),
    "mixed": ("mixed 10000", "mixed 100", "mixed 10", "levels 10000", "levels 100", "levels 10"),
    "heavy": ("heavy 24", "heavy 14", "heavy 8", "heavy 4", "tailed 24", "tailed 8"),
    "offset": ("shift -36000 1000 -1000", "shift 1000 -1000", "shift 1000", "shift 100 -100", "shift 100", "near 1000",
               "shift 10"),
    "curved": (),
    "edited": ("edit 16", "edit 256", "edit 4096"),
    "scaled": (),
    "unit": ("unit 1",),
    "banded": ("bands 3000 4", "bands 300 4", "bands 30 4", "bands 4"),
}  # fmt: skip
# Probes that are measured only where a survey of the others shows that something was not seen.
SURVEYED = ("scaled", "unit")
# Draws where inputs are small. A cheat that looks at one element in a hundred sees one of the two edited ones in one
# draw of fifty; a rounded mean of few elements changes with them too. One heavy draw in thirty leaves a loss without
# its last column within bf16.
OFTEN, SMALL_BYTES = {"edited": 4, "heavy": 3, "banded": 3}, 16 << 20
# A multiple of every number of dimensions that a tensor of an input has beside the batch.
_DIMENSIONS = 12
NONFINITE, STRIDED = "nonfinite", "needs_contiguous"


@dataclass(frozen=True)
class Trial:
    """One set of inputs and weights.

    judged: whether the output is compared; if not, it only has to pass the gates.
    """

    kind: str
    seed: int
    stress: Stress | None
    perturbed: bool
    judged: bool = True


def kinds(plan: Plan, fixture: Fixture | None = None) -> dict[str, str]:
    """Return deciding trial kind -> why it is left out, also by a fixture, or the empty string if it is run."""
    problem = plan.problem
    constant = not _weights_vary(plan)
    dead = "" if problem.native_signal else "the published weights carry no signal"
    untouched = "the problem has no parameters" if constant else ""
    spiked = untouched or ("" if dead else "spiked inputs meet the published weights")
    left_out = {
        "native": dead,
        "stress": dead,
        "spiked": dead,
        "perturbed": untouched,
        "perturbed_stress": untouched,
        "perturbed_spiked": spiked,
    }
    measured = fixture.trials_left_out if fixture else {}
    return {kind: why or measured.get(kind, "") for kind, why in left_out.items()}


def _weights_vary(plan: Plan) -> bool:
    """Return whether the problem has parameters or running statistics to perturb."""
    model = meta.model(plan, plan.problem.init_inputs(plan.module))
    statistics = any(isinstance(m, _BATCH_NORMS) for m in model.modules())
    weights = [*model.parameters(), *filter(torch.is_floating_point, model.buffers())]
    return statistics or bool(weights or plan.problem.perturbed_init)


def secret_seed() -> int:
    """Return 63 fresh random bits."""
    return secrets.randbits(63)


def others(plan: Plan, fixture: Fixture, timed: str) -> list[str]:
    """Return the deciding trials with the weights of the trial that is timed, without that one."""
    perturbed = timed.startswith("perturbed")
    run = [kind for kind, why in kinds(plan, fixture).items() if not why and kind != timed]
    return [kind for kind in run if kind.startswith("perturbed") == perturbed]


def stress_of(plan: Plan, kind: str) -> Stress | None:
    """Return how the inputs of a trial of this kind differ from the published ones."""
    if kind.endswith("spiked"):
        return "spike"
    return plan.problem.stress if kind.endswith("stress") else None


def floating(plan: Plan) -> list[int]:
    """Return the indices of the floating-point tensor inputs."""
    return [i for i in plan.tensors if plan.spec[i][1].is_floating_point]


def make(plan: Plan, *, public: bool = False, draws: int = 2, fixture: Fixture | None = None) -> list[Trial]:
    """Return the trials of an evaluation (secret seeds), or those of a fixture (public seeds, no warm-up).

    draws: with published inputs, of each kind of weights. fixture: its probes are added, and what it leaves out is left
    out. A warm-up comes first.
    """
    left_out = kinds(plan, fixture)
    dead = bool(left_out["native"])
    trials = []

    def seed(position: int) -> int:
        return PUBLIC_SEED + 16 * position if public else secret_seed()

    if dead and not public:
        trials.append(Trial("warmup", secret_seed(), None, perturbed=False, judged=False))
    for position, (kind, why) in enumerate(left_out.items()):
        for repeat in range(draws if kind in ("native", "perturbed") else 1) if not why else ():
            trials.append(Trial(kind, seed(position) + repeat, stress_of(plan, kind), kind.startswith("perturbed")))
    if fixture:
        trials += _probes(plan, fixture, dead)
    return trials


def _probes(plan: Plan, fixture: Fixture, perturbed: bool) -> list[Trial]:
    """Return the trials of a fixture's probes, that of inputs with a NaN and that of inputs which are not contiguous.
    Edits touch every tensor in turn."""
    trials = []
    small = sum(map(plan.nbytes, plan.tensors)) <= SMALL_BYTES
    for kind in (kind for kind in fixture.trials if kind in PROBES):
        turns = list(range(stresses.forms(fixture.trials[kind].stress, plan.tensors)))
        if kind not in OFTEN:  # the strongest, and another where inputs are small or it has the other sign
            other = turns[1:] and (small or kind in ("offset", "banded"))
            turns = turns[:1] + ([secrets.choice(turns[1:])] if other else [])
        often = [turn for turn in turns for _ in range(OFTEN.get(kind, 1) if small else 1)]
        for draw, turn in enumerate(often):  # of bands each draw has another dimension
            seed = secret_seed() // _DIMENSIONS * _DIMENSIONS + draw
            stress = stresses.drawn(fixture.trials[kind].stress, turn, plan.tensors)
            trials.append(Trial(kind, seed, stress, perturbed or kind == "scaled"))
    meta.run(plan, plan.problem.init_inputs(plan.module), tally := meta.Tally())
    if (some := floating(plan)) and not tally.casts:
        trials.append(Trial(NONFINITE, secret_seed(), f"special {secrets.choice(some)}", perturbed, judged=False))
    if plan.turnable and PUBLISHED[perturbed] in fixture.trials:
        with suppress(ProblemError):  # of a Model that takes contiguous inputs alone
            meta.run(plan, plan.problem.init_inputs(plan.module), turned=plan.turnable)
            trials.append(Trial(STRIDED, secret_seed(), None, perturbed, judged=False))
    return trials


def _draw(shape: torch.Size, kind: str, index: int, std: float = 1.0) -> torch.Tensor:
    return philox.fill(torch.empty(shape, dtype=torch.float32), kind, _PERTURBATION_SEED, index, std=std)


def perturbed_weights(plan: Plan, native: Weights, device: torch.device) -> Weights:
    """Return the published weights, perturbed. They are made once.

    Norm weights are U(.5, 1.5), those of batch norms U(.75, 1.25), half of them negative; norm biases are normal with
    deviation .2, of batch norms .1. Constant parameters are multiplied by U(1, 1.74), as if none were under .2, or
    become normal with deviation .2 if they are zero; so do constant buffers, as of frozen statistics, and whole numbers
    are one less, as zero points. Vectors get normal noise of deviation .2, and those of the gates of LSTM and GRU that
    keep the state are raised, so that it lives long. All other parameters are reversed, or get noise of a fifth of
    their deviation where they are symmetric or all their rows alike, and become a sixteenth smaller. Parameters that
    are constant, or nowhere negative, are negative too, one in two elements, where the output stays finite.

    Running statistics are calibrated on a few rows: a mean square a layer times 0.5 to 2 for each channel, and means of
    a tenth of that deviation. One mean square keeps a deep untrained net well conditioned, since what each channel has
    itself amplifies rounding.
    """
    if native.perturbed is None:
        native.perturbed = _perturbed(plan, native, device, signed=True) or _perturbed(plan, native, device)
    assert native.perturbed is not None
    return native.perturbed


def scaled_weights(plan: Plan, native: Weights, device: torch.device, stress: str) -> Weights:
    """Return the perturbed weights with those that a stress names times its number."""
    if native.scaled is None or native.scaled[0] != stress:
        moved = perturbed_weights(plan, native, device)
        (_, number), names = stresses.parts(stress), stress.split()[2:]
        state = {name: value * number if name in names else value for name, value in moved.state.items()}
        native.scaled = stress, Weights(moved.init, state, name="scaled")
    return native.scaled[1]


def _perturbed(plan: Plan, native: Weights, device: torch.device, *, signed: bool = False) -> Weights | None:
    """Return perturbed weights. signed: constant parameters and norms are negative too; None where this gives NaN."""
    init = plan.problem.init_inputs(plan.module, perturbed=True)
    model = build(plan.problem, plan.module, init, drawn=init != native.init)
    if init == native.init:
        model.load_state_dict(native.state)
    model = model.float()
    owners = {id(p): m for m in model.modules() for p in m.parameters(recurse=False)}
    with torch.no_grad():
        turned = [
            _perturb(parameter, owners[id(parameter)], name, index, signed)
            for index, (name, parameter) in enumerate(model.named_parameters())
        ]
        for index, (name, buffer) in enumerate(_frozen(model), _BUFFERS):
            if buffer.is_floating_point():
                _perturb(buffer, model, name, index, signed=False)
            else:
                buffer.sub_(1)
        if any(isinstance(m, _BATCH_NORMS) for m in model.modules()):
            _calibrate(model, plan, device)
        if any(turned) and any(bool(x.isnan().any()) for x in meta.tensors(_run(model, plan, device))):
            return None
    dtype = torch_dtype(plan.problem.dtype)
    state = {
        name: (value.to(dtype) if value.is_floating_point() else value).cpu()
        for name, value in model.state_dict().items()
    }
    return Weights(init, state, name="perturbed")


def _frozen(model: nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    """Yield the constant buffers that a checkpoint replaces and no batch norm has: masks and tables stay."""
    statistics = {id(x) for m in model.modules() if isinstance(m, _BATCH_NORMS) for x in m.buffers()}
    kept = model.state_dict(keep_vars=True)
    for name, buffer in model.named_buffers():
        own = name in kept and id(buffer) not in statistics and buffer.numel()
        if own and (buffer == buffer.flatten()[0]).all() and _moves(buffer):
            yield name, buffer


def _moves(buffer: torch.Tensor) -> bool:
    """Return whether a constant buffer may change: whole numbers may be masks, indices if 0, and sizes if single."""
    several = buffer.dtype != torch.bool and buffer.numel() > 1 and buffer.flatten()[0] != 0
    return buffer.is_floating_point() or bool(several)


def _perturb(parameter: torch.Tensor, owner: nn.Module, name: str, index: int, signed: bool) -> bool:
    """Perturb one parameter in place, and return whether some of its signs turned; index: of its draws."""
    draw = functools.partial(_draw, parameter.shape, index=index)
    norm, narrow = isinstance(owner, _NORMS), isinstance(owner, _BATCH_NORMS)
    constant, value = bool((parameter == parameter.flatten()[0]).all()), float(parameter.flatten()[0])
    if norm and name.endswith("weight"):
        low, width = (0.75, 0.5) if narrow else (0.5, 1.0)
        parameter.copy_(low + width * draw("uniform"))
    elif constant and value and not norm:
        parameter.mul_((1.0 + 0.74 * draw("uniform")) * max(1.0, _SEEN / abs(value)))
    elif norm or constant:
        parameter.copy_(draw("normal", std=0.1 if narrow else 0.2))
        return False
    elif parameter.dim() == 1:
        parameter.add_(draw("normal", std=0.2))
        if isinstance(owner, _GATED):
            parameter[owner.hidden_size : 2 * owner.hidden_size] += _KEPT
        return False
    else:
        parameter.copy_(_turned(parameter, draw)).mul_(_SCALED)
        signed = signed and bool((parameter >= 0).all())
    if signed:
        negative = _draw(parameter.shape, "uniform", _SIGNS + index) < 0.5
        negative.view(-1)[:1] = True  # also of a single element: the published one is positive
        parameter.copy_(torch.where(negative, -parameter, parameter))
    return signed


def _turned(parameter: torch.Tensor, draw: Callable[..., torch.Tensor]) -> torch.Tensor:
    """Return a parameter reversed; with noise if that could be taken for the same."""
    turned, corner = parameter.flip(tuple(range(parameter.dim()))), parameter[:64, :64]
    rows = (corner.narrow(dim, 0, 1) for dim, size in enumerate(corner.shape) if size > 1)
    symmetric = corner.dim() == 2 and torch.equal(corner, corner.mT)
    if symmetric or torch.equal(parameter, turned) or any((corner == row).all() for row in rows):
        return parameter + draw("normal", std=0.2 * float(parameter.std()))
    return turned


def _calibrate(model: nn.Module, plan: Plan, device: torch.device) -> None:
    """Set every batch norm's running statistics from the inputs that reach it, layer after layer."""

    def before(module: nn.Module, args: tuple[torch.Tensor, ...]) -> None:
        assert isinstance(module, _BATCH_NORMS) and module.running_var is not None and module.running_mean is not None
        variance = float(args[0].double().square().mean())
        spread = 4.0 ** (_draw(module.running_var.shape, "uniform", 2000 + order[module]) - 0.5)
        module.running_var.copy_(variance * spread)
        deviation = 0.1 * variance**0.5
        mean = _draw(module.running_mean.shape, "normal", 1000 + order[module], deviation)
        module.running_mean.copy_(mean.to(module.running_mean.device))

    norms = [m for m in model.modules() if isinstance(m, _BATCH_NORMS) and m.running_var is not None]
    order = {module: position for position, module in enumerate(norms)}
    hooks = [module.register_forward_pre_hook(before) for module in norms]
    _run(model, plan, device)
    for hook in hooks:
        hook.remove()


def _run(model: nn.Module, plan: Plan, device: torch.device) -> Any:
    """Return what a float32 model, which comes back to the CPU, returns for a few rows of published inputs."""
    rows = slice(0, min(_CALIBRATION_ROWS, plan.batch)) if plan.batch else None
    inputs = plan.chunk(rows, PUBLIC_SEED, device, None)
    with exact_float32():
        value = model.to(device)(*[meta.cast(x, torch.float32) for x in inputs])
    model.cpu()
    if device.type == "cuda":
        torch.cuda.empty_cache()
    return value
