"""Rewrites of our own kernels in Triton's interpreter: exact ones keep every bit, whether or not guards hold."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from conftest import WHOLE

from repro import config
from repro.optimize import knobs, rewrites
from repro.optimize.kernel_source import KernelSource, NotApplicable, ast_hash, refusal
from repro.optimize.proposers.search import directions
from repro.system.jsonio import Json

INPUTS = {path.parent.name[:2]: path.read_text() for path in sorted(config.ARTIFACTS_DIR.glob("*/input_kernel.py"))}
ORACLE = {path.stem: path.read_text() for path in sorted(config.ORACLE_DIR.glob("*.py"))}
# Of each kernel: shapes that blocks divide, and shapes that they do not.
SHAPES = {
    "04": [([[32, 512], [512, 1]], {}), ([[19, 300], [300, 1]], {})],
    "36": [([[2, 8, 16, 32], ], {}), ([[2, 7, 9, 31]], {})],
    "43": [
        ([[1, 1, 8, 16, 32]], {"kernel_size": 3, "stride": 2, "padding": 1, "dilation": 1}),
        ([[2, 2, 7, 8, 9]], {"kernel_size": 3, "stride": 2, "padding": 1, "dilation": 3}),
    ],
    "77": [
        ([[1, 32, 2, 3, 3], [32, 32, 3, 3, 3]], {"stride": 2, "padding": 1, "dilation": 2}),
        ([[2, 5, 1, 3, 2], [5, 7, 3, 3, 3]], {"stride": 2, "padding": 1, "dilation": 2}),
    ],
    "82": [([[1, 2, 18, 34], [2, 1, 3, 3]], {"stride": 1}), ([[1, 3, 11, 13], [3, 1, 3, 3]], {"padding": 1})],
}  # fmt: skip
# Sizes below those of `--size smoke`, for kernels that the interpreter runs slowest.
SMALLER = {
    "L1_97": {"batch_size": 1},
    "L2_34": {"batch_size": 1, "H": 2},
    "L3_20": {"batch_size": 1, "resolution": 8},
    "L3_44": {"batch_size": 1},
}
PROGRAM = """
import dataclasses, importlib.util, json, os, sys, traceback, warnings
import torch, triton
from repro.judge.worker import triton_interpreter
from repro.problems import catalogue, plan as inputs

warnings.simplefilter("ignore")
torch.set_num_threads(1)
triton_interpreter.mend()


def entry(file):
    spec = importlib.util.spec_from_file_location(os.path.basename(file)[:-3], file)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def result(case, file, seed):
    torch.manual_seed(seed)
    module = entry(file)
    if "problem" in case:
        problem = catalogue.load(case["problem"], size="smoke")
        problem = dataclasses.replace(problem, overrides=problem.overrides | case["smaller"])
        own = problem.module()
        model = module.ModelNew(*own.get_init_inputs()).eval()
        tensors = own.get_inputs()
        with torch.no_grad():
            return model(*tensors)
    dtype = getattr(torch, case["dtype"])
    tensors = [torch.randn(shape).to(dtype) for shape in case["shapes"]]
    if seed:
        tensors[0].view(-1)[::97] *= 1000
    return module.kernel_function(*tensors, **case["given"])


def results(case, file):
    # both seeds of an input kernel; a problem's own inputs are drawn once
    return [result(case, file, seed) for seed in ((0,) if "problem" in case else (0, 1))]


originals = {}
for case in json.load(sys.stdin):
    original, rewritten = case["files"]
    known = json.dumps([original, case.get("shapes"), case.get("dtype")])
    if known not in originals:
        originals[known] = results(case, original)
    if os.fork() == 0:
        try:
            said = "equal"
            for a, b in zip(originals[known], results(case, rewritten), strict=True):
                assert a.shape == b.shape and a.dtype == b.dtype, (a.shape, b.shape, a.dtype, b.dtype)
                if not torch.equal(a.nan_to_num(7), b.nan_to_num(7)):
                    said = f"relative difference {float((a.double() - b.double()).norm() / a.double().norm()):.2e}"
        except BaseException:
            said = traceback.format_exc()[-1500:]
        print(json.dumps(said), flush=True)
        os._exit(0)
    if code := os.waitstatus_to_exitcode(os.wait()[1]):
        print(json.dumps(f"it ended with {code}"), flush=True)
