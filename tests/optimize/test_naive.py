"""The ten naive kernels from which searches of KernelBench problems start are right, in Triton's interpreter."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path

import naive
import pytest
import searches
from conftest import ROOT

from repro.optimize import rewrites
from repro.optimize.kernel_source import KernelSource, refusal

KERNELS = naive.kernels()
PROGRAM = """
import importlib.util, json, sys
import torch
from repro.judge.worker import triton_interpreter

triton_interpreter.mend()
torch.manual_seed(0)
F = torch.nn.functional
LINEAR = ((33, 40), (40, 50))
CASES = {
    "19_ReLU": ([], [(7, 100)], lambda m, x: torch.relu(x)),
    "26_GELU_": ([], [(7, 100)], lambda m, x: F.gelu(x)),
    "23_Softmax": ([], [(5, 1500)], lambda m, x: torch.softmax(x, dim=1)),
    "40_LayerNorm": ([(3, 20, 30)], [(2, 3, 20, 30)], lambda m, x: m.ln(x)),
    "47_Sum_reduction_over_a_dimension": ([1], [(2, 9, 70)], lambda m, x: torch.sum(x, dim=1, keepdim=True)),
    "1_Square_matrix_multiplication_": ([], [(40, 40), (40, 40)], lambda m, a, b: a @ b),
    "12_Gemm_Multiply_LeakyReLU": ([40, 50, 2.0, 0.1], [(33, 40)], lambda m, x: F.leaky_relu(m.gemm(x) * 2.0, 0.1)),
    "63_Gemm_ReLU_Divide": ([40, 50, 2.0], [(33, 40)], lambda m, x: torch.relu(m.linear(x)) / 2.0),
    "76_Gemm_Add_ReLU": ([40, 50, (50,)], [(33, 40)], lambda m, x: torch.relu(m.gemm(x) + m.bias)),
    "86_Matmul_Divide_GELU": ([40, 50, 10.0], [(33, 40)], lambda m, x: F.gelu(m.linear(x) / 10.0)),
}
said = {}
for name, (given, shapes, reference) in CASES.items():
    spec = importlib.util.spec_from_file_location("naive", f"{sys.argv[1]}/{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    model = module.ModelNew(*given)
    inputs = [torch.randn(shape) for shape in shapes]
    with torch.no_grad():
        said[name] = float((model(*inputs) - reference(model, *inputs)).abs().max())
print(json.dumps(said))
"""


@pytest.mark.slow
def test_naive_kernels_are_right(tmp_path: Path) -> None:
    for name, text in KERNELS.items():
        (tmp_path / f"{name}.py").write_text(text)
    env = {**os.environ, "TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, tmp_path], capture_output=True, text=True, env=env, check=True
    )
    said = json.loads(done.stdout)
    assert set(said) == set(KERNELS) and len(said) == 10
    assert {name: off for name, off in said.items() if not off < 1e-4} == {}


@pytest.mark.slow
def test_naive_kernels_have_rewrites_that_may_be_judged() -> None:
    for kernel, text in KERNELS.items():
        assert refusal(text) == ""
        found = rewrites.applicable(KernelSource(text))
        assert len(found) >= 3, (kernel, sorted(found))
        assert not [name for name, rewritten in found.items() if refusal(rewritten)]


def test_published_searches_start_from_the_naive_kernels(tmp_path: Path) -> None:
    problems = tmp_path / "level1"
    problems.mkdir()
    for name in KERNELS:
        (problems / f"{name}.py").touch()
    options = {"only": "naive", "kernelbench": tmp_path, "seeds": 3, "out": tmp_path / "out", "published": None}
    found = searches.cases(argparse.Namespace(**options, named=""))
    assert len(found) == 30 and {case.kernel.read_text() for case in found} == set(KERNELS.values())
    some = searches.cases(argparse.Namespace(**options, named=next(iter(KERNELS))))
    assert len(some) == 3 and {case.seed for case in some} == {0, 1, 2}
    designs = searches.cases(argparse.Namespace(**options | {"only": "designs", "seeds": 1}, named=""))
    assert len(designs) == 5 and all(case.design and case.design.parent == case.kernel.parent for case in designs)


def test_options_of_the_search_follow_two_dashes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[argparse.Namespace] = []
    monkeypatch.setattr(searches, "cases", lambda args: asked.append(args) or [])
    monkeypatch.setattr("sys.argv", ["searches.py", str(tmp_path), "--only", "own", "--", "--gpus", "1"])
    searches.main()
    assert asked[0].more == ["--gpus", "1"] and asked[0].only == "own"
    assert (tmp_path / "summary.json").read_text() == "[]\n"
