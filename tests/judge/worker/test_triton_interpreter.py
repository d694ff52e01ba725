"""bfloat16 kernels in Triton's interpreter give what a GPU would give."""

import json
import subprocess
import sys

import numpy as np
import pytest
from conftest import CPU, rows

from repro import config
from repro.judge.worker import triton_interpreter

KERNEL = """
import torch, triton, triton.language as tl
from repro.judge.worker import triton_interpreter
triton_interpreter.mend()

@triton.jit
def kernel(a, b, product, mixed, N: tl.constexpr):
    at = tl.arange(0, N)[:, None] * N + tl.arange(0, N)[None, :]
    x, y = tl.load(a + at), tl.load(b + at)
    tl.store(product + at, tl.dot(x, y))
    tl.store(mixed + at, (x * y + x).to(tl.float32) + tl.where(x > y, x, y) - x + tl.abs(y))

a, b = torch.randn(32, 32).bfloat16(), torch.randn(32, 32).bfloat16()
product, mixed = torch.empty(32, 32), torch.empty_like(a)
kernel[(1,)](a, b, product, mixed, N=32)
assert torch.allclose(product, a.float() @ b.float(), atol=1e-5)
expected = ((a * b + a).float() + torch.where(a > b, a, b) - a + b.abs()).bfloat16()
assert torch.equal(mixed, expected), (mixed - expected).abs().max()

@triton.jit
def multiply(a, b, product, N: tl.constexpr):
    at = tl.arange(0, N)[:, None] * N + tl.arange(0, N)[None, :]
    tl.store(product + at, tl.dot(tl.load(a + at), tl.load(b + at)))

a, b, order = torch.randn(128, 128), torch.randn(128, 128), torch.randperm(128)
found, moved = torch.empty(128, 128), torch.empty(128, 128)
multiply[(1,)](a, b, found, N=128)
multiply[(1,)](a[order].contiguous(), b, moved, N=128)
assert torch.equal(found[order], moved), "the bits of a row depend on its place in the tile"
"""


WITHOUT_WASTE = """
import inspect, torch, triton, triton.language as tl
from triton.runtime import interpreter
from repro.judge.worker import triton_interpreter
triton_interpreter.mend()

@triton.jit
def more(i):
    return i + 1

@triton.jit
def kernel(out, N: tl.constexpr):
    i = tl.arange(0, N)
    tl.store(out + i, more(i) * (2**31 - 1))

out = torch.zeros(4, dtype=torch.int32)
kernel[(1,)](out, N=4)
patched, operations, described = [], [], []
tl.core.validate_block_shape = described.append
listed, operate = inspect.getmembers, interpreter.InterpreterBuilder.binary_op
inspect.getmembers = lambda *a: patched.append(a) or listed(*a)
interpreter.InterpreterBuilder.binary_op = lambda *a: operations.append(a[-1]) or operate(*a)
kernel[(3,)](out, N=4)
assert patched == described == [], "a second launch patches nothing and describes no type again"
assert len(operations) == 6, operations
assert out.tolist() == [(n * (2**31 - 1) + 2**31) % 2**32 - 2**31 for n in (1, 2, 3, 4)], "int32 wraps around"
"""


