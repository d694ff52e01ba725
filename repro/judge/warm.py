"""What a process that compiles does before anybody waits for it. None of it makes a CUDA context."""

from __future__ import annotations

import contextlib
import importlib
import sys
import time
from typing import Any

from repro.judge.procfs import descendants

# Processes that are asked to end do so within this time.
QUIET_TIMEOUT_S = 1.0


def read_triton() -> None:
    """Has Triton read all of itself once, for the keys of what it compiles: half a second or more in every process that
    compiles, if none that it is a fork of has done so."""
    with contextlib.suppress(Exception):
        importlib.import_module("triton.runtime.cache").triton_key()


def triton() -> None:
    """Has Triton compile its bridge to the CUDA driver, half a second of a C compiler that nobody waits for while the
    judge starts. It makes no CUDA context. What fails here is met and told where a solution needs it."""
    with contextlib.suppress(Exception):
        from triton.runtime import driver as triton_driver

        _ = triton_driver.active.utils


def import_compiler() -> None:
    """Imports torch.compile, and reads it once for the keys of what it compiles. It starts no process and no thread,
    and makes no CUDA context. What fails here is met and told by the first compilation."""
    with contextlib.suppress(Exception):
        importlib.import_module("torch._dynamo")
        importlib.import_module("torch._inductor.compile_fx")
        importlib.import_module("torch._inductor.codecache").torch_key()


def compiler() -> None:
    """Starts the processes that torch.compile compiles in, as its first compilation would after seconds."""
    import_compiler()
    with contextlib.suppress(Exception):
        importlib.import_module("torch._inductor.async_compile").maybe_warm_pool()


def quiet() -> None:
    """Ends the processes that torch.compile compiles in, where there are any; the next compilation starts them again.
    While they live, whoever stops and wakes this process does so to one for each core more, and each looks after its
    parent every second."""
    compiling: Any = sys.modules.get("torch._inductor.async_compile")
    with contextlib.suppress(Exception):
        if compiling.AsyncCompile.process_pool.cache_info().currsize:
            pool, deadline = compiling.AsyncCompile.process_pool(), time.monotonic() + QUIET_TIMEOUT_S
            pool.quiesce()
            while len(descendants(pool.process.pid)) > 1 and time.monotonic() < deadline:  # who starts them stays
                time.sleep(0.005)