"""


def run(cases: list[Json]) -> list[str]:
    """What each case says: `equal`, a difference, or a traceback."""
    environment = {**os.environ, "TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1", "PYTHONPATH": str(config.ROOT)}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], input=json.dumps(cases), stdout=subprocess.PIPE, text=True,
        env=environment, check=True,
    )  # fmt: skip
    return list(map(json.loads, done.stdout.splitlines()))


def pairs(folder: Path, number: str, texts: dict[str, str], dtype: str = "float32") -> list[Json]:
    """Cases of one input kernel: each text beside the original, on each of its shapes."""
    return beside(folder, {number: INPUTS[number], **texts}, SHAPES[number], dtype)


def beside(folder: Path, texts: dict[str, str], shapes: Any, dtype: str = "float32") -> list[Json]:
    """Cases of each text beside the first one, on each of the shapes."""
    original, *files = (folder / f"kernel_{re.sub(r'[.=]', '_', name)}.py" for name in texts)
    for file, text in zip((original, *files), texts.values(), strict=True):
        file.write_text(text)
    return [
        {"name": file.stem, "files": [str(original), str(file)], "shapes": shape, "given": given, "dtype": dtype}
        for file in files for shape, given in shapes
    ]  # fmt: skip


def different(cases: list[Json], within: float = 0.0) -> dict[str, str]:
    """By name, what is said of cases that are not equal, nor as near as that, or as their own `within`."""
    near = "relative difference "

    def differs(case: Json, said: str) -> bool:
        least = case.get("within", within)
        return said != "equal" and not (said.startswith(near) and float(said.removeprefix(near)) < least)

    return {case["name"]: said for case, said in zip(cases, run(cases), strict=True) if differs(case, said)}


@pytest.mark.alike
@pytest.mark.slow
@pytest.mark.parametrize("number", SHAPES)
def test_exact_rewrites_keep_every_bit(number, tmp_path):
    source = KernelSource(INPUTS[number])
    texts = {name: text for name, text in rewrites.applicable(source.text).items()
             if rewrites.BY_NAME[name].kind == rewrites.EXACT}  # fmt: skip
    assert len(texts) >= 5
    assert different(pairs(tmp_path, number, texts)) == {}


@pytest.mark.alike
@pytest.mark.slow
@pytest.mark.parametrize("number", SHAPES)
def test_exact_rewrites_stack_and_keep_every_bit_in_bfloat16(number, tmp_path):
    text, applied = INPUTS[number], []
    for name in ("constant_sizes", "unrolled", "pipelined", "small_offsets", "no_masks"):
        found = rewrites.applicable(text)
        if name in found:
            text, applied = found[name], [*applied, name]
    assert len(applied) >= 4, applied
    assert different(pairs(tmp_path, number, {"all": text}, "bfloat16")) == {}, applied


@pytest.mark.slow
def test_reassociating_rewrites_stay_near(tmp_path):
    cases = []
    for number, name in (("04", "vector_accumulator"), ("04", "split_reduction"), ("36", "register_tile")):
        cases += pairs(tmp_path, number, {name: rewrites.applicable(INPUTS[number])[name]})
    assert different(cases, 1e-6) == {}


@pytest.mark.slow
def test_exact_knobs_keep_every_bit(tmp_path):
    cases = []
    for number in ("36", "43", "82"):
        source = KernelSource(INPUTS[number])
        texts = {}
        for knob in knobs.find(source):
            if knob.exact:
                value = next(v for v in knob.values if v not in (knob.now, 0))
                texts[f"{knob.name}={value}"] = knobs.apply(source, {knob.name: value})
        assert any(".BLOCK=" in name for name in texts) and any("maxnreg" in name for name in texts)
        cases += pairs(tmp_path, number, texts)
    assert different(cases) == {}


@pytest.mark.alike
@pytest.mark.slow
@pytest.mark.parametrize("stem", ORACLE)
def test_exact_rewrites_of_the_oracle_keep_every_bit(stem, tmp_path):
    texts = {name: text for name, text in rewrites.applicable(ORACLE[stem]).items()
             if rewrites.BY_NAME[name].kind == rewrites.EXACT}  # fmt: skip
    assert texts
    problem = "_".join(stem.split("_")[:2])
    own = {"problem": problem, "smaller": SMALLER.get(problem, {})}
    cases = beside(tmp_path, {"original": ORACLE[stem], **texts}, [(None, None)])
    assert different([{"name": case["name"], "files": case["files"], **own} for case in cases]) == {}


def test_every_rewrite_changes_the_program_and_passes_the_ban_list():
    for text in INPUTS.values():
        for name, rewritten in rewrites.applicable(text).items():
            assert ast_hash(rewritten) not in ("", ast_hash(text)), name
            assert refusal(rewritten) == "", name


def test_a_knob_changes_one_literal_and_nothing_else():
    source = KernelSource(INPUTS["43"])
    text = knobs.apply(source, {"max_pool_kernel.BLOCK": 512, "max_pool_kernel.num_warps": 8})
    assert text == INPUTS["43"].replace("block = 256", "block = 512").replace("num_warps=4", "num_warps=8")
    with pytest.raises(NotApplicable, match="no knob"):
        knobs.apply(source, {"max_pool_kernel.TILE": 2})


def test_an_output_in_place_is_given_memory_of_its_own():
    text = """
