"""Why a problem cannot tell a cheat from the truth: proofs by running the fp64 reference on strongly different inputs.

constant     the output is the same whatever inputs and weights are, as far as fp64 shows
blind        it is the same whatever the inputs are, and depends on the weights
saturated    it hardly depends on the published inputs, and more on others
indistinct   it depends on the inputs, and a cheat stays within the limits all the same
"""

from __future__ import annotations

import contextlib
import itertools
from typing import Any

import torch

from repro.errors import JudgeError
from repro.judge.correctness.reference import Reference, chunks, rows_per_chunk
from repro.problems.meta import Outputs, output_spec
from repro.problems.plan import Plan, Weights

_SEED = 20251121
# Inputs of a proof: two draws, signed, negated, spiked, a thousandth and a thousand times the published size.
_STRESSES: tuple[Any, ...] = (None, 1.0, 30.0, "negative", "spike", "times 0.001", "times 1000")
# Changes under this share of the output are rounding; under SATURATED they are no signal.
ROUNDING, SATURATED = 1e-12, 1e-4


def why(plan: Plan, reference: Reference, states: list[Weights]) -> dict[str, str | float]:
    """Return the kind, the proof in words, and how many runs it rests on.

    Changes are relative to the largest element, over all pairs of runs; NaN equals NaN.
    """
    part = next(iter(chunks(plan, rows_per_chunk(plan, output_spec(plan, states[0]), reference.device))))
    outputs = []
    for state in states:
        reference.load(state)
        seen = []
        for number, stress in enumerate((None, *_STRESSES)):
            with contextlib.suppress(JudgeError):  # inputs that the problem does not take
                seen.append(_flat(reference(plan.chunk(part, _SEED + number, reference.device, stress))))
        outputs.append(seen)
    published = max((_change(*seen[:2]) for seen in outputs if len(seen) > 1), default=0.0)
    largest = max((_change(a, b) for seen in outputs for a, b in itertools.combinations(seen, 2)), default=0.0)
    between = _change(outputs[0][0], outputs[-1][0]) if all(outputs) else 0.0
    runs = sum(map(len, outputs))
    runs_made = f"over {runs} runs of the fp64 reference on published, signed, negated, spiked, small and large inputs"
    if largest <= ROUNDING and between <= ROUNDING:
        kind, proof = "constant", f"the output is exactly constant {runs_made} and {len(states)} sets of weights"
    elif largest <= ROUNDING:
        kind, proof = "blind", f"the output does not depend on the inputs {runs_made}"
    elif published <= SATURATED:
        kind = "saturated"
        proof = (
            f"two published inputs change the output by {published:.1g} of its largest element, others by {largest:.1g}"
        )
    else:
        kind, proof = "indistinct", f"two published inputs change the output by {published:.1g} of its largest element"
    return {"kind": kind, "proof": proof, "runs": runs}


def _flat(outputs: Outputs) -> torch.Tensor:
    return torch.cat([x.double().reshape(-1) for x in outputs]).cpu()


def _change(a: torch.Tensor, b: torch.Tensor) -> float:
    """Return the largest difference of two outputs over the largest finite element; infinity if only one is finite."""
    same = (a == b) | (a.isnan() & b.isnan())
    difference = (a - b).abs().masked_fill(same, 0.0)
    largest = max(float(x.masked_fill(~torch.isfinite(x), 0.0).abs().max()) for x in (a, b)) if a.numel() else 0.0
    change = float(difference.nan_to_num(torch.inf).max()) if a.numel() else 0.0
    return change / largest if change and largest else change
