"""`--check backward`: a call is forward and backward, and every gradient is an output."""

from __future__ import annotations

import json
from itertools import count

import pytest
import torch
from conftest import CPU, Tool

from repro.fixtures import calibration
from repro.judge.correctness import input_cases
from repro.judge.implementation import Options
from repro.judge.session import JudgeSession
from repro.problems import backward, catalogue

PROBLEM = """
import torch
class Model(torch.nn.Module):
    def __init__(self, width):
        super(Model, self).__init__()
        self.scale = torch.nn.Parameter(torch.rand(width))
        self.linear = torch.nn.Linear(width, width)
    def forward(self, x):
        return self.linear(x) ** 2 * self.scale
rows, width = 48, 96
def get_inputs():
    return [torch.randn(rows, width)]
def get_init_inputs():
    return [width]
"""
# Its parameters are made in another order.
SOLUTION = """
import torch
class Square(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x
    @staticmethod
    def backward(ctx, gradient):
        (x,) = ctx.saved_tensors
        return gradient * 2 * x
class ModelNew(torch.nn.Module):
    def __init__(self, width):
        super().__init__()
        self.linear = torch.nn.Linear(width, width)
        self.scale = torch.nn.Parameter(torch.rand(width))
    def forward(self, x):
        return Square.apply(self.linear(x)) * self.scale
"""


def test_gradients_of_inputs_and_of_parameters_by_name_are_outputs(tmp_path):
    file = tmp_path / "square.py"
    file.write_text(PROBLEM)
    problem = backward.problem(catalogue.load_file(file))
    module, mine = problem.module(), {}
    exec(backward.solution(SOLUTION.encode(), "ModelNew"), mine)  # noqa: S102
    model, new = module.Model(*module.get_init_inputs()), mine["ModelNew"](*module.get_init_inputs())
    new.load_state_dict(model.state_dict())
    x, gradient = module.get_inputs()
    with torch.no_grad():
        outputs, ours = model(x, gradient), new(x, gradient)
    leaf = x.requires_grad_()
    expected = model.linear(leaf) ** 2 * model.scale
    expected.backward(gradient)
    weights = [weight.grad for _, weight in sorted(model.named_parameters())]
    torch.testing.assert_close((*outputs, *ours), (expected, leaf.grad, *weights) * 2, check_layout=False)


CUT = """
def cut(x):
    return ((x.contiguous().view(torch.int32) + 0x1000) & ~0x1FFF).view(torch.float32)
class Linear(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight, bias):
        ctx.save_for_backward(x, weight)
        return cut(x) @ cut(weight).t() + bias
    @staticmethod
    def backward(ctx, gradient):
        x, weight = ctx.saved_tensors
        return cut(gradient) @ cut(weight), cut(gradient).t() @ cut(x), gradient.sum(0)
"""


@pytest.mark.slow
def test_a_gradient_of_one_element_is_judged_by_its_usual_size(tmp_path, monkeypatch):
    """It is a sum that cancels: of two draws, what is left of one may be a hundredth of what is left of the other."""
    monkeypatch.setattr(calibration, "DRAWN", 1)
    monkeypatch.setattr(input_cases, "secret_seed", count(1000).__next__)
    (tmp_path / "one.py").write_text(PROBLEM.replace("rand(width)", "rand(1)"))
    problem = backward.problem(catalogue.load_file(tmp_path / "one.py"))
    one = SOLUTION.replace("rand(width)", "rand(1)").replace(
        "self.linear(x)", "Linear.apply(x, *self.linear.parameters())"
    )
    texts = {
        "right.py": one,
        "wrong.py": one.replace("* self.scale", "* (1.1 * self.scale - 0.1 * self.scale.detach())"),
    }
    for name, text in texts.items():
        (tmp_path / name).write_bytes(backward.solution((text + CUT).encode(), "ModelNew"))
    with JudgeSession(problem, calibration.build(problem, torch.device("cpu")), Options(device="cpu")) as judge:
        right, wrong = judge.check((name, tmp_path / name, "ModelNew") for name in texts)
    assert (right.verdict, right.precision_class, wrong.verdict) == ("correct", "tf32", "incorrect")
    assert "output 5 of 5" in str(wrong.reasons)


@pytest.mark.slow
def test_a_wrong_gradient_behind_a_right_output_is_wrong(tmp_path):
    tool, texts = Tool(tmp_path), {"problem": PROBLEM, "right": SOLUTION, "function": "def kernel_function(x): ..."}
    texts["wrong"] = SOLUTION.replace("2 * x", "2 * x.relu()")
    for name, text in texts.items():
        (tmp_path / f"{name}.py").write_text(text)
    command = ["evaluate", "right.py", "wrong.py", "function.py", "--problem", "./problem.py", "--check", "backward"]
    done = tool(*command, "--no-timing", "--trust", "dev", *CPU, "--json", "verdicts.json", cwd=tmp_path)
    assert done.code == 1 and "kernel_function has no gradients" in done.err
    right, wrong, _ = json.loads((tmp_path / "verdicts.json").read_text())["results"]
    assert (right["verdict"], wrong["verdict"]) == ("correct", "incorrect")
    assert "output 2 of 5" in str(wrong["reasons"])


@pytest.mark.slow
@pytest.mark.parametrize(("more", "row"), [("--check backward", "L1_82_backward"), ("--dtype bfloat16", "L1_82@bf16")])
def test_own_models_of_a_suite_are_judged_as_solutions_are(more, row, tmp_path):
    command = f"evaluate --suite agent --problem L1_82 --no-timing --trust dev --json verdicts.json {more}"
    Tool(tmp_path)(*command.split(), *CPU, cwd=tmp_path)
    (verdict,) = json.loads((tmp_path / "verdicts.json").read_text())["results"]
    assert (verdict["problem"], verdict["verdict"]) == (row, "correct")