import torch, triton
import triton.language as tl


@triton.jit
def double(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y_ptr + i, 2 * tl.load(x_ptr + i, mask=i < n), mask=i < n)


def kernel_function(x, out=None):
    y = x if out is None else out
    double[(triton.cdiv(x.numel(), 64),)](x, y, x.numel(), BLOCK=64)
    return y
"""
    assert "y = torch.empty_like(x) if out is None else out" in rewrites.applicable(text)["own_output"]


def test_a_flat_index_becomes_tiles_of_rows_and_columns():
    """No lane divides by the width; the offsets of 64 bits, in brackets now, can still be made small."""
    for number in ("43", "82"):
        text = rewrites.BY_NAME["row_tiles"].apply(KernelSource(INPUTS[number]))
        assert "% OW" not in text and "// OW" not in text and "BLOCK" not in text.partition("def kernel_function")[2]
        turned = {knob.name.partition(".")[2] for knob in knobs.find(KernelSource(text))}
        assert {"ROWS", "COLUMNS"} <= turned
        assert "(tl.program_id(0) // across) * ROWS" in rewrites.BY_NAME["small_offsets"].apply(KernelSource(text))
    named = INPUTS["82"].replace("    index = tl.program_id(0)", "    pid = tl.program_id(0)\n    index = pid")
    assert "% OW" not in rewrites.BY_NAME["row_tiles"].apply(KernelSource(named))
    again = named.replace("mask=index < total)", "mask=(index < total) & (pid >= 0))")
    unbounded = INPUTS["82"].replace(", acc, mask=index < total)", ", acc)")
    for text in (INPUTS["04"], INPUTS["36"], INPUTS["77"], again, unbounded):
        with pytest.raises(NotApplicable):
            rewrites.BY_NAME["row_tiles"].apply(KernelSource(text))


def test_hashes_ignore_comments_and_docstrings():
    text = INPUTS["36"]
    assert ast_hash(text) == ast_hash(text.replace('"""Normalises', '"""Says otherwise') + "\n# a comment\n")
    assert ast_hash(text) != ast_hash(text.replace("256", "128"))
    assert ast_hash("def f(:") == ""
    assert "not Python" in refusal("def f(:")
    assert "line 2" in refusal("import torch\ntorch.cuda.Event.record = print\n")


GRID_FUNCTION = """
import torch, triton
import triton.language as tl


@triton.jit
def row_sums(x_ptr, out_ptr, M, K, BLOCK_M: tl.constexpr, BLOCK_K: tl.constexpr):
    pid = tl.program_id(axis=0)
    rows = pid * BLOCK_M + tl.arange(0, BLOCK_M)
    acc = tl.zeros([BLOCK_M], dtype=tl.float32)
    for k in tl.range(0, K, BLOCK_K):
        cols = k + tl.arange(0, BLOCK_K)
        mask = (rows < M)[:, None] & (cols < K)[None, :]
        acc += tl.sum(tl.load(x_ptr + rows[:, None] * K + cols[None, :], mask=mask, other=0.0), axis=1)
    total = acc.to(tl.float32)
    places = out_ptr + rows
    tl.store(places, total, mask=rows < M)


def kernel_function(x):
    out = torch.empty(x.shape[0], device=x.device, dtype=torch.float32)
    M, K = x.shape
    BLOCK_M, BLOCK_K = 4, 16

    def grid(meta):
        return (triton.cdiv(M, meta["BLOCK_M"]),)

    row_sums[grid](x, out, M, K, BLOCK_M=BLOCK_M, BLOCK_K=BLOCK_K)
    return out
