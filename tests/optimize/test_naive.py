"""The twelve naive kernels from which searches of KernelBench problems start are right, in Triton's interpreter."""

from __future__ import annotations

import argparse
import functools
import json
import os
import re
import subprocess
import sys

import naive
import pytest
import searches
from conftest import ROOT, WHOLE

from repro.optimize import knobs, rewrites
from repro.optimize.kernel_source import KernelSource, refusal
from repro.optimize.proposers import search
from repro.optimize.state import INPUT, Program, State
from repro.records.search import Options

KERNELS = naive.kernels()
# Rewrites whose results are those of fp16.
HALF = ("dot_fp16", "halved")
CONV = "63_conv_standard_2D__square_input__square_kernel"
PROGRAM = """
import importlib.util, json, pathlib, sys
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
    "42_Max_Pooling_2D": ([3, 2, 1, 2], [(3, 5, 17, 16)], lambda m, x: F.max_pool2d(x, *m.numbers)),
    # stride 2, padding 1 and dilation 2; more channels than a tile has; a mask that is not the padding's
    "63_conv_standard_2D__square_input__square_kernel":
        ([5, 7, 3, 2, 1, 2], [(3, 5, 17, 16)], lambda m, x: m.conv2d(x)),
    "channels": ([20, 70, 2], [(3, 20, 6, 5)], lambda m, x: m.conv2d(x)),
    "mask": ([5, 7, 3, 1, 1], [(2, 5, 8, 9)], lambda m, x: m.conv2d(x * (torch.arange(8) < 7)[:, None])),
}
said = {}
for file in pathlib.Path(sys.argv[1]).glob("*.py"):
    given, shapes, reference = CASES[file.stem.partition(".")[0]]
    spec = importlib.util.spec_from_file_location("naive", file)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    model = module.ModelNew(*given)
    inputs = [torch.randn(shape) for shape in shapes]
    with torch.no_grad():
        said[file.stem] = float((model(*inputs) - reference(model, *inputs)).abs().max())
print(json.dumps(said))
"""


GRID = "grid = (triton.cdiv(x.shape[0], 32), triton.cdiv(w.shape[0], 32))"


@pytest.mark.parametrize(
    ("grid", "turned"),
    [
        (GRID, "grid = (triton.cdiv(x.shape[0], block_m), triton.cdiv(w.shape[0], block_n))"),
        ("grid = ((x.shape[0] + 31) // 32, w.shape[0] // 32)",
         "grid = ((x.shape[0] + 31) // 32, w.shape[0] // block_n)"),
        ("rows = triton.cdiv(x.shape[0], 32)\n        grid = (rows, triton.cdiv(w.shape[0] * 32, 32), 32)",
         "grid = (rows, triton.cdiv(w.shape[0] * 32, block_n), 32)"),
        ("parts = torch.empty(triton.cdiv(x.shape[0], 32))\n        " + GRID,
         "parts = torch.empty(triton.cdiv(x.shape[0], block_m))"),
        ("grid = lambda meta: (triton.cdiv(x.shape[0], meta['BLOCK_M']), triton.cdiv(w.shape[0], 32))",
         "grid = lambda meta: (triton.cdiv(x.shape[0], meta['BLOCK_M']), triton.cdiv(w.shape[0], block_n))"),
        ("grid = (triton.cdiv(x.shape[0], 16), triton.cdiv(w.shape[0], 32))",
         "grid = (triton.cdiv(x.shape[0], 16), triton.cdiv(w.shape[0], block_n))"),
    ],
)  # fmt: skip
def test_a_block_size_that_the_grid_repeats_gets_one_name(grid, turned):
    """Of a naive product each block that was turned alone left out tiles, or made sixteen times too many."""
    text = knobs.named(KERNELS["63_Gemm_ReLU_Divide"].replace(GRID, grid))
    assert turned in text and "BLOCK_N=block_n, BLOCK_K=32," in text and "        block_n = 32\n" in text
    assert knobs.named(text) == text
    source = KernelSource(text)
    other = knobs.apply(source, {"product_kernel.BLOCK_N": 64})
    assert "        block_n = 64\n" in other and knobs.turned(text, other) == ["BLOCK_N 32 → 64"]
    for rewritten in rewrites.applicable(source.text).values():
        assert "w.shape[0], 32" not in rewritten, "a rewrite copies the grid"


