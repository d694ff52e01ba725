"""bfloat16 in Triton's interpreter, which holds it as uint16 bits: mended, so that a CPU judges what a GPU would do.

As shipped (3.5.1) float32 -> bfloat16 truncates, and arithmetic, comparisons and `tl.dot` work on the bit patterns as
if they were integers. Here values are widened to float32 first and rounded to nearest even once.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np


def narrow(values: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """float32 -> bfloat16 bits (uint16), to nearest even; a NaN stays a NaN."""
    single = np.ascontiguousarray(values, dtype=np.float32)
    bits = single.view(np.uint32).astype(np.uint64)
    rounded = ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)
    return np.where(np.isnan(single), np.uint16(0x7FC0), rounded).reshape(single.shape)


def widen(bits: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """bfloat16 bits (uint16) -> float32, exact."""
    return (np.ascontiguousarray(bits).astype(np.uint32) << 16).view(np.float32).reshape(bits.shape)


def mend() -> None:
    """Patches the interpreter of this process. Does nothing where its functions have other names."""
    import triton.language as tl
    from triton.runtime import interpreter

    builder, handle = interpreter.InterpreterBuilder, interpreter.TensorHandle
    convert = interpreter._convert_float

    def is_bf16(value: Any) -> bool:
        return bool(value.dtype.scalar == tl.bfloat16)

    def convert_float(data: Any, source: Any, target: Any, rounding: Any) -> Any:
        if source == tl.float32 and target == tl.bfloat16:
            return narrow(data)
        return convert(data, source, target, rounding)

    def as_float(value: Any) -> Any:
        return handle(widen(value.data), tl.float32) if is_bf16(value) else value

    def through_float32(original: Callable[..., Any]) -> Callable[..., Any]:
        def operate(self: Any, *arguments: Any) -> Any:
            *operands, op = arguments
            if op is np.where or not is_bf16(operands[-1]):
                return original(self, *arguments)
            result = original(self, *[as_float(value) for value in operands], op)
            data = result.data
            return handle(narrow(data) if data.dtype == np.float32 else data, tl.bfloat16)

        return operate

    dot = builder.create_dot

    def create_dot(self: Any, a: Any, b: Any, d: Any, *rest: Any) -> Any:
        if not is_bf16(d):
            return dot(self, as_float(a), as_float(b), d, *rest)
        result = dot(self, as_float(a), as_float(b), as_float(d), *rest)
        return handle(narrow(result.data), tl.bfloat16)

    interpreter._convert_float = convert_float
    builder.create_dot = create_dot
    for name in ("unary_op", "binary_op", "ternary_op"):
        setattr(builder, name, through_float32(getattr(builder, name)))
