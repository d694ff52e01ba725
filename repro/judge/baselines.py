"""The torch baselines that speedups divide by, each with explicit precision flags.

A variant's name is its mode and its precision, unless that is torch's default: `eager`, `compile_tf32`,
`max_autotune_fp32`, `compile_bf16`. torch's defaults let cuDNN use TF32 but not matmul.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch

TUNED = "max_autotune"  # tries many kernels for each operation
MODES = ("eager", "compile", "reduce_overhead", TUNED)
_COMPILE_MODES = {"compile": None, "reduce_overhead": "reduce-overhead", "max_autotune": "max-autotune-no-cudagraphs"}
# precision -> (TF32 for cuDNN, TF32 for matmul)
FLAGS = {"": (True, False), "fp32": (False, False), "tf32": (True, True), "bf16": (True, True)}


def split(variant: str) -> tuple[str, str]:
    """Return mode and precision of a variant's name."""
    mode = next(m for m in sorted(MODES, key=len, reverse=True) if variant == m or variant.startswith(m + "_"))
    return mode, variant[len(mode) + 1 :]


def worker_of(variant: str) -> str:
    """Return the name of the worker that compiles and runs a variant. Each kind of max_autotune has its own."""
    return variant if split(variant)[0] == TUNED else "baseline"


def workers(dtype: str, modes: tuple[str, ...]) -> list[str]:
    """Return the names of all workers that a problem's baselines may need."""
    every = names(dtype, {"fp32", "tf32"}, modes)
    return ["baseline", *(name for name in every if worker_of(name) != "baseline")]


def set_flags(variant: str) -> None:
    """Set the TF32 flags of a variant in this process."""
    torch.backends.cudnn.allow_tf32, torch.backends.cuda.matmul.allow_tf32 = FLAGS[split(variant)[1]]


def callable_of(variant: str, model: torch.nn.Module) -> Callable[..., Any]:
    """Return the variant as a function of the problem's inputs."""
    mode, precision = split(variant)
    call: Callable[..., Any] = model
    if mode != "eager":
        torch._dynamo.config.recompile_limit = 64  # each mode and each flag compiles the same code again
        call = torch.compile(model, mode=_COMPILE_MODES[mode])
    return functools.partial(_autocast, call) if precision == "bf16" else call


def _autocast(call: Callable[..., Any], *inputs: Any) -> Any:
    """Run in bfloat16 where torch's autocast considers it safe; outputs have the inputs' dtype."""
    with torch.autocast("cuda" if torch.cuda.is_available() else "cpu", dtype=torch.bfloat16):
        value = call(*inputs)
    dtype = next(x.dtype for x in inputs if isinstance(x, torch.Tensor) and x.is_floating_point())
    if isinstance(value, torch.Tensor):
        return value.to(dtype)
    return type(value)(v.to(dtype) if isinstance(v, torch.Tensor) else v for v in value)


def names(dtype: str, classes: set[str], modes: tuple[str, ...]) -> list[str]:
    """Return the variants to time.

    These are eager and torch.compile with torch's default flags, and every mode with the flags at which it may be as
    precise as the solutions (`classes`). A bf16 problem has one precision.
    """
    if dtype != "float32":
        return list(modes)
    flags = [flag for flag in ("fp32", "tf32", "bf16") if flag in classes]
    if "bf16" in classes and "tf32" not in classes:
        flags.insert(0, "tf32")  # at least as precise as a bf16 solution, and often faster
    plain = [mode for mode in modes if mode in ("eager", "compile")]
    return [*plain, *(f"{mode}_{flag}" for flag in flags for mode in (plain if flag == "bf16" else modes))]