LAUNCH = """
import json, torch, triton, triton.language as tl
from repro.judge.worker import triton_interpreter
triton_interpreter.mend()
ends = {}

def run(kernel, name, start, expected):
    x, y, flag = torch.arange(1.0, 17), torch.full((16,), start), torch.zeros(1, dtype=torch.int32)
    try:
        for _ in range(3):
            y.fill_(start), flag.zero_()
            kernel[(4, 2, 2) if name == "three dimensions" else (16,)](x, y, flag)
            ends[name] = y.tolist() == expected and ends.get(name, True)
    except Exception as error:
        ends[name] = getattr(error, "code", repr(error))
"""
GRID = """
@triton.jit
def kernel_{number}(x, y, flag):
    i, n = tl.program_id(0), tl.num_programs(0)
{body}

run(kernel_{number}, {name!r}, {start}, {expected})
"""
SUMS = "torch.arange(1.0, 17).cumsum(0).tolist()"
# name: the body of a kernel, what y holds before, what it must hold then, and how three launches end
LAUNCHES = {
    "own elements": ("tl.store(y + i, tl.load(x + i) + tl.load(y + i))", 1, "list(range(2, 18))", True),
    "atomic sum": ("tl.atomic_add(y, tl.load(x + i))", 0, "[136] + [0] * 15", True),
    "sum by load and store": ("tl.store(y, tl.load(y) + tl.load(x + i))", 0, "[136] + [0] * 15", "race"),
    "scan without flags": (
        "tl.store(y + i, tl.load(x + i) + tl.load(y + i - 1, i > 0, 0.0))", 0, SUMS, "race",
    ),
    "neighbours in place": ("tl.store(y + i, tl.load(y + (i + 1) % n))", 1, "[1] * 16", "race"),
    "scan with flags": (
        "while tl.atomic_add(flag, 0) < i:\n  pass\n"
        "tl.store(y + i, tl.load(x + i) + tl.load(y + i - 1, i > 0, 0.0))\ntl.atomic_add(flag, 1)", 0, SUMS, True,
    ),
    "waits for the next program": (
        "if i % 2 == 0:\n  while tl.load(y + i + 1, volatile=True) < 3:\n    pass\ntl.store(y + i, 3)", 0,
        "[3] * 16", True,
    ),
    "lock": (
        "while tl.atomic_cas(flag, 0, 1) == 1:\n  pass\n"
        "tl.store(y, tl.load(y) + tl.load(x + i))\ntl.atomic_xchg(flag, 0)", 0, "[136] + [0] * 15", True,
    ),
    "barrier": (
        "tl.store(y + i, 2)\ntl.atomic_add(flag, 1)\nwhile tl.atomic_add(flag, 0) < n:\n  pass\n"
        "tl.atomic_add(x + i, tl.load(y + n - 1 - i))", 0, "[2] * 16", True,
    ),
    "three dimensions": (
        "tl.store(y + i * 4 + tl.program_id(1) * 2 + tl.program_id(2), 5)", 0, "[5] * 16", True,
    ),
    "complement": ("tl.store(y + i, (~(~i.to(tl.uint32))).to(tl.float32))", 0, "list(range(16))", True),
}  # fmt: skip


HEAD = """
import json, torch, triton, triton.language as tl
from repro.judge.worker import triton_interpreter
triton_interpreter.mend()
torch.manual_seed(0)
a, b, n = torch.randn(8, 16).bfloat16(), torch.randn(8, 16).bfloat16(), torch.arange(128).view(8, 16) * 3 - 40
ends = {}

def constant(value):
    return torch.tensor(value).bfloat16()

@triton.jit
def least(x, y):
    return tl.where(x < y, x, y)

def run(kernel, name, expected):
    try:
        out = torch.full_like(expected, 77)
        kernel[(1,)](a, b, out)
        ends[name] = "" if torch.equal(out, expected) else f"{out} is not {expected}"
    except Exception as error:
        ends[name] = repr(error)
"""
KERNELS = """
@triton.jit
def kernel_{number}(A, B, OUT):
    rows, columns = tl.arange(0, 8)[:, None], tl.arange(0, 16)[None, :]
    at = rows * 16 + columns
    x, y = tl.load(A + at), tl.load(B + at)
    i = at * 3 - 40
    tl.store(OUT + at, {ours})

run(kernel_{number}, {name!r}, {theirs})
"""

