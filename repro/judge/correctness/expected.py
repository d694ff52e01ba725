"""What outputs are compared with: the fp64 reference's outputs of a chunk of rows, for the inputs in the buffers."""

from __future__ import annotations

from typing import Any

import torch

from repro.inputs import stress as stresses
from repro.inputs.stress import Stress
from repro.judge.correctness import input_cases
from repro.judge.correctness.input_cases import Trial
from repro.judge.correctness.reference import Reference, Shape, rows_per_chunk
from repro.judge.correctness.tolerances import ROUNDED
from repro.judge.gpu.input_buffers import Slots
from repro.problems.meta import Outputs, output_spec
from repro.problems.plan import Plan, Rows, Weights

# Bytes of the reference's outputs that are kept for the next solution.
_KEPT_BYTES = 4 << 30
# Draws of inputs that are off by little: what half of them show is missed once in 256.
_OFF = 8


class Expected:
    """The fp64 reference with the problem's weights, at the shape that is judged now.

    keeping: several solutions are judged on a GPU, so that outputs of the latest inputs are kept for the next solution
    while they are few bytes. usual: as of a fixture.
    """

    def __init__(self, plan: Plan, native: Weights, device: torch.device, usual: dict[str, list[float]]) -> None:
        self.native, self.device = native, device
        spec = output_spec(plan, native)
        self.shape = Shape(plan, spec, rows_per_chunk(plan, spec, device), usual)
        self.keeping = False
        self._inputs: tuple[Any, ...] = ()
        self._kept: dict[str, Outputs] = {}

    def build(self) -> None:
        """Build the fp64 reference. Workers may start before: on a GPU its first call takes a second or two."""
        self.reference = Reference(self.shape.plan, self.native, self.device)
        self.shape.rows = rows_per_chunk(self.shape.plan, self.shape.spec, self.device, self.reference)

    def weights(self, perturbed: bool, stress: Stress | None = None) -> Weights:
        """Return the native, the perturbed or the scaled weights."""
        if scaled := stresses.scaled(stress):
            return input_cases.scaled_weights(self.shape.plan, self.native, self.device, scaled)
        if not perturbed:
            return self.native
        return input_cases.perturbed_weights(self.shape.plan, self.native, self.device)

    def use(self, perturbed: bool, stress: Stress | None = None) -> Weights:
        """Load these weights into the reference, and return them."""
        state = self.weights(perturbed, stress)
        self.used = state.name
        self.reference.load(state)
        return state

    def outputs(self, part: Rows, slots: Slots) -> Outputs:
        """Return the reference's outputs of a chunk."""
        inputs = (slots.seed, str(slots.stress), id(self.reference.loaded))
        if inputs != self._inputs:
            self._inputs, self._kept = inputs, {}
        if (known := self._kept.get(str(part))) is not None:
            return known
        outputs = self._computed(part, slots.seed, slots.stress)
        nbytes = sum(tensor.nbytes for kept in (*self._kept.values(), outputs) for tensor in kept)
        if self.keeping and nbytes <= _KEPT_BYTES and all(whole is None for whole in self.reference.wholes):
            self._kept[str(part)] = [tensor.clone() for tensor in outputs]
        return outputs

    def outputs_before_edit(self, part: Rows, slots: Slots) -> Outputs:
        """Return the outputs of a chunk of the inputs before an edit; none where the inputs are not edited."""
        if not stresses.edits(slots.stress):
            return []
        return self._computed(part, slots.seed, self.stress_before_edit)

    @property
    def stress_before_edit(self) -> Stress | None:
        """Return the stress of the inputs before an edit."""
        return stresses.base(self.shape.plan.problem.stress)

    def _computed(self, part: Rows, seed: int, stress: Stress | None) -> Outputs:
        return self.reference(self.shape.plan.chunk(part, seed, self.device, stress))

    def honest(self, trial: Trial, klass: str) -> dict[str, float]:
        """Return the largest distances of a class's Model from the reference on a trial, for inputs that are off by
        nothing to the share of the class, in several draws."""
        state = self.use(trial.perturbed, trial.stress)
        model = Reference(self.shape.plan, state, self.device, klass)
        draws = [self.shape.distances(f"{state.name} {trial.stress}") for _ in range(_OFF)]
        base = [self.stress_before_edit] if stresses.edits(trial.stress) else []
        for part in self.shape.parts():
            values = self.shape.plan.chunk(part, trial.seed, self.device, trial.stress)
            due = self.reference(list(values))
            wholes = self.reference.wholes
            before = [output for stress in base for output in self._computed(part, trial.seed, stress)]
            for number, distances in enumerate(draws):
                share = ROUNDED[klass] * number / (_OFF - 1)
                distances.add(model([_off(x, share) for x in values]), due, wholes, before)
        every = [distances.values() for distances in draws]
        return {name: max(values[name] for values in every if name in values) for name in every[0]}

    def forget(self) -> None:
        """Free the outputs that are kept."""
        self._kept = {}


def _off(value: Any, share: float) -> Any:
    """Return an input in fp64 of which each element is off by a random part of a share; no integers.

    None leaves the range of the others: a Model may take probabilities alone, and a GPU ends over one above 1.
    """
    if not isinstance(value, torch.Tensor) or not value.is_floating_point() or not value.numel():
        return value
    wide = value.double()
    least, largest = wide.aminmax()
    return wide.addcmul(wide, torch.rand_like(wide).mul_(2.0).sub_(1.0), value=share).clamp_(least, largest)
