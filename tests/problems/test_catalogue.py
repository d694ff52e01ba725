"""The shipped problems: their files, their work, their sizes; and files from elsewhere."""

from __future__ import annotations

import hashlib
import json
import math
import re
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from repro import config
from repro.bundle.write import Bundle
from repro.cli import main
from repro.errors import JudgeError, PrerequisiteError, ProblemError, UsageError
from repro.fixtures import store
from repro.problems import catalogue, meta
from repro.problems import plan as inputs

ARTIFACT_FOLDERS = {
    "L1_04": "04_Matrix_vector_multiplication",
    "L1_36": "36_RMSNorm",
    "L1_43": "43_Max_Pooling_3D",
    "L1_77": "77_conv_transposed_3D_square_padded_dilated_strided",
    "L1_82": "82_conv_depthwise_2D_square_input_square_kernel",
}

# Arithmetic that FlopCounterMode does not count, an operation an element: taps of a window; square, add, root, divide.
UNCOUNTED = {"L1_36": 4, "L1_43": 27}


def on_meta(problem_id: str) -> tuple[catalogue.Work, nn.Module, list[torch.Tensor]]:
    """What the catalogue counts, and model and inputs at full size, without memory."""
    problem = catalogue.load(problem_id)
    assert problem.work is not None
    module = problem.module()
    with torch.device("meta"):
        return problem.work, module.Model(*module.get_init_inputs()).eval(), module.get_inputs()


def test_the_suites_are_the_published_ones_in_their_order():
    assert catalogue.suites() == {
        "agent": ["L1_36", "L1_82", "L1_97", "L2_34", "L2_37", "L2_84", "L2_99", "L3_43", "L3_44", "L3_20"],
        "artifacts": ["L1_04", "L1_36", "L1_43", "L1_77", "L1_82"],
    }
    assert {p.dtype for p in catalogue.suite("agent", size="full")} == {"float32"}
    assert {p.dtype for p in catalogue.suite("artifacts", size="full")} == {"bfloat16"}
    files = sorted(p.name for p in config.PROBLEMS_DIR.glob("*.py"))
    assert files == sorted(catalogue.load(i).path.name for i in catalogue.ids()), "every file is listed, and none twice"


def test_the_files_are_those_that_published_bundles_measured():
    """So names and shapes of weights, which a ModelNew must load strictly, are as published, and no skip connection
    is in MobileNetV2, of which KernelBench drops the flag."""
    found = {hashlib.sha256(file.read_bytes()).hexdigest() for file in config.PROBLEMS_DIR.glob("*.py")}
    rows = [row for path in config.ARTIFACTS_DIR.glob("results/h200-pinned/*-[rb]*")
            for row in Bundle.open(path).records().values()]  # fmt: skip
    assert found <= {given.sha256 for row in rows for given in row.inputs or []} and len(found) == len(catalogue.ids())


def test_the_path_of_a_shipped_file_is_that_problem():
    file = config.PROBLEMS_DIR / "L1_36_RMSNorm.py"
    assert catalogue.resolve(str(file), size="smoke") == catalogue.load("L1_36", size="smoke")
    for name in ("36", "l1_36", "RMSNorm", "36_rms"):
        with pytest.raises(UsageError, match="Did you mean L1_36"):
            catalogue.load(name)
    with pytest.raises(UsageError, match="Or give a file"):
        catalogue.load("rms")


def test_a_fixture_that_could_not_be_measured_says_why(tmp_path):
    (tmp_path / "L1_36.failed").write_text("it needs 24 GB")
    with pytest.raises(PrerequisiteError, match="not measured: it needs 24 GB"):
        store.load(tmp_path / "L1_36.json", catalogue.load("L1_36"))


@pytest.mark.parametrize("problem_id", catalogue.ids())
def test_traffic_of_the_catalogue_is_that_of_the_real_shapes(problem_id):
    """Inputs and weights read once, outputs written once; small vectors (biases, norms) may be left out, and what no
    output depends on is."""
    work, model, values = on_meta(problem_id)
    read = sum(t.numel() for t in [*values, *model.parameters()])
    if problem_id == "L1_43":  # kernel 3, stride 2, padding 1, dilation 3: a row is read whole or not at all
        reached = {2 * out - 1 + 3 * tap for out in range(62) for tap in range(3)} & set(range(128))
        read = 16 * 32 * len(reached) ** 2 * 128
    assert work.read_elements == pytest.approx(read, rel=0.01)
    with torch.no_grad():
        assert work.written_elements == model(*values).numel()


