"""The negative control: the problem's own model with its output set to zero. The judge must find it incorrect."""

from __future__ import annotations

from repro.evaluation import Submission
from repro.problems import Problem

WRAPPER = """

class ModelNew(Model):
    def forward(self, *inputs):
        return torch.zeros_like(super().forward(*inputs))
"""


class Nop:
    """Returns zeros in the shape of the right output."""

    name = "nop"
    label = "negative control: answers zero, must be incorrect"
    control = True

    def solve(self, problem: Problem) -> Submission:
        """Return the problem file with a ModelNew that returns zeros."""
        return Submission(problem.path.stem, problem.path.read_bytes() + WRAPPER.encode(), "ModelNew")
