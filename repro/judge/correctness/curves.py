"""What trials reach: where elementwise functions curve, their tails, and every element of the output.

An approximation of a function differs from it most where it bends, or beyond the range that it was fitted to. Inputs
that are all small, or all large, never reach the bend behind a linear layer, and none reach the tails behind a norm.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch

from repro.inputs import stress as input_stress
from repro.inputs.stress import Stress
from repro.judge.correctness.reference import Reference
from repro.problems.meta import Outputs
from repro.problems.plan import Functions, Plan, Weights

# Functions with curves and tails, by the names that torch gives them as functions and methods.
_FUNCTIONS = frozenset(
    "gelu silu sigmoid tanh softplus elu selu celu mish hardswish hardsigmoid hardtanh logsigmoid softsign tanhshrink "
    "softshrink hardshrink relu6 erf exp expm1 logaddexp".split()
)
# Arguments of this size are where such functions curve.
FROM, TO = 0.5, 3.0
# Multiples of the problem's signed deviation that are tried, and the gain in arguments there that is worth a probe.
FACTORS, GAIN = tuple(2.0**k for k in range(-5, 6)), 1.25
ROWS, SEED = 8, 20251121


# Arguments of this size are in the tails of all such functions.
TAIL = 12.0
# How many times as large weights may be to reach there, and the gain in arguments by the first that tells which do.
SCALES, RAISED = (16, 8, 4), 4.0
# An element of an output under this share of its root mean square is negligible: zero in its place is within tf32.
NEGLIGIBLE = 1e-3


class _Arguments(Functions):
    """Notes the share of the arguments of every elementwise function that lies where these curve, and the largest."""

    def __init__(self) -> None:
        super().__init__()
        self.shares: list[float] = []
        self.largest: list[tuple[str, float]] = []

    def call(self, func: Any, name: str, args: Any, kwargs: Any) -> Any:
        name = name.rstrip("_")
        if name in _FUNCTIONS and args and isinstance(args[0], torch.Tensor):
            size = args[0].abs()
            self.largest.append((name, float(size.nan_to_num(0.0, 0.0, 0.0).max()) if size.numel() else 0.0))
            self.shares.append(float(((size >= FROM) & (size <= TO)).double().mean()) if size.numel() else 0.0)
        return func(*args, **kwargs)


def _run(plan: Plan, reference: Reference, stress: Stress | None) -> tuple[Outputs, _Arguments]:
    """Return the reference's outputs of the first rows, and the arguments of its elementwise functions."""
    rows = slice(0, min(ROWS, plan.batch)) if plan.batch else None
    with _Arguments() as noted:
        return reference(plan.chunk(rows, SEED, reference.device, stress)), noted


def stresses(plan: Plan, reference: Reference, state: Weights) -> tuple[str, ...]:
    """Return the stress at which most arguments of the problem's elementwise functions lie where these curve.

    Return none if there are no such functions, or if the signed inputs of the other trials serve as well.
    """
    reference.load(state)
    shares = {}
    for factor in FACTORS:
        _, noted = _run(plan, reference, f"normal {factor:g}")
        if not noted.shares:
            return ()
        shares[factor] = sum(noted.shares) / len(noted.shares)
    best = max(shares, key=lambda factor: shares[factor])
    usual = shares[1.0] if not isinstance(plan.problem.stress, str) else 0.0
    return (f"normal {best:g}",) if shares[best] > GAIN * usual else ()


@dataclass
class Survey:
    """What the first rows of several trials reach.

    largest: of the arguments of every call of an elementwise function, in the order of the Model. negligible: whether
    an element of the outputs is so in all trials; visible: whether it is not zero in one.
    """

    plan: Plan
    reference: Reference
    largest: list[tuple[str, float]] = field(default_factory=list)
    negligible: list[torch.Tensor] = field(default_factory=list)
    visible: list[torch.Tensor] = field(default_factory=list)

    def look(self, state: Weights, stress: Stress | None) -> None:
        """Run the reference with a trial's weights on its inputs."""
        self.reference.load(state)
        outputs, noted = _run(self.plan, self.reference, stress)
        pairs = zip(self.largest or noted.largest, noted.largest, strict=False)
        self.largest = [(name, max(known, now)) for (name, known), (_, now) in pairs]
        sizes = [x.abs().nan_to_num(0.0, 0.0, 0.0) for x in outputs]
        small = [x <= NEGLIGIBLE * x.square().mean().sqrt() for x in sizes]
        self.negligible = [a & b for a, b in zip(self.negligible or small, small, strict=True)]
        self.visible = [a | (b > 0) for a, b in zip(self.visible or [x > 0 for x in sizes], sizes, strict=True)]

    def tails(self) -> dict[str, float]:
        """Return elementwise function -> the largest argument of the call of it that was reached least."""
        return {name: min(size for other, size in self.largest if other == name) for name, _ in self.largest}

    def unseen(self) -> float:
        """Return the share of the outputs' elements that no trial shows."""
        pairs = list(zip(self.negligible, self.visible, strict=True))
        return sum(int((a & b).sum()) for a, b in pairs) / max(1, sum(a.numel() for a, _ in pairs))


def before_tails(survey: Survey, state: Weights, signed: Stress) -> list[str]:
    """Return the weights of norms and matrices that, enlarged, bring arguments of elementwise functions to their tails.

    survey: of other trials. For every function that these do not bring there it is the last one that does, in the order
    of the Model. state: perturbed weights. signed: the problem's stress.
    """
    short = [place for place, (_, size) in enumerate(survey.largest) if size < TAIL]
    if not short:
        return []
    reference, stress = survey.reference, input_stress.base(signed)
    reference.load(state)

    def arguments() -> list[float]:
        return [size for _, size in _run(survey.plan, reference, stress)[1].largest]

    usual, found = arguments(), dict[int, str]()
    for name, parameter in reference.model.named_parameters():
        if name.endswith("bias") or name not in state.state:
            continue
        with torch.no_grad():
            parameter.mul_(SCALES[0])
            raised = arguments()
            parameter.div_(SCALES[0])  # by a power of two: exact
        gained = [now >= RAISED * then > 0 for then, now in zip(usual, raised, strict=False)]
        found |= {place: name for place, gain in enumerate(gained) if gain and place in short}
    reference.loaded = None
    return list(dict.fromkeys(found.values()))
