"""Which name of a solution is judged, however the file makes it, and that it is called."""

from __future__ import annotations

from pathlib import Path

import pytest

from repro.judge import session
from repro.judge.implementation import Options
from repro.problems import catalogue
from repro.studies import evaluation
from repro.system.jsonio import Json

VERDICTS = Options(device="cpu", timing=False, timeout_s=60)
FUNCTION = """import functools
import torch

def _rms(x, eps=1e-5):
    return x / torch.sqrt(x.square().mean(1, keepdim=True) + eps)
"""
KINDS = {
    "partial": """
def kernel_function(x, block, eps):
    assert block == 128
    return _rms(x, eps)

kernel_function = functools.partial(kernel_function, block=128)
""",
    "object": """
class Kernel:
    def __call__(self, x, eps):
        return _rms(x, eps)

kernel_function = Kernel()
""",
    "module": """
class Kernel(torch.nn.Module):
    def forward(self, x, eps):
        return _rms(x, eps)

kernel_function = Kernel()
""",
    "compiled": """
kernel_function = torch.compile(_rms, backend="eager")
""",
    "custom_op": """
from torch import library

@library.custom_op("entries::rms", mutates_args=())
def kernel_function(x: torch.Tensor, eps: float) -> torch.Tensor:
    return _rms(x, eps)
""",
}
MODULE = """import torch
from torch import nn

class FusedRMS(nn.Module):
    def __init__(self, num_features, eps=1e-5):
        super().__init__()
        self.eps = eps

    def forward(self, x):
        return kernel_function(x, torch.rsqrt(x.square().mean(1, keepdim=True) + self.eps))

def kernel_function(x, rstd):
    return x * rstd
"""


def judged(source: str, tmp_path: Path, fixture: Json):
    """The verdict on this text at smoke size, its entry found as the command line finds it."""
    file = tmp_path / "solution.py"
    file.write_text(source)
    solutions = [("solution", file, evaluation.read(file).entry)]
    return session.evaluate(catalogue.load("L1_36", size="smoke"), fixture, solutions, VERDICTS).results[0]


@pytest.mark.parametrize(
    ("source", "entry"),
    [
        ("def kernel_function(x): ...", "kernel_function"),
        ("class ModelNew: ...\ndef kernel_function(x): ...", "ModelNew"),
        ("kernel_function = functools.partial(_f, block=128)", "kernel_function"),
        ("kernel_function: Callable = torch.compile(_f)", "kernel_function"),
        ("forward = kernel_function = _Fused.apply", "kernel_function"),
        ("ModelNew = FusedRMS\ndef kernel_function(x, rstd): ...", "ModelNew"),
        ("from fused import rms as kernel_function", "kernel_function"),
        ("try:\n    import triton\nexcept ImportError:\n    kernel_function = _f\nelse:\n    kernel_function = _g",
         "kernel_function"),
        ("if torch.cuda.is_available():\n    kernel_function = _f", "kernel_function"),
        ("with torch.no_grad():\n    kernel_function = _f", "kernel_function"),
        ("def build():\n    global kernel_function\n    def kernel_function(x): ...\nbuild()", "kernel_function"),
    ],
)  # fmt: skip
def test_an_entry_is_whatever_gives_the_module_its_name(source, entry):
    """Definitions, assignments and imports, ModelNew where there are both; a function that is assigned was `no_entry`,
    and the helper of an assigned ModelNew was judged in its place."""
    assert evaluation.entry_of(source.encode(), "neither") == entry


@pytest.mark.parametrize(
    "aside",
    [
        "class Wrapper:\n    class ModelNew: ...",
        "def build():\n    class ModelNew: ...\n    return ModelNew",
        "class Names:\n    ModelNew = int",
        "called = [ModelNew for ModelNew in ()]",
        "ModelNew = None",
        "ModelNew: type",
        "if __name__ == '__main__':\n    from problem import Model as ModelNew",
    ],
)
def test_a_name_that_the_module_does_not_get_is_no_entry(aside):
    """Nested names, placeholders and what a file defines only where it is run as a program: a class within a function
    hid the kernel_function beside it."""
    assert evaluation.entry_of(f"{aside}\ndef kernel_function(x): ...".encode()) == "kernel_function"


@pytest.mark.parametrize(
    "source",
    [
        pytest.param(FUNCTION + "kernel_function = _rms\n", id="function"),
        pytest.param(MODULE + "ModelNew = FusedRMS\n", id="module"),
    ],
)
def test_an_assigned_entry_is_judged(source, tmp_path, smoke_fixture):
    """From the file to its verdict, through the real worker."""
    found = judged(source, tmp_path, smoke_fixture("L1_36"))
    assert found.verdict == "correct", found.reasons


@pytest.mark.alike
@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_an_entry_that_is_no_plain_function_is_judged(kind, tmp_path, smoke_fixture):
    """Each is given its input and the model's eps; they ended as errors of the binder's or of their own."""
    found = judged(FUNCTION + KINDS[kind], tmp_path, smoke_fixture("L1_36"))
    assert found.verdict == "correct", found.reasons


def test_an_error_names_both_entry_points_of_a_solution(tmp_path, smoke_fixture):
    """It told of ModelNew alone."""
    (reason,) = judged("def rms(x):\n    return x\n", tmp_path, smoke_fixture("L1_36")).reasons
    assert reason.code == "no_entry" and "ModelNew or kernel_function" in reason.detail
