"""Every shipped Triton kernel compiles with the pinned compiler at full problem size, for four generations of GPUs.

compile_kernels.py does the work in a process for each file: Triton decides at import whether it interprets, and other
tests let it.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SOLUTIONS = [
    *sorted((ROOT / "artifacts").glob("[0-9]*/input_kernel.py")),
    *sorted((ROOT / "artifacts").glob("[0-9]*/optimized_kernel_beam_search.py")),
    *sorted((ROOT / "artifacts" / "oracle").glob("*.py")),
]
SHARED_BYTES = {80: 163 * 1024, 89: 99 * 1024, 90: 227 * 1024, 100: 227 * 1024}  # a program's most, CUDA guide
MOST_PROGRAMS = (2**31 - 1, 65535, 65535)
TIMEOUT_S = 280  # beside other tests


def compile_file(path: Path, cache: Path) -> subprocess.CompletedProcess[str]:
    """compile_kernels.py for all GPUs, with a cache of its own and none of this process's Triton settings. In a session
    of its own, as workers and shells of other tests are: Linux shares a busy machine out among sessions."""
    env = {name: value for name, value in os.environ.items() if not name.startswith("TRITON_")}
    env |= {"TRITON_CACHE_DIR": str(cache), "CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, str(ROOT / "tests" / "compile_kernels.py"), str(path), *map(str, SHARED_BYTES)]
    return subprocess.run(command, env=env, cwd=ROOT, capture_output=True, text=True, timeout=TIMEOUT_S, check=False,
                          start_new_session=True)  # fmt: skip


def name(path: Path) -> str:
    return f"{path.parent.name[:2]}_{path.stem}" if path.parent.name != "oracle" else path.stem


def test_all_artifacts_are_here():
    assert sum(path.parent.name != "oracle" for path in SOLUTIONS) == 10


@pytest.mark.alike
@pytest.mark.slow
@pytest.mark.parametrize("path", SOLUTIONS, ids=name)
def test_every_kernel_compiles_within_the_limits_of_every_gpu(path, tmp_path):
    """Every kernel that the file launches is compiled."""
    done = compile_file(path, tmp_path)
    assert done.returncode == 0, f"{path} does not compile:\n{done.stderr[-4000:]}"
    compiled = json.loads(done.stdout)
    pin = re.search(r"^triton==([\d.]+)", (ROOT / "requirements" / "image.txt").read_text(), re.MULTILINE)
    assert pin is not None and compiled["triton"] == pin[1]
    assert compiled["launched"]
    for arch, shared in SHARED_BYTES.items():
        kernels = [kernel for kernel in compiled["compiled"] if kernel["arch"] == arch]
        assert kernels, arch
        for kernel in kernels:
            assert kernel["cubin"] > 0, kernel
            assert kernel["shared"] <= shared, kernel
            assert kernel["warps"] <= 32, kernel
            assert all(0 < n <= most for n, most in zip(kernel["grid"], MOST_PROGRAMS, strict=False)), kernel
        names = {kernel["name"] for kernel in kernels}
        gluon = set(compiled["gluon"])  # written for one generation; the others never see it
        missing = (set(compiled["launched"]) | (gluon if arch == 90 else set())) - names
        assert not missing, f"sm_{arch}: no call reached {missing}; add one to the EXTRA tables of compile_kernels.py"
        assert arch == 90 or not gluon & names, f"sm_{arch} got {gluon & names}"
