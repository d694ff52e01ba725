"""A made-up suite of what KernelBench files do: each plans, is reduced, and is judged, or is named with its reason.

The solution is the problem's own Model, in one process. A problem that cannot tell a cheat from the truth is
`unjudgeable`.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch

from repro.errors import ReproError
from repro.fixtures import calibration
from repro.judge import session
from repro.judge.implementation import Options
from repro.problems import catalogue, derive, sizes
from repro.problems.catalogue import Problem

CPU = torch.device("cpu")
HEAD = "import random\nimport torch\nfrom torch import nn\nimport torch.nn.functional as F\n"
BODY = """
{sizes}
class Model(nn.Module):
    def __init__(self{arguments}):
        super().__init__()
        {init}
    def forward(self, {inputs}):
        {forward}

def get_inputs():
    return [{values}]

def get_init_inputs():
    return [{given}]
"""
# name -> (inputs, forward, values of get_inputs, __init__, arguments and constructor values), and what is expected:
# "judged", "unjudgeable", or the reason with which it is named.
X = "torch.rand(n, 96)"
SUITE = {
    "elementwise": ("x", "return torch.relu(x - 0.5)", X, "pass", "", "judged"),
    "two inputs of different batch": (
        "x, y", "return torch.cdist(x, y)", "torch.rand(n, 16), torch.rand(2 * n, 16)", "pass", "", "judged"),
    "integer input": (
        "i", "return self.table(i)", "torch.randint(0, 50, (n, 12))", "self.table = nn.Embedding(50, 32)", "",
        "judged"),
    "mask of booleans": (
        "x, m", "return x.masked_fill(m, 0.0)", f"{X}, torch.rand(n, 96) > 0.7", "pass", "", "judged"),
    "plain number": ("x, k", "return x * k", f"{X}, 3", "pass", "", "judged"),
    "several outputs": ("x", "return x * 2, (x.sum(1), x - 1)", X, "pass", "", "judged"),
    "scalar output": ("x", "return (x * x).mean()", X, "pass", "", "judged"),
    "integer output": ("x", "return torch.argmax(x, dim=1)", X, "pass", "", "judged"),
    "in-place reference": ("x", "x.mul_(2).add_(1); return x * x", X, "pass", "", "judged"),
    "output is a view of the input": ("x", "return x.view(-1, 48)", X, "pass", "", "judged"),
    "dropout in evaluation": (
        "x", "return self.drop(self.fc(x))", X, "self.drop = nn.Dropout(0.5); self.fc = nn.Linear(96, 64)", "",
        "judged"),
    "batch norm": ("x", "return self.bn(x)", X, "self.bn = nn.BatchNorm1d(96)", "", "judged"),
    "loss with targets": (
        "x, t", "return F.cross_entropy(x, t)", f"{X}, torch.randint(0, 96, (n,))", "pass", "", "judged"),
    "loss with signs": (
        "x, t", "return torch.clamp(1 - x * t, min=0).mean()",
        f"{X}, torch.randint(0, 2, (n, 96)).float() * 2 - 1", "pass", "", "judged"),
    "distributions": (
        "p, q", "return F.kl_div(torch.log(p), q, reduction='batchmean')",
        f"{X}.softmax(-1), {X}.softmax(-1)", "pass", "", "judged"),
    "triangular product": (
        "a, b", "return torch.tril(torch.matmul(a, b))", "torch.tril(torch.rand(n, n)), torch.tril(torch.rand(n, n))",
        "pass", "", "judged"),
    "symmetric product": (
        "a", "return torch.matmul(a, a.T)", "(lambda m: (m + m.T) / 2)(torch.rand(n, n))", "pass", "", "judged"),
    "huge constants": ("x", "return self.fc(x) + 1e30", X, "self.fc = nn.Linear(96, 64)", "", "unjudgeable"),
    "near the end of the range": ("x", "return x * 1e38", X, "pass", "", "judged"),
    "masked with minus infinity": (
        "x", "return torch.where(torch.tril(torch.ones_like(x)) > 0, x, -torch.inf)", "torch.rand(n, n)", "pass", "",
        "judged"),
    "always zero": (
        "x", "y = self.fc(x).max(1, keepdim=True).values; return F.gelu(y - y.mean(1, keepdim=True))", X,
        "self.fc = nn.Linear(96, 64)", "", "unjudgeable"),
    "blind to its inputs": ("x", "return self.w * 2 + 0 * x.sum()", X, "self.w = nn.Parameter(torch.randn(64))", "",
                            "unjudgeable"),
    "rows that depend on each other": ("x", "return x - x.mean(0)", X, "pass", "", "judged"),
    "recurrent": (
        "x", "return self.rnn(x)[0]", "torch.rand(n, 10, 24)", "self.rnn = nn.GRU(24, 32, batch_first=True)", "",
        "judged"),
    "random in forward": ("x", "return x + torch.randn_like(x)", X, "pass", "", "draws random numbers"),
    "dropout in training mode": ("x", "return F.dropout(x, 0.5, training=True)", X, "pass", "", "draws random numbers"),
    "state between calls": (
        "x", "self.seen = self.seen + x.sum(); return x * self.seen", X, "self.seen = 0.0", "", "keeps state"),
    "state of the batch's size": (
        "x, h", "self.h.copy_(h); self.h = torch.tanh(self.fc(torch.cat((x, self.h), 1))); return self.h * 1",
        f"{X}, torch.rand(n, 24)", "self.fc = nn.Linear(120, 24); self.h = torch.zeros(n, 24)", "", "judged"),
    "part of a larger output": ("x", "return torch.stack((x, x * 2, x - 1), 1)[:, -1]", X, "pass", "", "judged"),
    "one row for all": ("x", "return x.mean(0, keepdim=True).expand(8, -1)", X, "pass", "", "judged"),
    "reads a length": (
        "x, n", "y = torch.zeros_like(x); k = int(n[0].item()); y[:, :k] = x[:, :k]; return y",
        f"{X}, torch.full((4,), 48)", "pass", "", "judged"),
    "reads lists of lengths": (
        "x, n", "return torch.cat([p.softmax(0) for p in x.split(n.tolist())])", f"{X}, torch.full((4,), n // 4)",
        "pass", "", "judged"),
    "branches on a value": ("x", "return x * 2 if x.sum() > -1e30 else x", X, "pass", "", "judged"),
    "gathers what a mask names": (
        "x, m", "i = torch.nonzero(m)[:, 0]; return torch.zeros_like(x).index_copy(0, i, x[i] * 2)",
        f"{X}, torch.rand(n) > 0.5", "pass", "", "judged"),
    "selects by a mask": ("x", "return x[x > 0.5]", X, "pass", "", "shapes that depend on values"),
    "bfloat16 by itself": (
        "x", "return x.to(torch.bfloat16) @ self.w.to(torch.bfloat16)", X, "self.w = nn.Parameter(torch.randn(96, 64))",
        "", "judged"),
    "half and back": (
        "x", "return (x.half() @ self.w.half()).float()", X, "self.w = nn.Parameter(torch.randn(96, 64))", "",
        "judged"),
    "half weights": (
        "x", "return x.half() @ self.w", X, "self.w = nn.Parameter(torch.randn(96, 64).half())", "",
        "names its own precision: judge it with --dtype float16"),
    "unrepeatable": ("x", "return x * 2", "torch.tensor([random.SystemRandom().random() for _ in range(n)])",
                     "pass", "", "not repeatable"),
    "dictionary": ("x", "return {'y': x}", X, "pass", "", "returns dict"),
    "no output": ("x", "pass", X, "pass", "", "returns NoneType"),
    "missing package": ("x", "import not_there; return x", X, "pass", "", "not_there"),
}  # fmt: skip


def written(folder: Path, name: str) -> Problem:
    inputs, forward, values, init, arguments, _ = SUITE[name]
    text = BODY.format(
        sizes="n = 64", arguments=arguments, init=init, inputs=inputs, forward=forward, values=values, given=""
    )
    file = folder / f"{name.replace(' ', '_')}.py"
    file.write_text(HEAD + text)
    return catalogue.load_file(file, size="smoke")


def settled(problem: Problem) -> Problem:
    return derive.complete(sizes.settle(problem, {}, known=False))


# Inputs that may be split along their first dimension, where there are some.
BATCHED = {
    "elementwise": (0,), "two inputs of different batch": (0,), "integer input": (0,), "several outputs": (0,),
    "integer output": (0,), "batch norm": (0,), "dropout in evaluation": (0,), "recurrent": (0,),
    "in-place reference": (0,), "plain number": (0,), "scalar output": (), "symmetric product": (),
    "triangular product": (), "rows that depend on each other": (), "loss with targets": (),
    "masked with minus infinity": (), "output is a view of the input": (),
}  # fmt: skip


@pytest.mark.parametrize("name", SUITE)
def test_it_plans_and_is_reduced_or_is_named(name, tmp_path):
    problem, expected = written(tmp_path, name), SUITE[name][-1]
    if expected in ("judged", "unjudgeable"):
        found = settled(problem)
        assert found.batch_inputs == BATCHED.get(name, found.batch_inputs)
        assert found.writes_inputs == (name == "in-place reference")
        assert found.aliases_input == (name == "output is a view of the input")
    else:
        with pytest.raises(ReproError, match=expected):
            settled(problem)


@pytest.mark.alike
@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name, each in SUITE.items() if each[-1] in ("judged", "unjudgeable")])
def test_its_own_model_is_correct_or_the_problem_is_unjudgeable(name, tmp_path):
    problem, expected = settled(written(tmp_path, name)), SUITE[name][-1]
    fixture = calibration.build(problem, CPU)
    solution = tmp_path / "solution.py"
    solution.write_text(re.sub(r"\bModel\b", "ModelNew", problem.path.read_text()))
    options = Options(device="cpu", timing=False, trust="dev", timeout_s=60)
    (entry,) = session.evaluate(problem, fixture, [("own", solution, "ModelNew")], options).results
    assert entry.verdict == {"judged": "correct"}.get(expected, expected), (entry.reasons, fixture.refused)
    if expected == "unjudgeable":
        assert fixture.degenerate["runs"] >= 5 and entry.reasons[0].code == "degenerate"


def test_a_problem_that_is_constant_is_proved_to_be_so(tmp_path):
    problem = settled(written(tmp_path, "always zero"))
    found = calibration.build(problem, CPU).degenerate
    assert found["kind"] == "constant" and "exactly constant" in found["proof"]


def test_random_numbers_that_do_not_go_with_fp64_are_named_as_such(tmp_path):
    """As an initial state that a forward draws in float32."""
    file = tmp_path / "drawn.py"
    text = BODY.format(
        sizes="n = 64", arguments="", init="self.rnn = nn.GRU(24, 32, batch_first=True)", inputs="x",
        forward="return self.rnn(x, torch.randn(1, x.size(0), 32))[0]", values="torch.rand(n, 10, 24)", given="",
    )  # fmt: skip
    file.write_text(HEAD + text)
    with pytest.raises(ReproError, match="draws random numbers"):
        settled(catalogue.load_file(file, size="smoke"))


def test_problems_of_the_fetched_source_have_ids_as_the_shipped_ones(tmp_path, monkeypatch):
    for level, name in ((1, "5_Scale.py"), (1, "36_RMSNorm_.py"), (3, "2_Net.py"), (4, "1_pretrained.py")):
        file = tmp_path / "kernelbench" / "KernelBench" / f"level{level}" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(written(tmp_path, "elementwise").path.read_text())
    monkeypatch.setattr(catalogue.config, "sources_dir", lambda: tmp_path)
    found = catalogue.suite("kernelbench", size="smoke")
    assert [(p.id, p.name) for p in found] == [("L1_05", "Scale"), ("L1_36", "RMSNorm"), ("L3_02", "Net")]
    assert catalogue.resolve("L1_05", size="full").path.name == "5_Scale.py"
    assert catalogue.is_shipped(catalogue.resolve("L1_36", size="full")), "a shipped id means the shipped text"
    names = ("L1_5_mine.py", "L1_6.py")
    assert [catalogue.id_in(name, catalogue.fetched()) for name in names] == ["L1_05", None]
    assert not catalogue.is_known(found[1])
    with pytest.raises(ReproError, match="'L2_01' in kernelbench: there are 3, .* Name a level from 1 to 3"):
        catalogue.suite("kernelbench", size="smoke", only=["L2_01"])


def test_without_the_source_the_suite_says_how_to_fetch_it(tmp_path, monkeypatch):
    monkeypatch.setattr(catalogue.config, "sources_dir", lambda: tmp_path)
    with pytest.raises(ReproError, match="repro fetch kernelbench"):
        catalogue.suite("kernelbench", size="smoke")
