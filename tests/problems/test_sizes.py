"""Sizes of any KernelBench file: derived ones, overrides by name, and memory that is refused before it is taken."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from repro.cli import main
from repro.errors import JudgeError, PrerequisiteError, UsageError
from repro.problems import catalogue, constants, sizes
from repro.problems import plan as inputs

DATA = Path(__file__).parents[1] / "data" / "problems"
FRAMES = Path(__file__).parents[1] / "frames" / "problems"
FILES = sorted(DATA.glob("*.py"))
SHIPPED = [catalogue.load(i).path for i in catalogue.ids()]


def unknown(path: Path, size: str = "smoke") -> catalogue.Problem:
    """A problem file of which nothing is known but its text."""
    return catalogue.load_file(path, size=size)


@pytest.mark.parametrize(
    "path", [pytest.param(f, id=f.stem, marks=[pytest.mark.slow] * (f.stem[:5] == "L3_20")) for f in [*FILES, *SHIPPED]]
)
def test_a_reduced_size_is_small_and_runs_on_the_cpu(path):
    problem = unknown(path)
    derived = sizes.derive(problem)
    plan = inputs.plan(replace(problem, overrides=derived.overrides))
    model = inputs.build(plan.problem, plan.module, plan.problem.init_inputs(plan.module))
    with torch.no_grad():
        output = model(*plan.make(1, torch.device("cpu")))
    first = output[0] if isinstance(output, tuple) else output
    assert bool(first.isfinite().all())
    assert derived.flop <= 1 << 28 and derived.elements <= 1.01 * (1 << 17) and derived.written <= 1 << 20


def test_related_sizes_shrink_together():
    shapes = {}
    for path in FILES:
        plan = inputs.plan(replace(unknown(path), overrides=sizes.derive(unknown(path)).overrides))
        shapes[path.stem] = [tuple(plan.spec[i][0]) for i in plan.tensors], vars(plan.module)
    (image, _), _ = shapes["literals_in_functions"]
    assert image[2] == image[3] < 224
    (matrix, other), _ = shapes["triangular"]
    assert matrix == other and matrix[0] == matrix[1] < 4096
    (image,), values = shapes["square_positions"]
    assert image[2] == image[3] and image[2] % 16 == 0 and values["patch"] == 16
    _, values = shapes["grouped_convolution"]
    assert values["kernel_size"] == (7, 9) and values["groups"] == 12 and values["in_channels"] % 12 == 0
    _, values = shapes["attention_heads"]
    assert values["heads"] == 8 and values["width"] % 8 == 0 and values["longest"] >= values["length"]
    _, values = shapes["constants_in_tuples"]
    assert values["scale_shape"] == (values["features"], 1, 1) and values["input_shape"][0] == values["input_shape"][1]
    _, values = shapes["pooling_windows"]
    assert (values["window"], values["stride"], values["dilation"]) == (3, 2, 3)


def test_sizes_that_differ_and_groups_of_norms_stay_apart(tmp_path):
    """Also where the budget is not met. A norm of two channels is always 1 or -1."""
    file = tmp_path / "norm.py"
    file.write_text(
        "import torch\nfrom torch import nn\nbatch, rows, columns, groups = 16, 4096, 4095, 512\n\n\n"
        "class Model(nn.Module):\n    def __init__(self, channels, groups):\n        super().__init__()\n"
        "        self.norm = nn.GroupNorm(groups, channels)\n\n    def forward(self, x):\n        return self.norm(x)\n"
        "def get_inputs():\n    return [torch.rand(batch, rows, columns)]\n\n\n"
        "def get_init_inputs():\n    return [rows, groups]\n"
    )
    found = sizes.derive(unknown(file)).overrides
    assert found["rows"] != found["columns"] and found["rows"] // found.get("groups", 512) >= 8
    assert int(found["columns"]) % 16 == 15


def test_the_number_of_inputs_is_no_size(tmp_path):
    """Half of `range(3)` gives fewer inputs than the Model takes."""
    file = tmp_path / "window.py"
    file.write_text(
        "import torch\n\nbatch = 4096\n\n\nclass Model(torch.nn.Module):\n    def forward(self, q, k, v):\n"
        "        return q * k + v\n\n\ndef get_inputs():\n    return [torch.rand(batch, 4096) for _ in range(3)]\n\n\n"
        "def get_init_inputs():\n    return []\n"
    )
    found = sizes.derive(unknown(file)).overrides
    assert found["batch"] < 4096 and len(inputs.plan(replace(unknown(file), overrides=found)).tensors) == 3


def test_an_index_out_of_range_is_seen_by_running():
    """The meta device checks no values: the constructor's arguments stay as they are then."""
    derived = sizes.derive(unknown(DATA / "vocabulary.py"))
    assert "entries" not in derived.overrides and derived.overrides["batch_size"] < 4096


