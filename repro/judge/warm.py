"""What a process that compiles does before anybody waits for it. None of it makes a CUDA context."""

from __future__ import annotations

import contextlib
import importlib


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
