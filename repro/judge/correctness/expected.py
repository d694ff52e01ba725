"""What outputs are compared with: the fp64 reference's outputs of a chunk of rows, for the inputs in the buffers."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch

from repro.inputs import stress as stresses
from repro.inputs.stress import Stress
from repro.judge.correctness import input_cases
from repro.judge.correctness.reference import Reference, Shape, most_rows, rows_per_chunk
from repro.judge.gpu.input_buffers import Slots
from repro.problems.meta import output_spec
from repro.problems.plan import Plan, Weights

# Bytes of the reference's outputs that are kept for the next solution.
_KEPT_BYTES = 4 << 30


@dataclass
class _Kept:
    """Outputs of the latest inputs, by chunk."""

    inputs: tuple[Any, ...] = ()
    nbytes: int = 0
    outputs: dict[str, list[torch.Tensor]] = field(default_factory=dict)


class Expected:
    """The fp64 reference with the problem's weights, at the shape that is judged now.

    own, shape: the problem's own shape, and the present one. keeping: several solutions are judged on a GPU, so that
    outputs of the latest inputs are kept for the next solution while they are few bytes.
    """

    def __init__(self, plan: Plan, native: Weights, device: torch.device) -> None:
        self.native, self.device = native, device
        spec = output_spec(plan, native)
        self.shape = self.own = Shape(plan, spec, most_rows(plan, spec, device))
        self.keeping = False
        self._kept = _Kept()

    def build(self) -> None:
        """Build the fp64 reference. Workers may start before: on a GPU its first call takes a second or two."""
        self.reference = Reference(self.own.plan, self.native, self.device)
        self.own.rows = rows_per_chunk(self.own.plan, self.reference, self.own.spec)

    def weights(self, perturbed: bool, stress: Stress | None = None) -> tuple[str, Weights]:
        """Return the name of the native, the perturbed or the scaled weights, and the weights."""
        if scaled := stresses.scaled(stress):
            return "scaled", input_cases.scaled_weights(self.own.plan, self.native, self.device, scaled)
        if not perturbed:
            return "native", self.native
        return "perturbed", input_cases.perturbed_weights(self.own.plan, self.native, self.device)

    def use(self, perturbed: bool, stress: Stress | None = None) -> tuple[str, Weights]:
        """Load these weights into the reference; return their name and the weights."""
        name, state = self.weights(perturbed, stress)
        if self.reference.loaded is not state:
            self.reference.load(state)
        return name, state

    def outputs(self, part: slice | None, slots: Slots) -> list[torch.Tensor]:
        """Return the reference's outputs of a chunk."""
        inputs = (id(self.shape), slots.seed, str(slots.stress), id(self.reference.loaded))
        if inputs != self._kept.inputs:
            self._kept = _Kept(inputs)
        if (known := self._kept.outputs.get(str(part))) is not None:
            return known
        outputs = self._computed(part, slots.seed, slots.stress)
        nbytes = self._kept.nbytes + sum(tensor.nbytes for tensor in outputs)
        if self.keeping and nbytes <= _KEPT_BYTES and not any(w is not None for w in self.reference.wholes):
            self._kept.outputs[str(part)], self._kept.nbytes = [tensor.clone() for tensor in outputs], nbytes
        return outputs

    def outputs_before_edit(self, part: slice | None, slots: Slots) -> list[torch.Tensor]:
        """Return the outputs of a chunk of the inputs before an edit; none where the inputs are not edited."""
        if not stresses.edits(slots.stress):
            return []
        return self._computed(part, slots.seed, self.stress_before_edit)

    @property
    def stress_before_edit(self) -> Stress | None:
        """Return the stress of the inputs before an edit."""
        return stresses.base(self.shape.plan.problem.stress)

    def _computed(self, part: slice | None, seed: int, stress: Stress | None) -> list[torch.Tensor]:
        return self.reference(self.shape.plan.chunk(part, seed, self.device, stress))

    def forget(self) -> None:
        """Free the outputs that are kept."""
        self._kept = _Kept()