def test_a_file_that_is_small_stays_as_it_is(tmp_path):
    file = tmp_path / "small.py"
    file.write_text((DATA / "dependent_rows.py").read_text().replace("2048 * 4", "64").replace("4096 * 2", "32"))
    assert sizes.derive(unknown(file)).overrides == {}


def test_problems_that_cannot_shrink_are_refused_with_their_cost(tmp_path):
    file = tmp_path / "fixed.py"
    text = (
        (DATA / "triangular.py")
        .read_text()
        .replace("def forward(self, a, b):", "def forward(self, a, b):\n        assert len(a) == 4096")
    )
    file.write_text(text)
    with pytest.raises(PrerequisiteError, match=r"no reduced size .* 137 GFLOP a call .* --shapes NAME=VALUE"):
        sizes.derive(unknown(file))


@pytest.mark.parametrize(
    ("output", "n", "why"),
    [
        ("torch.log(x - x)", 64, "output holds no finite"),
        ("x", 0, "output is empty"),
        ("x[n:].min()", 64, "it fails with"),
    ],
)
def test_what_fails_at_the_smallest_size_is_said(tmp_path, output, n, why):
    file = tmp_path / "p.py"
    module, given = f"n = {n}\nclass Model(torch.nn.Module):\n    def forward(self, x):", "def get_inputs():"
    file.write_text(f"import torch\n{module}\n        return {output}\n{given}\n    return [torch.rand(n, 8)]\n"
                    "def get_init_inputs():\n    return []\n")  # fmt: skip
    with pytest.raises(PrerequisiteError, match=f"no reduced size of p runs on the CPU: .* {why}.* Mend"):
        sizes.derive(unknown(file))


# -- overrides


def test_what_a_file_computes_from_a_constant_follows_it():
    problem = replace(unknown(DATA / "constants_in_tuples.py"), overrides={"features": 16, "input_shape": [8, 4]})
    module = problem.module()
    assert module.scale_shape == (16, 1, 1) and module.input_shape == (8, 4)
    assert [tuple(x.shape) for x in module.get_inputs()] == [(64, 16, 8, 4)]


def test_an_override_has_the_kinds_of_sequences_that_the_file_has(tmp_path):
    file = tmp_path / "nested.py"
    file.write_text((DATA / "dependent_rows.py").read_text() + "\npads = ((1, 1), (2, 2))\nlayers = [64] * 4\n")
    module = replace(unknown(file), overrides={"pads": [[0, 0], [3, 3], [4, 4]], "layers": (8, 8)}).module()
    assert module.pads == ((0, 0), (3, 3), (4, 4)) and module.layers == [8, 8]


def test_a_number_inside_a_function_has_a_name():
    path = DATA / "literals_in_functions.py"
    assert {"get_inputs.224", "get_inputs.2048", "get_init_inputs.2048"} <= set(constants.names(path.read_bytes()))
    problem = replace(unknown(path), overrides={"get_inputs.224": 8, "get_inputs.512": 2})
    assert [tuple(x.shape) for x in problem.module().get_inputs()] == [(2, 3, 8, 8), (2, 2048)]
    with pytest.raises(JudgeError, match="no module-level name get_inputs.225"):
        replace(problem, overrides={"get_inputs.225": 8}).module()


def test_values_are_python_literals():
    assert constants.given("a=16,b = (2, 3),c='x'") == {"a": 16, "b": [2, 3], "c": "x"}
    for word in ("a", "=3", "a=open('x')", "a=b", "a=", "a=b'x'", "a={1}"):
        with pytest.raises(UsageError, match="NAME=VALUE"):
            constants.given(word)


def test_given_values_stay_and_the_others_are_derived():
    problem = sizes.settle(unknown(DATA / "attention_heads.py"), {"width": 256}, known=False)
    assert problem.overrides["width"] == 256 and problem.overrides["length"] < 512


def test_overrides_of_a_shipped_problem_leave_its_known_work_out():
    problem = sizes.settle(catalogue.load("L1_36"), {"batch_size": 3}, known=True)
    assert problem.overrides == {"batch_size": 3} and problem.work is None
    assert sizes.settle(catalogue.load("L1_36"), {}, known=True) == catalogue.load("L1_36")


# -- memory


def test_too_much_memory_is_refused_with_the_number_and_a_remedy(monkeypatch):
    monkeypatch.setattr(sizes, "free_bytes", lambda: 22 * 10**9)
    problem = unknown(DATA / "pooling_windows.py", "full")
    with pytest.raises(PrerequisiteError) as refused:
        sizes.require_memory(problem, sizes.measure(problem), "cpu")
    text = str(refused.value)
    assert text.startswith("problem pooling_windows at full size needs about 28 GB; this machine has 22 GB free. "), (
        text
    )
    assert "Use --size smoke, or shrink it: --shapes NAME=VALUE" in text and refused.value.exit_code == 1


