"""Controls: arms that no agent wrote, made from a problem's own file. Each shows what a result is worth.

The negative control answers zero and must be found incorrect. The torch controls are the problem's Model with TF32 on,
alone and under torch.compile: the speedup that two lines of torch buy without a kernel.
"""

from __future__ import annotations

from dataclasses import dataclass

from repro.problems.catalogue import Problem
from repro.studies.agent.agent import Agent
from repro.studies.evaluation import Submission

ZERO = """

class ModelNew(Model):
    def forward(self, *inputs):
        return torch.zeros_like(super().forward(*inputs))
"""
TF32 = """

torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = True
"""
# One graph a shape, as torch.compile makes for the only shape of a program.
COMPILE = "Model.forward = torch.compile(Model.forward, dynamic=False)\n"
ALONE = "ModelNew = Model\n"
# These labels stand in every table that shows the arm.
LABEL = "no custom kernel: the problem's own Model with TF32 on"


@dataclass
class Control(Agent):
    """A problem's file with lines added at its end."""

    added: str = ""

    def solve(self, problem: Problem, repeat: int) -> Submission:
        return Submission(problem.path.stem, problem.source + self.added.encode(), "ModelNew")


EVERY = {
    control.name: control
    for control in (
        Control("nop", "negative control: answers zero, must be incorrect", control=True, added=ZERO),
        Control("tf32", LABEL, torch_control=True, added=TF32 + ALONE),
        Control("tf32_compile", f"{LABEL} and torch.compile", torch_control=True, added=TF32 + COMPILE + ALONE),
    )
}
TORCH = ("tf32", "tf32_compile")
