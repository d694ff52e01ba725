"""Recognises exceptions of a solution on the CPU that say that it cannot run without a GPU.

It decides no verdict: the verdict stays `error`, and the reason code `needs_cuda` says that another machine could judge
the solution. The text is the worker's, so a solution can claim it; it gains nothing, because it is not `correct`.
"""

from __future__ import annotations

import contextlib
import re
import traceback
from types import FrameType
from typing import Any

import torch

# What torch, Triton and the driver say where there is no GPU, nvcc or CUDA toolkit.
_MESSAGES = re.compile(
    r"not compiled with CUDA|No CUDA GPUs are available|no CUDA-capable device|Found no NVIDIA driver"
    r"|CUDA driver (initialization|version)|CUDA_HOME|CUDA is not available|\bnvcc\b|0 active drivers"
    r"|(must|to) be (a |on )?(a )?(CUDA|GPU)|(is|are) not (a |on )?(a )?(CUDA|GPU)|CUDA error|libcuda"
    r"|not supported in interpreter mode|with arguments from the 'CUDA' backend|Ninja is required to load C\+\+"
    # the interpreter's builder lacks the operation that a language function asks for
    r"|'InterpreterBuilder' object has no attribute",
    re.IGNORECASE,
)
# A solution's own check of its inputs.
_CHECK = re.compile(r"is_cuda|cuda\.is_available|device\.type\s*==|[\"']cuda", re.IGNORECASE)
_LIBDEVICE = "triton.language.extra.libdevice"  # its functions return None in the interpreter
# Functions of the interpreter that have an operation for some types alone.
_OPERATION = re.compile(r"create_|get_(?!bool)|cast_|generic_|apply_impl|_convert|\w+_op$")


# The most characters of an exception's text that are kept of its beginning, and of its end.
_MOST = 2000


def told(error: BaseException) -> str:
    """Return the type and the text of an exception. Both are a solution's: the text is bounded, or cannot be read."""
    try:
        text = f"{type(error).__name__}: {error}"
    except BaseException:
        return "an exception whose text cannot be read"
    return text if len(text) <= 2 * _MOST else f"{text[:_MOST]} ... {text[-_MOST:]}"


class _Guard(contextlib.nullcontext[None]):
    """Stands for `torch.cuda.device` where there is no GPU."""


def pass_guards() -> None:
    """Let `with torch.cuda.device(...)`, which libraries write around a launch, do nothing where there is no GPU."""
    if not torch.cuda.is_available():
        cuda: Any = torch.cuda
        cuda.device = cuda.device_of = _Guard
        cuda.set_device = cuda.synchronize = lambda device=None: None


def lacks_gpu(error: BaseException) -> bool:
    """Return whether the error, or one that caused it, is about the missing GPU."""
    seen: list[BaseException] = []
    current: BaseException | None = error
    while current is not None and not any(current is one for one in seen):
        seen.append(current)
        current = current.__cause__ or current.__context__
    return any(map(_says_so, seen))


def _asks_for_one(frame: FrameType, text: str) -> bool:
    """Return whether a frame of the traceback builds a CUDA extension, or calls device functions without a device."""
    code = frame.f_code
    if code.co_filename.endswith("torch/utils/cpp_extension.py"):
        return "cuda" in code.co_name.lower()
    if "NoneType" not in text:
        return False
    named = [frame.f_globals.get(name) for name in code.co_names]
    modules = {str(getattr(value, name, "")) for value in named for name in ("__name__", "__module__")}
    attribute = "libdevice" in code.co_names and "libdevice" not in frame.f_globals  # tl.extra.libdevice
    return attribute or _LIBDEVICE in modules


def _says_so(error: BaseException) -> bool:
    text = told(error)
    asks = any(_asks_for_one(frame, text) for frame, _ in traceback.walk_tb(error.__traceback__))
    if asks or _MESSAGES.search(text):
        return True
    last = [*traceback.extract_tb(error.__traceback__)][-1:]
    if isinstance(error, AssertionError):
        return any(map(_CHECK.search, [text, *(frame.line or "" for frame in last)]))
    return any(f.filename.endswith("triton/runtime/interpreter.py") and _OPERATION.match(f.name) for f in last)