"""


ROWS_OF_TWO_SIZES = [([[8, 32]], {}), ([[7, 50]], {})]


@pytest.mark.slow
def test_a_grid_that_is_a_function_is_rewritten_like_a_tuple(tmp_path):
    head, _, tail = GRID_FUNCTION.partition("    def grid(meta):\n        return ")
    cases = []
    for form, text in (("function", GRID_FUNCTION), ("lambda", f"{head}    grid = lambda meta: {tail}")):
        (tmp_path / form).mkdir()
        found = rewrites.applicable(text)
        assert {"no_masks", "unroll_factor", "split_reduction"} <= found.keys()
        for name, changed in found.items():
            within = 0.0 if rewrites.BY_NAME[name].kind == rewrites.EXACT else 1e-6
            made = beside(tmp_path / form, {"original": text, name: changed}, ROWS_OF_TWO_SIZES)
            cases += [case | {"within": within} for case in made]
    assert different(cases) == {}


@pytest.mark.slow
def test_positions_with_the_same_taps_come_together_however_they_are_taken_apart(tmp_path):
    apart = "    od, oh, ow = m // (OH * OW), m // OW % OH, m % OW\n"
    lines = "    ow = m % OW\n    rest = m // OW\n    oh = rest % OH\n    od = rest // OH\n"
    head, loop, tail = INPUTS["77"].partition("                for start in range(0, C_IN, BLOCK_K):\n")
    body, end, rest = tail.partition("    positions = ")
    assert apart in head and loop and end
    body = "".join(line.removeprefix("    ") for line in body.splitlines(keepends=True))
    text = head.replace(apart, lines) + "                start = 0\n" + body + end + rest
    skipped = rewrites.BY_NAME["skipped"].apply(KernelSource(text))
    tests = [skipped.count(f"if tl.max({mask}.to(tl.int32)) > 0:") for mask in ("in_d", "in_h", "inside")]
    assert tests == [1, 1, 1] and "> 0:\n                            at = " in skipped
    texts = {"skipped": skipped}
    for name, source in (("both", skipped), ("alone", text), ("theirs", INPUTS["77"])):
        texts[name] = rewrites.BY_NAME["residue_order"].apply(KernelSource(source))
        with pytest.raises(NotApplicable):
            rewrites.BY_NAME["residue_order"].apply(KernelSource(texts[name]))
    product = 'acc = tl.dot(x, w, acc, input_precision="ieee")'
    for refused in (skipped, text.replace(product, f"{product}; acc = tl.dot(x + 1, w, acc)")):  # not of masked zeros
        with pytest.raises(NotApplicable):
            rewrites.BY_NAME["skipped"].apply(KernelSource(refused))
    cases = [case for dtype in ("float32", "bfloat16") for case in pairs(tmp_path, "77", texts, dtype)]
    assert different(cases) == {}


SHARED_TILES = """
import torch, triton
import triton.language as tl