def test_a_quotient_of_two_grids_is_named_only_where_it_is_a_block_of_both():
    text = KERNELS["63_Gemm_ReLU_Divide"]
    again = text[text.index("        product_kernel[grid](") : text.index("        return y")]
    both = knobs.named(text.replace("        return y", again + "        return y"))
    assert both.count("BLOCK_M=block_m, BLOCK_N=block_n") == 2 and both.count("block_m = 32") == 1
    other = again.replace("BLOCK_M=32", "BLOCK_M=16")
    alone = knobs.named(text.replace("        return y", other + "        return y"))
    assert "block_m" not in alone and alone.count("BLOCK_N=block_n") == 2


def test_a_number_by_which_the_launch_chooses_is_no_knob():
    """Turned, the kernel without masks would run where the new block does not divide the size."""
    relu = KERNELS["19_ReLU"]
    whole = rewrites.BY_NAME["no_masks"].apply(KernelSource(knobs.named(relu)))
    (block,) = (knob.name for knob in knobs.find(KernelSource(whole)) if knob.name.endswith("BLOCK"))
    turned = knobs.apply(KernelSource(whole), {block: 2048})
    assert turned.count("2048") == 1 and "% (block) == 0" in turned
    written_out = rewrites.BY_NAME["no_masks"].apply(KernelSource(relu))
    assert not [knob for knob in knobs.find(KernelSource(written_out)) if knob.name.endswith("BLOCK")]


def test_a_tile_that_no_register_file_holds_is_not_proposed():
    """256 x 256 with one warp is 2048 numbers a thread; two of a screening's compilers worked at it until the limit."""
    source = KernelSource(KERNELS["63_Gemm_ReLU_Divide"])
    for block, warps, fits in ((256, 1, False), (256, 4, False), (256, 8, True), (128, 4, True), (32, 1, True)):
        tile = {"product_kernel.BLOCK_M": block, "product_kernel.BLOCK_N": block, "product_kernel.num_warps": warps}
        assert knobs.fits(source, tile) is fits, (block, warps)
    space = tuple(knob for knob in knobs.find(source) if knob.name.split(".")[1] in ("BLOCK_M", "BLOCK_N", "num_warps"))
    for sampler in ("optuna", search.SWEEP):
        found = search.ask(space, [], 80, 0, sampler, functools.partial(knobs.fits, source))
        assert found and all(knobs.fits(source, params) for params in found)


def wrong(folder, texts):
    """How far the results of kernels are from torch's, of those that are not near. texts: name -> source."""
    for name, text in texts.items():
        (folder / f"{name}.py").write_text(text)
    env = {**os.environ, "TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-c", PROGRAM, folder], capture_output=True, text=True, env=env, check=True)
    said = json.loads(done.stdout)
    assert said.keys() == texts.keys()
    return {name: off for name, off in said.items() if not off < (0.05 if name.endswith(HALF) else 1e-4)}


@pytest.mark.slow
def test_naive_kernels_are_right(tmp_path):
    """As they are; those of rows where several programs share each; a softmax of two passes; windows; fp16 products."""
    texts = dict(KERNELS)
    for rewrite in ("split_rows", "joined_passes", "windows", *HALF):
        made = {name: rewrites.applicable(text).get(rewrite) for name, text in KERNELS.items()}
        texts |= {f"{name}.{rewrite}": text for name, text in made.items() if text}
    changed = {"23_Softmax.split_rows", "40_LayerNorm.split_rows", "23_Softmax.joined_passes",
               "42_Max_Pooling_2D.windows"}  # fmt: skip
    changed |= {f"{name}.{rewrite}" for name in (*naive.LINEAR, "1_Square_matrix_multiplication_") for rewrite in HALF}
    assert texts.keys() - KERNELS.keys() == changed and len(KERNELS) == 12
    assert wrong(tmp_path, texts) == {}