def test_the_estimate_grows_with_the_inputs_and_counts_the_reference():
    problem = unknown(DATA / "dependent_rows.py", "full")
    measured = sizes.measure(problem)
    needed, gpu = sizes.needed_bytes(problem, measured, "cpu")
    assert gpu == 0 and needed > sizes.BASE_BYTES + 4 * 8 * measured.input_bytes // 4
    host, gpu = sizes.needed_bytes(problem, measured, "cuda")
    assert host < needed and gpu > 4 * measured.input_bytes


def test_a_control_group_limits_what_is_free(tmp_path, monkeypatch):
    before = sizes.free_bytes()
    (tmp_path / "limit").write_text("3000000\n")
    (tmp_path / "used").write_text("1000000\n")
    (tmp_path / "memory.stat").write_text("anon 600000\ninactive_file 400000\n")
    monkeypatch.setattr(sizes, "_CGROUPS", ((tmp_path, "limit", "used", "inactive_file"),))
    assert sizes.free_bytes() == 2400000 < before
    (tmp_path / "limit").write_text("max\n")
    assert sizes.free_bytes() > 2400000


# -- judged

Judged = Callable[..., tuple[int, dict]]


@pytest.fixture
def judged(tmp_path: Path) -> Judged:
    """Exit code and the entry of `--json` of `repro evaluate`, a problem's own Model as the solution unless given."""

    def judge(path: Path, *words: str, solution: str = "") -> tuple[int, dict]:
        file, out = tmp_path / "mine.py", tmp_path / "out.json"
        file.write_text(solution or path.read_text().replace("Model", "ModelNew"))
        local = ["--engine", "local", "--device", "cpu", "--no-timing", "--results", str(tmp_path / "results")]
        spec = words[0] if words and not words[0].startswith("-") else str(path)
        more = words[1:] if words and not words[0].startswith("-") else words
        code = main.main(["evaluate", str(file), "--problem", spec, "--json", str(out), *local, *more])
        (entry,) = json.loads(out.read_text())["results"]
        return code, entry

    return judge


@pytest.mark.slow
def test_a_large_file_is_judged_without_a_gpu_and_says_at_which_sizes(judged, capsys):
    code, entry = judged(DATA / "grouped_convolution.py", "--shapes", "batch_size=3")
    assert code == 0 and entry["verdict"] == "correct", entry
    assert entry["sizes"].startswith("smoke: batch_size=3, ") and "height=" in entry["sizes"]
    printed = capsys.readouterr()
    assert entry["sizes"] in printed.out and entry["sizes"] in printed.err


CHEAT = """import torch.nn as nn

class ModelNew(nn.Module):
    def __init__(self, *args):
        super().__init__()
        self.conv = nn.Conv2d(args[0], args[1], args[2], groups=args[3])

    def forward(self, x):
        return x.new_zeros(self.conv(x[:1]).shape).expand(len(x), -1, -1, -1).contiguous()
"""


@pytest.mark.slow
def test_zeros_are_wrong_at_a_derived_size(judged):
    assert judged(DATA / "grouped_convolution.py", solution=CHEAT)[1]["verdict"] == "incorrect"


@pytest.mark.alike
@pytest.mark.slow
@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_an_honest_solution_of_any_file_is_correct(judged, path):
    assert judged(path)[1]["verdict"] == "correct"


def test_an_unknown_constant_is_wrong_use_and_the_files_own_are_named(tmp_path, capsys):
    path = DATA / "pooling_windows.py"
    words = ["--problem", str(path), "--shapes", "batch=2", "--engine", "local", "--device", "cpu"]
    assert main.main(["evaluate", str(path), *words, "--results", str(tmp_path)]) == 1
    told = capsys.readouterr().err
    assert "pooling_windows.py has no constant batch: its constants are batch_size, channels, dim1" in told


@pytest.mark.parametrize(
    ("published", "reduced", "power", "most", "kept"),
    [(4095, 128, 128, 4095, 127), (65535, 1024, 128, 65535, 1023), (4096, 60, 128, 4096, 128), (4096, 60, 64, 60, 64),
     (1000, 125, 128, 1000, 120), (96, 24, 128, 96, 96), (1536, 96, 128, 1536, 384), (300, 75, 16, 300, 76),
     (64, 8, 16, 64, 16)],
)  # fmt: skip
def test_reduced_sizes_keep_remainders_and_their_absence(published, reduced, power, most, kept):
    """A kernel without a mask for the last block is wrong at both or right at both."""
    assert sizes._nearest(published, reduced, power, most) == kept


def test_an_irregular_size_stays_irregular_and_a_whole_one_whole(tmp_path):
    for name, divided, power in (("8191", False, False), ("8192", True, True), ("1536", True, False)):
        file = tmp_path / f"rows_{name}.py"
        file.write_text((FRAMES / "softmax_rows.py").read_text().replace("1000", name))
        columns = sizes.derive(unknown(file)).overrides["columns"]
        assert (columns % 128 == 0) == divided and (columns.bit_count() == 1) == power, name