@triton.jit
def taps(x_ptr, w_ptr, out_ptr, M, N, K, TAPS, sx, st, sk, sn, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    rows = tl.program_id(axis=1) * BM + tl.arange(0, BM)
    cols = tl.program_id(axis=0) * BN + tl.arange(0, BN)
    acc = tl.zeros([BM, BN], dtype=tl.float32)
    for tap in range(TAPS):
        for k in tl.range(0, K, BK):
            ks = k + tl.arange(0, BK)
            inside = (ks[:, None] < K) & (cols[None, :] < N)
            place = w_ptr + tap * st + ks[:, None] * sk + cols[None, :] * sn
            w = tl.load(place, mask=inside, other=0.0)
            valid = (rows < M)[:, None] & (ks < K)[None, :]
            x = tl.load(x_ptr + rows[:, None] * sx + (ks + tap)[None, :], mask=valid, other=0.0)
            acc = tl.dot(x, w, acc, input_precision="ieee")
    tl.store(out_ptr + rows[:, None] * N + cols[None, :], acc, mask=(rows < M)[:, None] & (cols < N)[None, :])


def kernel_function(x, w):
    (M, many), (K, N, TAPS) = x.shape, w.shape
    sk, sn, st = w.stride()
    out = torch.empty((M, N), device=x.device, dtype=torch.float32)
    grid = lambda meta: (triton.cdiv(N, meta["BN"]), triton.cdiv(M, meta["BM"]))
    taps[grid](x, w, out, M, N, K, TAPS, many, *(st, sk, sn), BM=16, BN=16, BK=16, num_warps=2)
    return out
"""


@pytest.mark.slow
def test_a_tile_that_programs_share_is_packed_before_the_launch(tmp_path):
    """Whatever its strides, with its mask, and together with other rewrites; numbers turn for both launches."""
    cases = []
    for number, text, shapes in (("77", INPUTS["77"], SHAPES["77"]), ("own", SHARED_TILES, PACKED_SHAPES)):
        texts = {number: text}
        for at, names in enumerate(PACKED_WITH):
            changed = text
            for name in names.split():
                changed = rewrites.applicable(changed).get(name, changed)
            assert changed.count("packed_tiles_of(") == 2 and "packed" not in rewrites.applicable(changed)
            texts[f"{number}_{at}"] = changed
        knob = next(k.name for k in knobs.find(KernelSource(changed)) if k.name.endswith(("BN", "BLOCK_N")))
        texts[f"{number}_turned"] = knobs.apply(KernelSource(changed), {knob: 64})
        cases += [case for dtype in ("float32", "bfloat16") for case in beside(tmp_path, texts, shapes, dtype)]
    assert different(cases) == {}


PACKED_WITH = (
    "packed", "residue_order skipped packed constant_sizes",
    "packed unrolled skipped residue_order small_offsets no_masks",
)  # fmt: skip
PACKED_SHAPES = [([[33, 21], [20, 19, 2]], {}), ([[16, 50], [48, 32, 3]], {})]
SOFTMAX_ROWS = """
import torch, triton
import triton.language as tl


@triton.jit
def softmax_rows(x_ptr, out_ptr, M, K, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    inside = (rows < M)[:, None]
    top = tl.full([ROWS], float("-inf"), dtype=tl.float32)
    total = tl.zeros([ROWS], dtype=tl.float32)
    for start in range(0, K, BLOCK):
        cols = start + tl.arange(0, BLOCK)[None, :]
        x = tl.load(x_ptr + rows[:, None] * K + cols, mask=inside & (cols < K), other=float("-inf")).to(tl.float32)
        top = tl.maximum(top, tl.max(x, axis=1))
    for start in range(0, K, BLOCK):
        cols = start + tl.arange(0, BLOCK)[None, :]
        x = tl.load(x_ptr + rows[:, None] * K + cols, mask=inside & (cols < K), other=0.0).to(tl.float32)
        total += tl.sum(tl.where(cols < K, tl.exp2((x - top[:, None]) * 1.4426950408889634), 0.0), axis=1)
    for start in range(0, K, BLOCK):
        cols = start + tl.arange(0, BLOCK)[None, :]
        at = rows[:, None] * K + cols
        x = tl.load(x_ptr + at, mask=inside & (cols < K), other=0.0).to(tl.float32)
        y = tl.exp2((x - top[:, None]) * 1.4426950408889634) / total[:, None]
        tl.store(out_ptr + at, y, mask=inside & (cols < K))


def kernel_function(x):
    out = torch.empty_like(x)
    M, K = x.shape
    softmax_rows[(triton.cdiv(M, 4),)](x, out, M, K, ROWS=4, BLOCK=16)
    return out
"""
# The same with one program a row, so with numbers in the place of vectors.
SOFTMAX_ROW = (
    SOFTMAX_ROWS.replace("ROWS + tl.arange(0, ROWS)", "ROWS").replace("[:, None]", "").replace("[None, :]", "")
)
for vector, number in {
    'tl.full([ROWS], float("-inf"), dtype=tl.float32)': 'float("-inf")', "tl.zeros([ROWS], dtype=tl.float32)": "0.0",
    "axis=1": "axis=0", "ROWS=4": "ROWS=1", "cdiv(M, 4)": "cdiv(M, 1)",
}.items():  # fmt: skip
    SOFTMAX_ROW = SOFTMAX_ROW.replace(vector, number)


@pytest.mark.slow
def test_a_softmax_of_two_passes_is_that_of_three(tmp_path):
    """Also for rows of which a block holds -inf alone: there -inf - -inf would be no number."""
    begin = "    out = torch.empty_like(x)\n"
    masked = begin + "    x = torch.where(torch.arange(x.shape[1]) < 20, float('-inf'), x * 50)\n"
    cases = []
    for at, text in enumerate((SOFTMAX_ROWS, SOFTMAX_ROW)):
        text = text.replace(begin, masked)
        joined = rewrites.BY_NAME["joined_passes"].apply(KernelSource(text))
        assert joined.count("for start in") == 2
        with pytest.raises(NotApplicable):
            rewrites.BY_NAME["joined_passes"].apply(KernelSource(joined))
        cases += beside(tmp_path, {f"apart{at}": text, f"joined{at}": joined}, ROWS_OF_TWO_SIZES)
    assert different(cases, 1e-6) == {}


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("top = tl.maximum(top, tl.max(x, axis=1))", "top = tl.maximum(top, tl.max(x, axis=1)) + 1.0"),
        ("top = tl.maximum(top, tl.max(x, axis=1))", "x += top[:, None]; top = tl.maximum(top, tl.max(x, axis=1))"),
        ("total += tl.sum(tl.where(", "total += 1.0 + tl.sum(tl.where("),
        ("total += tl.sum(tl.where(cols < K, ", "total += tl.sum(tl.where(x < top[:, None], "),
        ("(x - top[:, None]) * 1.4426950408889634), 0.0)", "(x - top[:, None]) * 1.4426950408889634), 1.0)"),
        ("(x - top[:, None]) * 1.4426950408889634), 0.0)", "(x - 2.0 * top[:, None]) * 1.4426950408889634), 0.0)"),
        ("top = tl.maximum(top, tl.max(x, axis=1))\n", "top = tl.maximum(top, tl.max(x, axis=1))\n    top += 1.0\n"),
        ("top = tl.maximum(top, tl.max(x, axis=1))", "top, y = tl.maximum(top, tl.max(x, axis=1)), 1.0"),
        ('float("-inf"), dtype', "0.0, dtype"),
        ("range(0, K, BLOCK)", "range(1, K, BLOCK)"),
    ],
)  # fmt: skip
def test_passes_that_are_no_softmax_stay_apart(old, new):
    changed = SOFTMAX_ROWS.replace(old, new, 1)
    assert changed != SOFTMAX_ROWS and "joined_passes" in rewrites.applicable(SOFTMAX_ROWS)
    assert "joined_passes" not in rewrites.applicable(changed)


def compiled(cache: Path, *command: object) -> str:
    """What a program prints that compiles kernels, with a cache and settings of its own."""
    env = {name: value for name, value in os.environ.items() if not name.startswith("TRITON_")}
    env |= {"TRITON_CACHE_DIR": str(cache), "PYTHONPATH": str(config.ROOT / "tests")}
    return subprocess.run([sys.executable, *command], capture_output=True, text=True, env=env, check=True).stdout


@pytest.mark.alike
@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("arch", [80, 89, 90, 100] if WHOLE else [90])
@pytest.mark.parametrize("number", INPUTS)
def test_every_rewrite_compiles_for_every_architecture(number, arch, tmp_path):
    (problem,) = config.ARTIFACTS_DIR.glob(f"{number}_*/problem.py")
    shutil.copy(problem, tmp_path)
    files = []
    for name, text in {"original": INPUTS[number], **rewrites.applicable(INPUTS[number])}.items():
        files.append(tmp_path / f"{name}.py")
        files[-1].write_text(text)
    printed = compiled(tmp_path, config.ROOT / "tests" / "compile_kernels.py", *files, str(arch))
    found = [json.loads(line)["compiled"] for line in printed.splitlines()]
    assert len(found) == len(files) and all(kernel["cubin"] for each in found for kernel in each) and all(found)


GRID_WINDOWS = """
import torch, triton
import triton.language as tl


@triton.jit
def window(x_ptr, w_ptr, out_ptr, H, W, OH, OW, STEP, APART, PAD, K: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(axis=1)
    columns = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    image = tl.program_id(2)
    at = row
    inside = (columns < OW) & (at < OH)
    top = at * STEP - PAD
    acc = tl.zeros([BLOCK], dtype=tl.float32)
    for i in range(K):
        h = top + i * APART
        seen = (h >= 0) & (h < H)
        line = x_ptr + (image * H + tl.where(seen, h, 0)) * W
        for j in range(0, K):
            w = columns * STEP - PAD + j * APART
            x = tl.load(line + w, mask=inside & seen & (w >= 0) & (w < W), other=0.0)
            acc += x * tl.load(w_ptr + i * K + j)
    tl.store(out_ptr + (image * OH + row) * OW + columns, acc, mask=inside)


def kernel_function(x, weight, stride=1, padding=0, dilation=1):
    n, h, w = x.shape
    k, block = weight.shape[0], 16
    oh, ow = ((size + 2 * padding - dilation * (k - 1) - 1) // stride + 1 for size in (h, w))
    out = torch.empty((n, oh, ow), dtype=x.dtype)
    def grid(meta):
        return (triton.cdiv(ow, meta["BLOCK"]), oh, n)
    window[grid](x, weight, out, h, w, oh, ow, stride, dilation, padding, K=k, BLOCK=block)
    return out
"""
LOADS = """
import compile_kernels, pathlib, sys, torch
from triton.runtime.jit import JITFunction

def run(*args, warmup, **given):
    print(compile_kernels.RUN(*args, warmup=True, **given).asm["ttir"].count(" tt.load "))

JITFunction.run = run
compile_kernels.aim(90)
with torch.device("meta"):
    compile_kernels.load(pathlib.Path(sys.argv[1])).kernel_function(torch.empty(2, 64, 64), torch.empty(3, 3))
"""


@pytest.mark.slow
def test_windows_along_an_axis_of_the_grid_share_their_loads_and_keep_every_bit(tmp_path):
    """Sizes that four outputs do not divide, and a size of three. Four outputs of 3 x 3 taps read 6 x 3 inputs."""
    texts = {"original": GRID_WINDOWS}
    for form in ("grid = lambda meta:", "grid ="):
        text = GRID_WINDOWS.replace("def grid(meta):\n        return", form)
        texts[form] = rewrites.BY_NAME["windows"].apply(KernelSource(text.replace('meta["BLOCK"]', "block")))
    texts["function"] = rewrites.BY_NAME["windows"].apply(KernelSource(GRID_WINDOWS))
    given = {"stride": 2, "padding": 1, "dilation": 2}
    shapes = [([[2, 13, 21], [3, 3]], given), ([[1, 5, 7], [3, 3]], {}), ([[1, 8, 9], [2, 2]], {"padding": 1})]
    cases = beside(tmp_path, texts, shapes)
    assert different(cases) == {}
    assert compiled(tmp_path, "-c", LOADS, cases[-1]["files"][1]) == f"{6 * 3 + 3 * 3}\n"


LANES = """
@triton.jit
def first(B):
    return tl.program_id(0) * B

@triton.jit
def lanes(x_ptr, b_ptr, o_ptr, n, W, S, B: tl.constexpr):
    pid = tl.program_id(0).to(tl.int64)
    at = pid * B + tl.arange(0, B)
    mask = at < n
    y = tl.load(x_ptr + at, mask=mask) + tl.load(b_ptr + at % W, mask=mask)
    tl.store(o_ptr + at, y, mask=mask)

def run(x, b):
    out, n = torch.zeros_like(x), x.numel()
    lanes[(triton.cdiv(n, 64),)](x, b, out, n, x.shape[1], 5, B=64)
"""


def fitting(text: str) -> set[str]:
    return {*rewrites.applicable(text)}


COLS = "    cols = k + tl.arange(0, BLOCK_K)\n"


@pytest.mark.parametrize(
    ("names", "text", "old", "new"),
    [
        ("no_masks row_tiles", LANES, "    y =", "    at += S\n    y ="),
        ("no_masks row_tiles", LANES, "    y =", "    at, S = first(at)\n    y ="),
        ("no_masks row_tiles", LANES, "    y =", "    for at in range(S):\n        pass\n    y ="),
        ("no_masks row_tiles", LANES, "    at =", "    pid += S\n    at ="),
        ("no_masks row_tiles", LANES, "    mask =", "    n = n - 1\n    mask ="),
        ("no_masks row_tiles", LANES, "    y =", "    mask &= at % W != 0\n    y ="),
        ("row_tiles", LANES, "pid *", "pid + first(B) + 0 *"),
        ("row_tiles", LANES, "y =", "y = tl.cumsum(at, 0) +"),
        ("row_tiles", LANES, "% W, mask=mask", "% W"),
        ("row_tiles", LANES, "    y =", "    w = W * 2\n    y = at % w +"),
        ("descriptors", GRID_FUNCTION, COLS, COLS + "        cols += BLOCK_K\n"),
        ("split_reduction", GRID_FUNCTION, "    total =", "    acc *= 2\n    total ="),
        ("split_reduction", GRID_FUNCTION, "        acc +=", "        acc *= 2.0\n        acc +="),
        ("split_reduction", GRID_FUNCTION, "acc += tl.sum(", "acc += acc * tl.sum("),
        ("split_reduction", GRID_FUNCTION, "        acc +=", "        if k < M:\n            acc +="),
        ("windows", INPUTS["82"], "* SH - PH", "* oh - PH"),
        ("windows", INPUTS["82"], "    index =", "    acc = 0.0\n    index ="),
        ("windows", INPUTS["43"], "range(0, KD)", "range(0, KD, KD)"),
        ("windows", GRID_WINDOWS, 'BLOCK"]), oh,', 'BLOCK"]), oh + 1,'),
        ("windows", GRID_WINDOWS, "at = row", "at = tl.program_id(1)"),
        ("windows", GRID_WINDOWS, "    row =", "    acc = tl.zeros([BLOCK], dtype=tl.float32)\n    row ="),
        ("windows", GRID_WINDOWS, "    top =", "    image += row\n    top ="),
        ("windows", GRID_WINDOWS, "load(w_ptr", "load(out_ptr"),
        ("windows", GRID_WINDOWS, "acc += x", "acc += (h * 0.7).to(tl.int32) * x"),
        ("skipped", INPUTS["77"], " acc = tl.dot", " w_ptr += 1; acc = tl.dot"),
        ("skipped", INPUTS["77"], " acc = tl.dot", " tl.store(out_ptr, 1.0); acc = tl.dot"),
        ("packed", SHARED_TILES, "range(0, K, BK)", "range(0, tl.cdiv(K, BK))"),
        ("residue_order", INPUTS["77"], "= OD * OH * OW", "= C_OUT"),
        ("split_reduction", GRID_FUNCTION, "load(x_ptr", "load(f() + x_ptr"),
        ("packed", SHARED_TILES, "    tl.store(", "    tl.store(w_ptr, 0.0)\n    tl.store("),
        ("packed", SHARED_TILES, "(x, w, out", "(x, w, w"),
        ("packed", SHARED_TILES, "w_ptr + tap", "w_ptr + tl.program_id(1) + tap"),
        ("packed", SHARED_TILES, "cols[None, :] * sn", "cols[None, :]"),
        ("packed", SHARED_TILES, "            w =", "            place += 1\n            w ="),
        ("packed", SHARED_TILES, "            w =", "            tap += 1\n            w ="),
        ("packed", SHARED_TILES, "range(TAPS)", "range(1, TAPS)"),
        ("packed", SHARED_TILES, "w_ptr + tap", "w_ptr + tl.load(x_ptr) + tap"),
        ("packed", SHARED_TILES, "            w =", "            if tap < 3: w ="),
        ("packed", SHARED_TILES, "    acc =", "    if M < 3:\n        return\n    acc ="),
    ],
)
def test_a_rewrite_that_proves_nothing_does_not_fit(names, text, old, new):
    assert {*names.split()} <= fitting(text) and not {*names.split()} & fitting(text.replace(old, new, 1))


@pytest.mark.parametrize("text", [LANES, GRID_FUNCTION, SOFTMAX_ROWS])
def test_operands_may_be_passed_by_name(text):
    usual = fitting(text)
    for name in ("load(pointer", "store(pointer", "zeros(shape", "full(shape", "sum(input"):
        text = text.replace("tl." + name.partition("(")[0] + "(", f"tl.{name}=")
    text = re.sub(r"(store.*?|full.*?), ", r"\1, value=", text)
    assert usual - fitting(text) <= {"split_reduction", "vector_accumulator"}


def test_a_rewrite_that_fails_ends_no_search_and_does_not_pass_a_test():
    broken = rewrites.Rewrite("", "broken", rewrites.EXACT, lambda source: {}[source.text], "")
    with pytest.warns(RuntimeWarning, match="the rewrite broken failed: KeyError"):
        assert broken.attempt(KernelSource(LANES)) is None
    with pytest.raises(RuntimeWarning):
        broken.attempt(KernelSource(LANES))


def test_only_integers_that_become_addresses_lose_their_64_bits():
    change = rewrites.BY_NAME["small_offsets"].apply
    text = change(KernelSource(LANES.replace("at, y", "at, (y * 8).to(tl.int64)")))
    assert text.count("program_id(0)\n") == 1 and text.count("8).to(tl.int64)") == 2
    assert "if all(t is None or t.numel() <= 2146435072 for t in (x, b, out,)) else" in text
    assert "and isinstance(5, int)" in change(KernelSource(LANES.replace("at % W", "(at * S).to(tl.int64)")))
    small = LANES.replace("(0).to(tl.int64)", "(0)")
    values = [small.replace("at % W", f"({index}).to(tl.int64)") for index in ("at * 0.5", "at / 2", "y")]
    for text in (LANES.replace("at, y", "at, y + at"), *values):
        with pytest.raises(NotApplicable):
            change(KernelSource(text))


def test_numbers_keep_to_what_a_kernel_does_with_them():
    text = rewrites.BY_NAME["constant_sizes"].apply(KernelSource(LANES.replace("% W", "% W.to(tl.int64)")))
    assert "n: tl.constexpr, W, S" in text, "a constant has no method"
    head, grid = LANES.replace("n, 64", "n, 32"), "y, mask=mask"
    for text, largest in ((head.replace(grid, "y"), 64), (head, 512), (LANES.replace(grid, "y"), 512)):
        (knob,) = (k for k in knobs.find(KernelSource(knobs.named(text))) if k.name == "lanes.B")
        assert max(knob.values) == largest
    (direction,) = (d for d in directions("input", INPUTS["04"]) if d.strategy == "split_reduction")
    text = knobs.apply(KernelSource(direction.text), {"add_parts.BLOCK": 512})
    assert "block = 512\n" in text and "256" not in text.partition("add_parts[")[2]
    warps = {k.name: k.exact for k in direction.knobs if "warps" in k.name}
    assert warps == {"matvec_kernel.num_warps": False, "add_parts.num_warps": True}