def test_a_matrix_that_does_more_than_feed_products_keeps_its_precision():
    text = KERNELS["12_Gemm_Multiply_LeakyReLU"]
    more = "    acc += tl.load(a_ptr + rows[:, None] * K + cols[None, :])\n    acc += tl.load(bias_ptr"
    halved = rewrites.applicable(text.replace("    acc += tl.load(bias_ptr", more))["halved"]
    assert "half_b_ptr" in halved and "half_a_ptr" not in halved
    assert "halved" not in rewrites.applicable(rewrites.applicable(text)["halved"])


TAPS_FIRST = iter(("kh in range(0, K)", "kw in range(K)", "c in tl.range(C)"))
FORMS = {
    "": KERNELS[CONV],
    ".taps_first": re.sub(r"\w+ in range\([CK]\)", lambda found: next(TAPS_FIRST), KERNELS[CONV]),
    ".rest": KERNELS[CONV].replace("oh = index // OW % OH", "rest = index // OW\n    oh = rest % OH"),
    ".wide": KERNELS[CONV].replace("program_id(0)", "program_id(0).to(tl.int64)"),
    ".turned": KERNELS[CONV].replace("acc += x * tap", "acc = acc + tap * x.to(tl.float32)"),
}


@pytest.mark.slow
def test_a_convolution_becomes_a_product_of_matrices(tmp_path):
    """For stride, padding and dilation, whatever its loops and names, and with a mask that is not the padding's."""
    texts = {f"{name}{form}": text for form, text in FORMS.items() for name in (CONV, "channels")}
    texts["mask"] = KERNELS[CONV].replace("(h < H)", "(h < H - 1)")
    rewritten = {name: rewrites.BY_NAME["implicit_product"].apply(KernelSource(text)) for name, text in texts.items()}
    assert not [name for name, text in rewritten.items() if refusal(text)]
    half = {f"{CONV}.{rewrite}": rewrites.applicable(rewritten[CONV])[rewrite] for rewrite in HALF}
    assert wrong(tmp_path, rewritten | half) == {}


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("acc += x * tap", "acc += x * tap + 1.0"),
        ("acc += x * tap", "acc += x * tap * tap"),
        ("acc += x * tap", "acc += x * tap\n            acc *= 0.5"),
        ("acc += x * tap", "acc += x * tap\n            x_ptr += 1"),
        ("& (h >= 0)", "& (f < 3) & (h >= 0)"),
        ("& (h >= 0)", "& (index > 3) & (h >= 0)"),
        ("image * C + c)", "image * C + c + f)"),
        ("(f * C + c)", "(f * C + c + ow)"),
        ("range(C)", "range(1, C)"),
        ("range(C)", "range(0, C, 2)"),
        ("% F\n", "% F\n    F = F + 1\n"),
        ("acc, mask=index < total", "acc"),
        ("acc, mask=", "acc + tl.load(y_ptr + index, mask=index < total), mask="),
        ("y.numel(), 256", "y.numel(), 128"),
    ],
)  # fmt: skip
def test_what_is_almost_a_convolution_stays(old, new):
    changed = KERNELS[CONV].replace(old, new, 1)
    assert changed != KERNELS[CONV] and "implicit_product" not in rewrites.applicable(changed)


