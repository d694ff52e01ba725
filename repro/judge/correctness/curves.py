"""Where elementwise functions curve: the deviation of signed inputs at which their arguments lie there.

An approximation of a function differs from it most where it bends. Inputs that are all small, or all large, never reach
that place behind a linear layer.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from repro.judge.correctness.reference import Reference
from repro.problems.plan import Plan, Weights

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


class _Arguments(TorchFunctionMode):
    """Notes which share of the arguments of every elementwise function lies where these curve."""

    def __init__(self) -> None:
        super().__init__()
        self.shares: list[float] = []

    def __torch_function__(self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None) -> Any:
        if getattr(func, "__name__", "").rstrip("_") in _FUNCTIONS and args and isinstance(args[0], torch.Tensor):
            size = args[0].abs()
            self.shares.append(float(((size >= FROM) & (size <= TO)).double().mean()) if size.numel() else 0.0)
        return func(*args, **(kwargs or {}))


def stresses(plan: Plan, reference: Reference, state: Weights) -> tuple[str, ...]:
    """Return the stress at which most arguments of the problem's elementwise functions lie where these curve.

    Return none if there are no such functions, or if the signed inputs of the other trials serve as well.
    """
    reference.load(state)
    rows = slice(0, min(ROWS, plan.batch)) if plan.batch else None
    shares: dict[float, float] = {}
    for factor in FACTORS:
        with _Arguments() as noted:
            reference(plan.chunk(rows, SEED, reference.device, f"normal {factor:g}"))
        if not noted.shares:
            return ()
        shares[factor] = sum(noted.shares) / len(noted.shares)
    best = max(shares, key=lambda factor: shares[factor])
    usual = shares[1.0] if not isinstance(plan.problem.stress, str) else 0.0
    return (f"normal {best:g}",) if shares[best] > GAIN * usual else ()