@pytest.mark.parametrize("problem_id", catalogue.ids())
def test_arithmetic_of_the_catalogue_is_that_of_the_real_shapes(problem_id):
    """Counted by torch; causal attention counts half of the score matrix."""
    work, model, values = on_meta(problem_id)
    if problem_id in UNCOUNTED:
        assert work.flop == work.written_elements * UNCOUNTED[problem_id]
        return
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        model(*values)
    counted = {str(operation): flop for operation, flop in counter.get_flop_counts()["Global"].items()}
    if problem_id in ("L3_43", "L3_44"):
        counted["aten.bmm"] /= 2
    assert work.flop == pytest.approx(sum(counted.values()), rel=0.01)


@pytest.mark.parametrize("problem_id", ["L1_77", "L2_34"])
def test_arithmetic_of_transposed_convolutions_by_hand(problem_id):
    """Every input element meets every tap of every output channel once: torch's counter is not relied on here."""
    work, model, (x,) = on_meta(problem_id)
    (layer,) = (m for m in model.modules() if isinstance(m, nn.ConvTranspose3d))
    assert work.flop == 2 * x.numel() * layer.out_channels * math.prod(layer.kernel_size)


@pytest.mark.parametrize("problem_id", ARTIFACT_FOLDERS)
def test_artifact_folders_hold_the_same_problem_file(problem_id):
    """A fixture is of one file's text; the artifact study finds it by that text."""
    copy = config.ARTIFACTS_DIR / ARTIFACT_FOLDERS[problem_id] / "problem.py"
    assert copy.read_bytes() == catalogue.load(problem_id).path.read_bytes()


@pytest.mark.parametrize("problem_id", catalogue.ids())
def test_smoke_size_runs_on_the_cpu_and_is_small(problem_id):
    """Real outputs from real inputs in the problem's own code; the full size stays what it was."""
    problem = catalogue.load(problem_id, size="smoke")
    plan = inputs.plan(problem)
    model = inputs.build(problem, plan.module, problem.init_inputs(plan.module))
    with torch.no_grad():
        output = model(*plan.make(1, torch.device("cpu")))
    assert bool(output.isfinite().all()) and output.numel() <= 1 << 20
    assert plan.batch == math.prod(output.shape[: problem.batch_dims]), "the output's rows are those of its inputs"
    full = catalogue.load(problem_id)
    assert problem.work is None and full.work is not None and full.overrides == {}
    assert sum(recipe.numel for recipe in plan.recipes if recipe) <= 1 << 18


def test_faster_algorithms_are_allowed_for_where_they_exist():
    """Winograd and FFT for convolutions with spatial kernels, Strassen for the rest."""
    shares = {i: catalogue.load(i).work.fast_algorithm for i in catalogue.ids()}
    assert {i for i, share in shares.items() if share <= 0.25} == {"L1_77", "L1_82", "L2_34"}
    assert {share for i, share in shares.items() if i not in ("L1_77", "L1_82", "L2_34", "L3_20")} == {0.75}
    spatial, pointwise = mobilenet_flop()
    assert shares["L3_20"] <= (0.25 * spatial + 0.75 * pointwise) / (spatial + pointwise)


def mobilenet_flop() -> tuple[int, int]:
    """Arithmetic of the convolutions with spatial kernels, and of the others."""
    _, model, (x,) = on_meta("L3_20")
    counted = {True: 0, False: 0}

    def count(layer: nn.Conv2d, _: object, y: torch.Tensor) -> None:
        counted[layer.kernel_size[0] > 1] += 2 * y.numel() * layer.weight[0].numel()

    for layer in model.modules():
        if isinstance(layer, nn.Conv2d):
            layer.register_forward_hook(count)
    model(x)
    return counted[True], counted[False]


@pytest.mark.parametrize("problem_id", catalogue.ids())
def test_rows_of_the_output_depend_on_the_same_rows_of_the_batched_inputs_alone(problem_id):
    """What `batch_inputs` and `batch_dims` promise, and what lets the reference be computed in chunks."""
    problem = catalogue.load(problem_id, size="smoke")
    plan = inputs.plan(problem)
    model = inputs.build(problem, plan.module, problem.init_inputs(plan.module)).double()
    values = [value.double() for value in plan.make(1, torch.device("cpu"))]
    rows, last = slice(1, 3), problem.batch_dims - 1
    part = [value.flatten(0, last)[rows] if i in problem.batch_inputs else value for i, value in enumerate(values)]
    with torch.no_grad():
        torch.testing.assert_close(model(*part), model(*values).flatten(0, last)[rows])