@pytest.mark.alike
@pytest.mark.slow
@pytest.mark.parametrize("arch", [80, 90, 100, 120] if WHOLE else [90])
def test_a_product_of_matrices_compiles(arch, tmp_path):
    file = tmp_path / f"{CONV}.py"
    file.write_text(rewrites.applicable(KERNELS[CONV])["implicit_product"])
    env = {k: v for k, v in os.environ.items() if not k.startswith("TRITON_")} | {"TRITON_CACHE_DIR": str(tmp_path)}
    command = [sys.executable, ROOT / "tests" / "compile_kernels.py", file, str(arch)]
    done = subprocess.run(command, capture_output=True, text=True, env=env, check=True)
    found = json.loads(done.stdout)["compiled"]
    assert len(found) == 2 and all(kernel["cubin"] and kernel["arch"] == arch for kernel in found)


@pytest.mark.slow
def test_naive_kernels_have_rewrites_that_may_be_judged():
    for kernel, text in KERNELS.items():
        assert refusal(text) == ""
        found = rewrites.applicable(text)
        assert len(found) >= 3, (kernel, sorted(found))
        assert not [name for name, rewritten in found.items() if refusal(rewritten)]


def test_published_searches_start_from_the_naive_kernels(tmp_path):
    problems = tmp_path / "level1"
    problems.mkdir()
    for name in KERNELS:
        (problems / f"{name}.py").touch()
    options = {"only": "naive", "kernelbench": tmp_path, "seeds": [0, 1, 2], "out": tmp_path / "out", "published": None}
    found = searches.cases(argparse.Namespace(**options, named=""))
    assert len(found) == 36 and {case.kernel.read_text() for case in found} == set(KERNELS.values())
    some = searches.cases(argparse.Namespace(**options, named=next(iter(KERNELS))))
    assert len(some) == 3 and {case.seed for case in some} == {0, 1, 2}
    designs = searches.cases(argparse.Namespace(**options | {"only": "designs", "seeds": [0]}, named=""))
    assert len(designs) == 5 and all(case.design and case.design.parent == case.kernel.parent for case in designs)


def searched(**quick):
    """A proposer and the state after its first round from the square product. quick: speedups by strategy."""
    state = State(Options("p", "full", "float32", "cuda", "input", ("search",), screen=40), beam=[INPUT], round=1)
    state.programs[INPUT] = Program(INPUT, "input", "", "ModelNew", verdict="correct")
    state.sources["input"] = KERNELS["1_Square_matrix_multiplication_"]
    proposer = search.Search()
    for at, each in enumerate(proposer.propose(state, 40).proposals):
        made = Program(f"r1.c{at:02d}", str(at), str(at), each.entry, INPUT, "search", each.strategy, each.kind)
        made.round, made.quick = 1, quick.get(each.strategy, 0.9)
        state.programs[made.id] = made
    return proposer, state


def test_what_helped_is_stacked():
    proposer, state = searched(dot_tf32=2.0, descriptors=1.2)
    (stacked,) = {each.strategy: each for each in proposer.propose(state, 20).proposals}.values()
    assert (stacked.strategy, stacked.kind) == ("dot_tf32+descriptors", "R")
    assert "TensorDescriptor(" in stacked.source and '"tf32"' in stacked.source


def test_usual_tiles_come_first_where_a_rewrite_changed_a_product():
    """Of thirty other numbers on an H200 a tile of 64 x 64 was the best, two thirds as fast as torch."""
    proposer, state = searched(halved=4.0, packed=1.01)
    found = proposer.propose(state, 20).proposals
    sizes = [[each.params.get(f"product_kernel.{name}", now) for name, now in
              {"BLOCK_M": 32, "BLOCK_N": 32, "BLOCK_K": 32, "num_warps": 4, "num_stages": 3}.items()]
             for each in found if each.strategy == "halved"]  # fmt: skip
    assert list(map(tuple, sizes[: len(knobs.TILES)])) == [*knobs.TILES]
    others = [each for each in found if each.strategy == "packed"]
    assert others and len(others[0].params) == 1, "its products are the same"
