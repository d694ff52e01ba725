"""Preparation of a process that compiles, done before any request waits for it. None of it makes a CUDA context."""

from __future__ import annotations

import contextlib
import importlib
import sys
import time
from typing import Any

from repro.system.procfs import descendants

# Time in which processes that are asked to end do so.
_QUIET_TIMEOUT_S = 1.0


def read_triton() -> None:
    """Have Triton read its own source once, for the cache keys of its kernels.

    This takes half a second or more in every process that compiles, unless it is a fork of one that has done it.
    """
    with contextlib.suppress(Exception):
        importlib.import_module("triton.runtime.cache").triton_key()


def triton() -> None:
    """Have Triton compile its bridge to the CUDA driver: half a second of a C compiler, while the judge starts.

    It makes no CUDA context. Errors are ignored here; they recur and are reported when a solution needs the bridge.
    """
    with contextlib.suppress(Exception):
        from triton.runtime import driver as triton_driver

        _ = triton_driver.active.utils


def compiler() -> None:
    """Import torch.compile, and have it read its own source for its cache keys: seconds, unless a process is a fork of
    one that has done it. Errors are ignored here; they recur and are reported at the first compilation.
    """
    with contextlib.suppress(Exception):
        importlib.import_module("torch._dynamo")
        importlib.import_module("torch._inductor.compile_fx")
        importlib.import_module("torch._inductor.codecache").torch_key()


def processes() -> None:
    """Start torch.compile's compilation processes, as its import in a process of its own would."""
    with contextlib.suppress(Exception):
        importlib.import_module("torch._inductor.async_compile").maybe_warm_pool()


def quiet() -> None:
    """End torch.compile's compilation processes, if any. The next compilation starts them again.

    There is one for each core. While they live, every stop and resume of this process includes them, and each of them
    checks its parent every second.
    """
    compiling: Any = sys.modules.get("torch._inductor.async_compile")
    with contextlib.suppress(Exception):
        if compiling.AsyncCompile.process_pool.cache_info().currsize:
            pool, deadline = compiling.AsyncCompile.process_pool(), time.monotonic() + _QUIET_TIMEOUT_S
            pool.quiesce()
            while len(descendants(pool.process.pid)) > 1 and time.monotonic() < deadline:  # their parent process stays
                time.sleep(0.005)