def test_unknown_ids_suites_and_members_are_wrong_use():
    for call in (
        lambda: catalogue.load("L9_01"),
        lambda: catalogue.load("L1_36@int4"),
        lambda: catalogue.suite("nothing", size="full"),
        lambda: catalogue.suite("agent", size="full", only=["L1_04"]),
    ):
        with pytest.raises(UsageError):
            call()
    assert catalogue.load("L1_36@bf16").dtype == "bfloat16"
    assert [p.id for p in catalogue.suite("agent", size="full", only=["L3_20", "L1_36"])] == ["L1_36", "L3_20"]


@pytest.mark.parametrize(
    "name, expected",
    [
        ("L1_36_RMSNorm.py", "L1_36"),
        ("L1_4_x", "L1_04"),
        ("L1_04", "L1_04"),
        ("L2_084_x.py", "L2_84"),
        ("L1_360", None),
        ("L1_1", None),
        ("kernel.py", None),
    ],
)
def test_ids_are_found_at_the_beginning_of_names(name, expected):
    assert catalogue.id_in(name) == expected


# -- files from elsewhere

# In the style of KernelBench's own files, with what ours do not have: a target of integers and a loss of one number.
ELSEWHERE = """import torch
import torch.nn as nn
import torch.nn.functional as F

class Model(nn.Module):
    \"\"\"
    A model that computes a margin ranking of scaled logits.
    \"\"\"
    def __init__(self, width: int):
        super(Model, self).__init__()
        self.proj = nn.Linear(width, width)

    def forward(self, predictions, targets):
        return F.cross_entropy(self.proj(predictions), targets)

batch_size = 64
num_classes = 10

def get_inputs():
    return [torch.rand(batch_size, num_classes) * 8, torch.randint(low=0, high=num_classes, size=(batch_size,))]

def get_init_inputs():
    return [num_classes]
"""
RANKING = """import torch
import torch.nn as nn

class Model(nn.Module):
    def forward(self, x):
        return torch.argmax(x, dim=1)

def get_inputs():
    return [torch.randn(64, 16)]

def get_init_inputs():
    return []
"""


def judged_by_the_command_line(tmp_path: Path, problem: str, solution: str) -> dict:
    """The verdict of `repro evaluate solution.py --problem PATH`, without timing."""
    (tmp_path / "95_elsewhere.py").write_text(problem)
    (tmp_path / "mine.py").write_text(solution)
    out = tmp_path / "out.json"
    words = [str(tmp_path / "mine.py"), "--problem", str(tmp_path / "95_elsewhere.py"), "--json", str(out)]
    local = ["--engine", "local", "--device", "cpu", "--size", "smoke", "--results", str(tmp_path / "results")]
    assert main.main(["evaluate", *words, *local, "--no-timing"]) == 0
    (entry,) = json.loads(out.read_text())["results"]
    return entry


def test_a_kernelbench_file_from_elsewhere_is_judged_unmodified(tmp_path, capsys):
    """Through `--problem PATH`: a fixture is measured on the spot, a right solution is correct."""
    solution = ELSEWHERE.replace("class Model(", "class ModelNew(").replace("super(Model,", "super(ModelNew,")
    entry = judged_by_the_command_line(tmp_path, ELSEWHERE, solution)
    assert entry["verdict"] == "correct" and entry["precision_class"] == "fp32", entry
    assert entry["problem"] == "95_elsewhere"
    assert re.search(r"95.elsewhere +mine\.py +✓ correct", capsys.readouterr().out)


@pytest.mark.slow
def test_a_problem_with_integer_outputs_is_judged(tmp_path):
    """argmax gives int64: right indices are correct."""
    entry = judged_by_the_command_line(tmp_path, RANKING, RANKING.replace("class Model(", "class ModelNew("))
    assert entry["verdict"] == "correct", entry


