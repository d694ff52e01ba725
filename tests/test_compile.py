"""Every shipped Triton kernel compiles with the pinned compiler at full problem size, for four generations of GPUs.

The work is done by compile_kernels.py in a process for each file, because Triton decides at import whether it
interprets, and other tests let it. The processes run side by side; a test waits for its file's.
"""

from __future__ import annotations

import functools
import json
import os
import re
import subprocess
import sys
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parent.parent
SOLUTIONS = [
    *sorted((ROOT / "artifacts").glob("[0-9]*/input_kernel.py")),
    *sorted((ROOT / "artifacts").glob("[0-9]*/optimized_kernel_beam_search.py")),
    *sorted((ROOT / "artifacts" / "oracle").glob("*.py")),
]
SHARED_BYTES = {80: 163 * 1024, 89: 99 * 1024, 90: 227 * 1024, 100: 227 * 1024}  # a program's most, CUDA guide
MOST_PROGRAMS = (2**31 - 1, 65535, 65535)
TIMEOUT_S = 280  # beside other tests

Compiled = dict[str, Any]


def compile_file(path: Path, cache: Path) -> subprocess.CompletedProcess[str]:
    """compile_kernels.py for all GPUs, with a cache of its own and none of this process's Triton settings. In a session
    of its own, as workers and shells of other tests are: Linux shares a busy machine out among sessions."""
    env = {name: value for name, value in os.environ.items() if not name.startswith("TRITON_")}
    env |= {"TRITON_CACHE_DIR": str(cache), "CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, str(ROOT / "tests" / "compile_kernels.py"), str(path), *map(str, SHARED_BYTES)]
    return subprocess.run(command, env=env, cwd=ROOT, capture_output=True, text=True, timeout=TIMEOUT_S, check=False,
                          start_new_session=True)  # fmt: skip


@pytest.fixture(scope="module")
def compilations(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> dict[Path, Future[subprocess.CompletedProcess[str]]]:
    """The processes of the files that this session's tests ask for."""
    wanted = {item.callspec.params.get("path") for item in request.session.items if hasattr(item, "callspec")}
    pool = ThreadPoolExecutor(max_workers=os.cpu_count() or 1)
    request.addfinalizer(lambda: pool.shutdown(cancel_futures=True))
    cache = tmp_path_factory.mktemp("triton")
    return {
        path: pool.submit(compile_file, path, cache / str(number))
        for number, path in enumerate(SOLUTIONS)
        if path in wanted
    }


@pytest.fixture
def compiled(path: Path, compilations: dict[Path, Future[subprocess.CompletedProcess[str]]]) -> Compiled:
    done = compilations[path].result()
    assert done.returncode == 0, f"{path} does not compile:\n{done.stderr[-4000:]}"
    return parse(done.stdout)


@functools.cache
def parse(text: str) -> Compiled:
    result: Compiled = json.loads(text)
    return result


def name(path: Path) -> str:
    return f"{path.parent.name[:2]}_{path.stem}" if path.parent.name != "oracle" else path.stem


each_file = pytest.mark.parametrize("path", SOLUTIONS, ids=name)


def test_all_artifacts_are_here() -> None:
    assert sum(path.parent.name != "oracle" for path in SOLUTIONS) == 10


@each_file
@pytest.mark.parametrize("arch", SHARED_BYTES)
def test_compiles_within_the_gpu_limits(compiled: Compiled, arch: int) -> None:
    kernels = [kernel for kernel in compiled["compiled"] if kernel["arch"] == arch]
    assert kernels
    for kernel in kernels:
        assert kernel["cubin"] > 0, kernel
        assert kernel["shared"] <= SHARED_BYTES[arch], kernel
        assert kernel["warps"] <= 32, kernel
        assert all(0 < n <= most for n, most in zip(kernel["grid"], MOST_PROGRAMS, strict=False)), kernel


@each_file
def test_every_launched_kernel_was_compiled(compiled: Compiled) -> None:
    pin = re.search(r"^triton==([\d.]+)", (ROOT / "requirements" / "image.txt").read_text(), re.MULTILINE)
    assert pin is not None and compiled["triton"] == pin[1]
    assert compiled["launched"]
    for arch in SHARED_BYTES:
        names = {kernel["name"] for kernel in compiled["compiled"] if kernel["arch"] == arch}
        gluon = set(compiled["gluon"])  # written for one generation; the others never see it
        missing = (set(compiled["launched"]) | (gluon if arch == 90 else set())) - names
        assert not missing, f"sm_{arch}: no call reached {missing}; add one to the EXTRA tables of compile_kernels.py"
        assert arch == 90 or not gluon & names, f"sm_{arch} got {gluon & names}"