# name: what a kernel computes of x, y and the integers i; the same of a, b and n with torch
CASES = {
    "constant": ("x * 1.7 + (1.0 - x) * (1.0 / 3)", "a * constant(1.7) + (1 - a) * constant(1 / 3)"),
    "full": ("tl.where(x > y, x, tl.full((8, 16), float('-inf'), x.dtype))", "torch.where(a > b, a, -torch.inf)"),
    "full of an integer": ("x + tl.full((8, 16), 3, tl.bfloat16)", "a + 3"),
    "fma": ("tl.fma(x, y, x)", "(a.float() * b + a).bfloat16()"),
    "from integers": ("i.to(tl.bfloat16)", "n.bfloat16()"),
    "from bits": ("(x > y).to(tl.bfloat16)", "(a > b).bfloat16()"),
    "to integers": ("(x * 100).to(tl.int32)", "(a * 100).int()"),
    "from fp64": ("(i.to(tl.float64) / 7).to(tl.bfloat16)", "(n.double() / 7).bfloat16()"),
    "to fp64": ("x.to(tl.float64) / 3", "a.double() / 3"),
    "from fp16": ("i.to(tl.float16).to(tl.bfloat16)", "n.half().bfloat16()"),
    "subnormal": (
        "(x.to(tl.float32) * 1e-39).to(tl.bfloat16).to(tl.float32)",
        "(a.float() * 1e-39).bfloat16().float()",
    ),
    "toward zero": (
        "(i / 7).to(tl.bfloat16, 'rtz')",
        "((n / 7).view(torch.int32) & -65536).view(torch.float32).bfloat16()",
    ),
    "masked load": ("tl.load(A + at, mask=rows < 5, other=1)", "torch.where(torch.arange(8)[:, None] < 5, a, 1)"),
    "comparisons": ("((x > y) ^ (x > 0) | (x == y)).to(tl.int32)", "((a > b) ^ (a > 0) | (a == b)).int()"),
    "sort": ("tl.sort(x)", "a.sort(-1)[0]"),
    "sort, greatest first": ("tl.sort(x, descending=True)", "a.sort(-1, descending=True)[0]"),
    "row sums": ("tl.sum(x, axis=1)[:, None] + 0 * x", "a.float().sum(1, keepdim=True).bfloat16() + 0 * a"),
    "column sums": ("tl.sum(x * y, axis=0, keep_dims=True) + 0 * x", "(a * b).float().sum(0).bfloat16() + 0 * a"),
    "sum of all": ("tl.sum(x) + 0 * x", "a.float().sum().bfloat16() + 0 * a"),
    "maximum": ("tl.max(x, axis=1)[:, None] + 0 * y", "a.float().amax(1, keepdim=True) + 0 * b.float()"),
    "argmax": ("tl.argmax(x, axis=1)[:, None] + 0 * i", "a.argmax(1, keepdim=True) + 0 * n"),
    "own reduction": ("tl.reduce(x, 1, least)[:, None] + 0 * x", "a.amin(1, keepdim=True) + 0 * a"),
    "running sums": ("tl.cumsum(x, 1)", "a.float().cumsum(1).bfloat16()"),
    "running sums from the end": ("tl.cumsum(x, 1, reverse=True)", "a.float().flip(1).cumsum(1).flip(1).bfloat16()"),
    "own scan": ("tl.associative_scan(x, 1, least)", "a.cummin(1)[0]"),
}


def interpreted(tmp_path, source):
    """What a program that uses Triton's interpreter prints."""
    file = tmp_path / "kernel.py"
    file.write_text(source)
    env = config.job_env({"TRITON_INTERPRET": "1", "PYTHONPATH": str(config.ROOT)})
    done = subprocess.run([sys.executable, str(file)], env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_bfloat16_arithmetic_and_dot_match_torch(tmp_path):
    interpreted(tmp_path, KERNEL)


def test_a_launch_does_no_work_without_effect(tmp_path):
    """One addition and one product of int32 in each of three programs."""
    interpreted(tmp_path, WITHOUT_WASTE)


def test_programs_run_in_any_order_and_races_are_found(tmp_path):
    source = LAUNCH
    for number, (name, (body, start, expected, _)) in enumerate(LAUNCHES.items()):
        lines = "".join(f"    {line}\n" for line in body.split("\n"))
        source += GRID.format(number=number, name=name, body=lines, start=start, expected=expected)
    ends = json.loads(interpreted(tmp_path, source + "print(json.dumps(ends))"))
    assert ends == {name: end for name, (*_, end) in LAUNCHES.items()}


@pytest.mark.slow
def test_bfloat16_is_what_torch_makes_of_it(tmp_path):
    """Constants, casts, comparisons, fma, reductions and scans, all in one process."""
    kernels = [
        KERNELS.format(number=number, name=name, ours=ours, theirs=theirs)
        for number, (name, (ours, theirs)) in enumerate(CASES.items())
    ]
    source = HEAD + "".join(kernels) + "print(json.dumps(ends))"
    ends = json.loads(interpreted(tmp_path, source))
    assert ends == dict.fromkeys(CASES, "")


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_dev_runs_triton_kernels_where_there_is_no_gpu(dtype, judge_tool):
    """In the judge's own process, which is not set to interpret them, and with the same bfloat16 as in a worker."""
    file = config.ROOT / "artifacts" / "oracle" / "L1_36_RMSNorm.py"
    judge_tool("evaluate", file, "--problem", "L1_36", "--dtype", dtype, "--trust", "dev", "--no-timing", *CPU)
    (row,) = rows(judge_tool.bundles()[0]).values()
    assert [(entry["verdict"], entry["reasons"]) for entry in row["result"]["results"]] == [("correct", [])]


def test_narrow_rounds_to_nearest_even_and_keeps_nan_and_infinity():
    import torch

    values = np.float32([1.0, 1.00390625, 1.01171875, -3.3e38, np.inf, -np.inf, 1e-40, 0.0, -0.0])
    expected = torch.from_numpy(values).bfloat16().view(torch.int16).numpy().view(np.uint16)
    assert (triton_interpreter.narrow(values) == expected).all()
    assert np.isnan(triton_interpreter.widen(triton_interpreter.narrow(np.float32([np.nan])))[0])