DRAWN, RETURNED = "[torch.randn(64, 16)]", "torch.argmax(x, dim=1)"


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        (DRAWN, "[open('no data')]", "FileNotFoundError: .* Mend the problem file"),
        (DRAWN, "[torch.rand(8).numpy()]", "returns a list without a tensor. Let it return"),
        (DRAWN, "[torch.rand(8).cuda()]", r"get_inputs\(\) of p.py fails: .* Name no device"),
        (DRAWN, "3", "returns int. Let it return a list"),
        (DRAWN, "torch.rand(4)", "returns Tensor. Let it return a list"),
        (DRAWN, "[3, 4]", "returns a list without a tensor. Let it return"),
        (
            "return []",
            "return [1 / 0]",
            r"get_init_inputs\(\) of p.py fails: ZeroDivisionError: .* Mend the problem file",
        ),
        ("return []", "return [3]", "cannot be built: TypeError: .* Mend the problem file"),
        (RETURNED, "x @ x", "Model of p.py fails: RuntimeError: .* Mend the problem file"),
        (RETURNED, "x.mean().item()", "returns float: only tensors can be judged"),
        (RETURNED, "x[:0]", r"returns an empty tensor: its shape is \(0"),
        (RETURNED, "{'sum': x.sum()}", "returns dict: only tensors can be judged. Let it return a tensor"),
        ("torch.nn as", "no_such.part as", "p.py does not run: .* A problem is one file: .* install no_such where"),
        ("import torch.nn as nn", "from .ops import f", "p.py does not run: .* put code of files beside it into it"),
        ("64, 16", "64, 16", "negative dimension -4: .* or try other constants: --shapes NAME=VALUE"),
    ],
)
def test_a_problem_that_does_not_run_is_the_problems_fault(tmp_path, old, new, said):
    file = tmp_path / "p.py"
    file.write_text(RANKING.replace(old, new))
    with pytest.raises(ProblemError, match=said) as found:
        problem = replace(catalogue.load_file(file), overrides={"get_inputs.16": -4} if old == "64, 16" else {})
        plan = inputs.plan(problem)
        meta.output_spec(plan, inputs.Weights(problem.init_inputs(plan.module), {}))
    assert found.value.exit_code == 1


@pytest.mark.parametrize(
    ("given", "arguments"),
    [
        ("[[64], {'scale': 2.0}]", [64, 2.0]), ("{'width': 64}", [64]), ("[64, {'scale': 2.0}]", [64, 2.0]),
        ("[{'width': 64, 'bias': False}]", [64, 1.0, False]), ("[[], {'width': 3}]", [3]), ("(64, 2.0)", [64, 2.0]),
        ("[[3, 4], True]", [[3, 4], True]), ("[{'other': 3}]", [{"other": 3}]),
    ],
)  # fmt: skip
def test_constructor_arguments_may_have_names(tmp_path, given, arguments):
    file = tmp_path / "p.py"
    init = "(nn.Module):\n    def __init__(self, width, scale=1.0, bias=True):\n        super().__init__()\n"
    file.write_text(RANKING.replace("(nn.Module):\n", init).replace("return []", f"return {given}"))
    problem = catalogue.load_file(file)
    assert problem.init_inputs(problem.module()) == arguments


ACCENTS = "# -*- coding: latin-1 -*-\n# caf\xe9\n".encode("latin-1")


@pytest.mark.parametrize("written", [b"\xef\xbb\xbf%s", ACCENTS + b"%s", b"\f%s", b"\r"], ids=repr)
def test_a_file_is_read_as_python_reads_it(tmp_path, written):
    file = tmp_path / "p.py"
    text = RANKING.encode()
    file.write_bytes(written % text if b"%" in written else text.replace(b"\n", written))
    assert inputs.plan(catalogue.load_file(file)).spec == ((torch.Size([64, 16]), torch.float32),)


def test_a_file_of_a_known_number_takes_the_known_sizes_and_work(tmp_path):
    file = tmp_path / "problem.py"
    file.write_bytes(catalogue.load("L1_36").path.read_bytes())
    known = catalogue.as_known(catalogue.load_file(file, dtype="bfloat16", size="smoke"), "L1_36")
    ours = catalogue.load("L1_36@bf16", size="smoke")
    assert known.path == file and (known.overrides, known.stress, known.key) == (ours.overrides, ours.stress, ours.key)
    file.write_text(RANKING)
    with pytest.raises(JudgeError, match="no module-level name batch_size"):
        known.module()
