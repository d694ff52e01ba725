"""What is derived of a KernelBench file, against what suites.toml says of the shipped ones by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from repro.cli import main
from repro.problems import catalogue, derive
from repro.problems import plan as inputs

QUICK = ("L1_36", "L1_43", "L1_97", "L2_99")
CPU = torch.device("cpu")
# Why a derived figure is another than the one by hand, each decided:
# - traffic: weights of convolutions, biases and buffers count too, up to 2 % more. L1_43: elements that no window
#   reaches are a larger share of a small volume, and fewer bytes never make an honest time impossible.
# - arithmetic: elementwise operations count nothing (L1_36, L1_43), and attention counts whole where it is causal
#   (L3_43, L3_44). Derived arithmetic is shown and never makes a time impossible.
TRAFFIC = {"L1_43": 0.7, "L3_43": 0.98, "L3_44": 0.98, "L3_20": 0.98, "L2_34": 0.98, "L1_77": 0.98}
ARITHMETIC = {"L1_36": (0, 0), "L1_43": (0, 0), "L3_43": (1.1, 1.2), "L3_44": (1.0, 1.1)}


@pytest.mark.alike
@pytest.mark.parametrize("key", [k if k in QUICK else pytest.param(k, marks=pytest.mark.slow) for k in catalogue.ids()])
def test_derived_facts_agree_with_those_by_hand(key):
    known = catalogue.load(key)
    found = derive.complete(catalogue.load_file(known.path))
    assert (found.batch_inputs, found.batch_dims) == (known.batch_inputs, known.batch_dims)
    assert found.native_signal == known.native_signal
    assert (found.stress == "negative") == (known.stress == "negative")
    assert (found.stress_run > 1) == (known.stress_run > 1)
    assert found.work is not None and known.work is not None
    assert found.work.written_elements == known.work.written_elements
    traffic = known.work.read_elements / max(1, found.work.read_elements)
    least = TRAFFIC.get(key, 0.995)
    assert least <= min(traffic, 1 / traffic) <= 1, traffic
    low, high = ARITHMETIC.get(key, (0.999, 1.001))
    assert low <= found.work.flop / known.work.flop <= high
    assert found.work.fast_algorithm == 0.0


INPUT = """
import torch
from torch import nn
class Model(nn.Module):
    def forward(self, x):
        return x * 2
def get_inputs():
    return [{value}]
def get_init_inputs():
    return []
"""


@pytest.mark.parametrize(
    ("value", "kept"),
    [
        ("torch.tril(torch.rand(64, 64))", "zeros"),
        ("(lambda m: m + m.T)(torch.rand(64, 64))", "symmetric"),
        ("torch.rand(64, 64).softmax(-1)", "distributions"),
        ("torch.rand(64, 2).softmax(-1)", "distributions"),
        ("torch.randint(0, 2, (64, 64)).float() * 2 - 1", "few values"),
        ("torch.nn.functional.normalize(torch.randn(64, 8), dim=-1)", "directions"),
        ("torch.randn(64).sort().values", "sorted"),
        ("torch.zeros(64)", "constant"),
        ("torch.rand(64).log().masked_fill_(torch.arange(64) < 9, torch.nan)", ""),
        ("torch.rand(64, 64) * 3", ""),
    ],
)
@pytest.mark.parametrize("stress", ["spike", 2.0, "times 10000", "edit 16 0"])
def test_a_stressed_input_keeps_what_the_problem_requires_of_it(tmp_path, value, kept, stress):
    file = tmp_path / "problem.py"
    file.write_text(INPUT.format(value=value))
    plan = inputs.plan(replace(catalogue.load_file(file), stress=2.0))
    (published,), (found,) = plan.make(1, CPU), plan.make(1, CPU, stress=stress)
    assert inputs.structure(published) == kept
    if kept == "zeros":
        assert bool((found[published == 0] == 0).all())
    elif kept == "symmetric":
        assert torch.equal(found, found.T)
    elif kept == "distributions":
        ratio = found.sum(-1) / found.sum(-1)[0]
        assert bool((found >= 0).all()) and torch.allclose(ratio, torch.ones(64))
    elif kept == "few values":
        assert len(torch.unique(found)) == 2
    elif kept == "directions":
        assert torch.allclose(found.norm(dim=-1), torch.ones(64))
    elif kept == "sorted":
        assert (found.diff() >= 0).all()
    elif kept == "constant":
        assert (float(found.std()) > 0) is (stress in (2.0, "edit 16 0"))
    else:
        assert not torch.equal(found, published) and not bool((found.isnan() > published.isnan()).any())


# It runs on the CPU at a reduced size alone.
LARGE = INPUT.format(value="torch.rand(4096, 512)").replace("x * 2", "x * 2 if x.is_meta or len(x) < 999 else 1 / 0")


@pytest.mark.parametrize(("size", "taken"), [("full", "15 0"), ("smoke", "0.000524 0")])
def test_a_suite_is_listed_with_what_it_takes_and_why_a_problem_is_not_judged(tool, size, taken):
    level = tool.folder / "sources/kernelbench/KernelBench/level1"
    level.mkdir(parents=True)
    (level / "36_RMSNorm_.py").write_bytes(catalogue.load("L1_36").path.read_bytes())
    (level / "37_Broken.py").write_text("import no_such_package\n" + INPUT)
    (level / "38_Large.py").write_text(LARGE)
    (level / "39_None.py").write_text(INPUT.replace("return []", "return None"))
    done = tool.within("problems", "--suite", "kernelbench", "--size", size, COLUMNS="80")
    done.succeeded()
    lines = {line.partition(" ")[0]: line for line in done.out.splitlines() if line.startswith("L1")}
    assert f" {taken} not measured" in " ".join(lines["L1_36"].split()) and lines["L1_38"].endswith("not measured")
    assert "not judged" in lines["L1_37"] and "- L1_37: not judged: problem file 37_Broken.py" in done.out
    assert "install no_such_package where it is judged" in done.out and "- L1_39: not judged: " in done.out


@pytest.mark.parametrize(("size", "said"), [("full", "x 512 x 512 float32 | 24 GB"), ("smoke", "float32 | 1.1 GB")])
def test_one_problem_is_shown_with_source_sizes_memory_and_floor(tmp_path, capsys, size, said):
    """No fp64 copy of the whole input is in the memory, also where the batch is derived."""
    copied = tmp_path / "36_RMSNorm_.py"
    copied.write_bytes(catalogue.load("L1_36").path.read_bytes())
    assert main.main(["problems", str(copied), "--size", size]) == 0
    out = capsys.readouterr().out
    assert "def forward" in out and all(each in out for each in (*said.split(" | "), "output 1", "not measured"))
    assert ("floor" in out) == (size == "full")
