"""The share of a call's GPU time in kernels of the solution's own source. It informs, and never decides."""

from __future__ import annotations

import ast
import contextlib
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from repro.judge.source.names import is_jit, parsed, text

_FOREIGN = re.compile(r"\b(at|cub|thrust|cutlass|cudnn|cublasLt|pytorch_flash)::")
_GLOBAL = re.compile(r"__global__(?:\s+(?:__launch_bounds__\s*\([^()]*\)|extern|static|inline|void))+\s+(\w+)\s*\(")
_COMMENT = re.compile(r"//[^\n]*|/\*[\s\S]*?(?:\*/|\Z)")  # `\Z`: an unclosed comment is scanned only once
_NAME_CHARS, MOST_KERNELS = 400, 200


def own_names(path: Path | None) -> set[str]:
    """Return the names of a file's own kernels: functions under triton.jit, `__global__` ones in its strings."""
    source, names = parsed(path), set[str]()
    if source is None:
        return names
    with contextlib.suppress(RecursionError):  # of a source that is too long to be read, those that were read
        for node in source.nodes():
            match node:
                case ast.FunctionDef(name) if source.jits(node):
                    names.add(name)
                case ast.Call(func, [ast.Name(name)]) if is_jit(source.dotted(func)):
                    names.add(name)
            if "__global__" in (code := text(node)):
                names |= set(_GLOBAL.findall(_COMMENT.sub("", code)))
    return names


def _base(kernel: str) -> str:
    """Return the bare name in `void ns::name<int>(float*)`."""
    bare = re.sub(r"\(anonymous namespace\)::|<unnamed>::", "", kernel).removeprefix("void ")
    return re.split(r"[<(]", bare, maxsplit=1)[0].rpartition("::")[2].strip()


def is_own(kernel: str, own: set[str]) -> bool:
    """Return whether a kernel, as CUPTI names it, is one of these, and not a namesake in a library."""
    mangled = kernel.startswith("_Z") and any(f"{len(name)}{name}" in kernel for name in own)
    return mangled or _base(kernel) in own and not _FOREIGN.search(kernel.split("(", 1)[0])


def share(kernels: list[Any], path: Path | None) -> float | None:
    """Return the share of GPU time in a file's own kernels; None without a time.

    kernels: as `profile` returns them, but from an untrusted process, so malformed entries are left out.
    """
    own, ours, total = own_names(path), 0.0, 0.0
    for kernel in kernels[:MOST_KERNELS]:
        match kernel:
            case [str(name), float(us) | int(us)] if 0 <= us < 1e12 and type(us) is not bool:
                total += us
                ours += us * is_own(name[:_NAME_CHARS], own)
    return round(ours / total, 4) if total else None


def profile(call: Callable[[], object]) -> tuple[list[tuple[str, float]], str]:
    """Return the kernels of one call with their GPU time in microseconds, or none and the reason.

    It runs in the worker, where a solution can falsify it. Call it after timing: CUPTI slows launches down. It uses the
    base of torch.profiler directly, which saves seconds of imports.
    """
    import torch

    if not torch.cuda.is_available():
        return [], "no GPU"
    try:
        kineto = torch.autograd.profiler.profile(use_cpu=False, use_device="cuda", use_kineto=True, acc_events=True)
        with kineto as profiler:
            call()
            torch.cuda.synchronize()
        by_name: dict[str, float] = {}
        for event in profiler.function_events or ():
            if event.device_type.name == "CUDA" and not getattr(event, "is_user_annotation", False):
                by_name[event.name] = by_name.get(event.name, 0.0) + event.time_range.elapsed_us()
    except Exception as error:
        return [], f"the profiler failed: {type(error).__name__}: {error}"[:300]
    kernels = sorted(by_name.items(), key=lambda kernel: -kernel[1])
    return kernels, "" if kernels else "the profiler saw no kernel"
