"""The optimised kernels of the artifact study in Triton's interpreter, against torch in float64, on each path.

Shapes at which the judge runs them on the CPU are too small and odd for the fast paths; these are chosen for them.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

import pytest

from repro import config

# One process imports torch; each case is a fork of it, with a line of its own on the standard output.
PROGRAM = """
import importlib.util, json, os, sys, traceback, warnings
import torch
import triton
from torch.nn import functional as F

warnings.simplefilter("ignore")


def transposed(x, weight, **given):
    # a NaN where an input that is one has a part in the sum: a library may multiply it by padding too
    found = F.conv_transpose3d(x.nan_to_num(0), weight, **given)
    lost = F.conv_transpose3d(x.isnan().double(), torch.ones_like(weight), **given)
    return found.masked_fill(lost > 0.5, float("nan"))


def error(case, device):
    spec = importlib.util.spec_from_file_location("kernel", case["file"])
    kernel = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(kernel)
    torch.manual_seed(1)
    dtype = getattr(torch, case["dtype"])
    shapes, given = case["shapes"], case.get("given", {})
    tensors = [torch.randn(shape).to(dtype).to(device) for shape in shapes]
    if case.get("nan"):
        tensors[0].view(-1)[::case["nan"]] = float("nan")
    kept = [t.clone() for t in tensors]
    found = kernel.kernel_function(*tensors, **given)
    wide = [t.double() for t in tensors]
    reference = {
        "04": lambda: wide[0] @ wide[1],
        "36": lambda: wide[0] / torch.sqrt((wide[0] ** 2).mean(1, keepdim=True) + given.get("eps", 1e-5)),
        "43": lambda: F.max_pool3d(wide[0], **given),
        "77": lambda: transposed(*wide, **given),
        "82": lambda: F.conv2d(wide[0], wide[1], groups=wide[0].shape[1], **given),
    }[case["number"]]()
    assert found.shape == reference.shape and found.dtype == dtype, (found.shape, reference.shape, found.dtype)
    assert all(torch.equal(a.nan_to_num(7), b.nan_to_num(7)) for a, b in zip(tensors, kept)), "inputs changed"
    assert torch.equal(found.isnan(), reference.isnan()), "NaN elsewhere"
    assert bool(reference.isnan().any()) == bool(case.get("nan")) and bool(reference.nan_to_num(0).any()), "all NaN"
    assert bool(((found == 0) == (reference == 0)).all()) or case["number"] != "77", "zeros elsewhere"
    for _ in range(case.get("repeats", 0)):
        again = kernel.kernel_function(*tensors, **given)
        assert torch.equal(again.nan_to_num(7), found.nan_to_num(7)), "a race"
    return float((found.double() - reference).nan_to_num(0).norm() / reference.nan_to_num(0).norm())


for case in json.load(sys.stdin):
    if os.fork() == 0:
        try:
            told = {"error": error(case, sys.argv[1])}
        except BaseException:
            told = {"failed": traceback.format_exc()[-2000:]}
        print(json.dumps(told), flush=True)
        os._exit(0)
    code = os.waitstatus_to_exitcode(os.wait()[1])
    if code:
        print(json.dumps({"failed": f"it ended with {code}"}), flush=True)
"""
LIMIT = {"float32": 2e-6, "float16": 1e-3, "bfloat16": 6e-3}


def case(number: str, dtype: str, *shapes: tuple[int, ...], nan: int = 0, **given) -> dict[str, Any]:
    """One call of a kernel. nan: the step between elements of the first tensor that are NaN, 0 for none."""
    return {"number": number, "dtype": dtype, "shapes": shapes, "given": given, "nan": nan}


POOL = {"kernel_size": 3, "stride": 2, "padding": 1, "dilation": 3}
UP = {"stride": 2, "padding": 1, "dilation": 2}
CASES = [
    case("04", "bfloat16", (8, 8192), (8192, 1)),
    case("04", "bfloat16", (5, 4099), (4099, 1)),
    case("04", "float32", (6, 2050), (2050, 1)),
    case("36", "bfloat16", (2, 64, 16, 16)),
    case("36", "float16", (3, 48, 7, 11), eps=1e-3),
    case("36", "float32", (2, 1500, 3, 5)),
    case("43", "bfloat16", (1, 2, 20, 21, 32), **POOL),  # chains along depth
    case("43", "bfloat16", (1, 2, 17, 18, 64), nan=97, **POOL),
    case("43", "float32", (2, 1, 12, 13, 16), **POOL),
    case("43", "float16", (1, 2, 9, 10, 13), **POOL),  # the general path
    case("43", "bfloat16", (1, 1, 8, 9, 24), kernel_size=2, stride=1, padding=0, dilation=1),
    case("77", "bfloat16", (2, 16, 3, 4, 8), (16, 16, 3, 3, 3), **UP),  # whole lines
    case("77", "bfloat16", (1, 32, 2, 3, 16), (32, 10, 3, 3, 3), **UP),
    case("77", "float16", (1, 16, 2, 2, 32), (16, 6, 3, 3, 3), **UP),
    case("77", "bfloat16", (1, 16, 3, 3, 5), (16, 6, 3, 3, 3), **UP),  # the general path
    case("77", "float32", (2, 8, 2, 3, 4), (8, 5, 3, 3, 3), stride=3, padding=1, dilation=1),
    case("82", "bfloat16", (2, 3, 11, 64), (3, 1, 3, 3)),  # aligned chunks
    case("82", "bfloat16", (1, 2, 9, 72), (2, 1, 3, 3)),
    case("82", "float16", (1, 2, 10, 32), (2, 1, 5, 5)),
    case("82", "bfloat16", (1, 2, 13, 37), (2, 1, 3, 3), padding=1),  # the general paths
    case("82", "float32", (1, 2, 13, 37), (2, 1, 3, 3), stride=2, padding=1),
]


# What Gluon does on sm_90 (one plane, fewer tiles than programs, many samples), and a size that it leaves alone.
ROLES = [
    case("77", dtype, (batch, 32, depth, 32, 32), (32, 64, 3, 3, 3), nan=nan, **UP)
    for batch, depth, dtype, nan in [
        (1, 1, "bfloat16", 0), (1, 2, "float16", 0), (2, 5, "bfloat16", 4999), (5, 7, "float16", 0),
        (16, 16, "bfloat16", 0),
    ]
] + [case("77", "bfloat16", (2, 32, 3, 30, 32), (32, 64, 3, 3, 3), **UP)]  # fmt: skip


def check(cases: list[dict[str, Any]], device: str, repeats: int = 0, **environment: str):
    """Compares the shipped kernels with fp64: every relative error is within the limit of its dtype."""
    told = []
    for each in cases:
        (folder,) = config.ARTIFACTS_DIR.glob(f"{each['number']}_*")
        told.append(each | {"file": str(folder / "optimized_kernel_beam_search.py"), "repeats": repeats})
    command = [sys.executable, "-c", PROGRAM, device]
    done = subprocess.run(
        command, input=json.dumps(told), capture_output=True, text=True, env=os.environ | environment, check=False
    )
    found = list(map(json.loads, done.stdout.splitlines()))
    assert len(found) == len(cases), done.stderr[-2000:]
    wrong = [
        (each, ended)
        for each, ended in zip(cases, found, strict=True)
        if "error" not in ended or not ended["error"] < LIMIT[each["dtype"]]
    ]
    assert wrong == []


@pytest.mark.slow
def test_the_optimised_kernels_are_right_on_every_path():
    check(CASES, "cpu", TRITON_INTERPRET="1", OMP_NUM_THREADS="1")


@pytest.mark.gpu
def test_the_optimised_kernels_are_right_on_a_gpu_and_the_same_every_time():
    """Warps that wait for each other by hand may race: twenty calls have the same bits."""
    check(CASES + ROLES, "cuda", repeats=20)
