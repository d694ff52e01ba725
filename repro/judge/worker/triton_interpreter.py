"""Mends Triton's interpreter: bfloat16, which it stores as uint16 bits, is computed as on a GPU, and calls are quicker.

In Triton 3.5.1 float32 -> bfloat16 truncates, bfloat16 constants are missing, and arithmetic, comparisons, casts,
reductions, scans and `tl.dot` treat the bit patterns as integers. The patch widens values to float32 first and rounds
the result once, to nearest even.

`tl.dot` adds up in float64 and rounds once. In float32 the bits of a row would depend on its place in the tile, on some
processors, and a rewrite that only moves rows would seem to change them.

Without work that has no effect, calls take a quarter to a half of their time. The interpreter checks each sum and
product of int32 for overflow, and then asserts nothing, since `debug` is off. It patches `triton.language` again for
every function that a kernel calls, and describes the type and shape of every tensor anew.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable
from typing import Any

import numpy as np


def narrow(values: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Convert float32 to bfloat16 bits (uint16), to nearest even; a NaN stays a NaN."""
    single = np.ascontiguousarray(values, dtype=np.float32)
    bits = single.view(np.uint32).astype(np.uint64)
    rounded = ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)
    return np.where(np.isnan(single), np.uint16(0x7FC0), rounded).reshape(single.shape)


def widen(bits: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Convert bfloat16 bits (uint16) to float32, exactly."""
    return (np.ascontiguousarray(bits).astype(np.uint32) << 16).view(np.float32).reshape(bits.shape)


@functools.cache
def mend() -> None:  # noqa: C901 (one patch after another, each of a few lines)
    """Patch the interpreter of this process. Raises AttributeError if Triton's functions have other names."""
    import triton.language as tl
    from triton.runtime import interpreter

    builder, handle = interpreter.InterpreterBuilder, interpreter.TensorHandle

    def is_bf16(value: Any) -> bool:
        return bool(value.dtype.scalar == tl.bfloat16)

    def as_float(value: Any) -> Any:
        return handle(widen(value.data), tl.float32) if is_bf16(value) else value

    def as_bf16(value: Any) -> Any:
        return handle(narrow(value.data), tl.bfloat16)

    def through_float32(original: Callable[..., Any]) -> Callable[..., Any]:
        def operate(self: Any, *arguments: Any) -> Any:
            *operands, op = arguments
            if op is np.where or not is_bf16(operands[-1]):
                return original(self, *arguments)
            result = original(self, *[as_float(value) for value in operands], op)
            return as_bf16(result) if result.data.dtype == np.float32 else handle(result.data, tl.int1)

        return operate

    def get_bf16(self: Any, value: Any) -> Any:
        return handle(narrow(np.array([value], np.float32)), tl.bfloat16)

    cast = builder.cast_impl

    def cast_impl(self: Any, value: Any, target: Any) -> Any:
        widened = as_float(value)
        return as_bf16(widened) if target.scalar == tl.bfloat16 else cast(self, widened, target)

    fma, dot = builder.create_fma, builder.create_dot

    def create_fma(self: Any, a: Any, b: Any, c: Any) -> Any:
        result = fma(self, as_float(a), as_float(b), as_float(c))
        return as_bf16(result) if is_bf16(c) else result

    def create_dot(self: Any, a: Any, b: Any, d: Any, *rest: Any) -> Any:
        left, right, added = as_float(a), as_float(b), as_float(d)
        if added.data.dtype == np.float32 and left.data.dtype.kind == right.data.dtype.kind == "f":
            sums = np.matmul(left.data, right.data, dtype=np.float64) + added.data
            result = handle(sums.astype(np.float32), tl.float32)
        else:
            result = dot(self, left, right, added, *rest)
        return as_bf16(result) if is_bf16(d) else result

    def retyped(tensor: Any, converted: Callable[[Any], Any]) -> Any:
        value = converted(tensor.handle)
        return tl.tensor(value, tensor.type.with_element_ty(value.dtype))

    def of_widened(original: Callable[..., Any]) -> Callable[..., Any]:
        def apply_impl(self: Any, inputs: Any) -> Any:
            if not any(map(is_bf16, inputs)):
                return original(self, inputs)
            results = original(self, tuple(retyped(x, as_float) if is_bf16(x) else x for x in inputs))
            results = results if isinstance(results, list | tuple) else [results]
            return [retyped(y, as_bf16) if is_bf16(x) else y for x, y in zip(inputs, results, strict=False)]

        return apply_impl

    known = functools.cache(interpreter._get_np_dtype)  # it makes a table of all types in every call

    def numpy_dtype(kind: Any) -> Any:
        return np.dtype(np.uint64) if isinstance(kind.scalar, tl.pointer_type) else known(kind.scalar)

    block_type, describe = tl.block_type, tl.block_type.__init__
    described: dict[tuple[str, ...], tuple[Any, ...]] = {}

    def describe_once(self: Any, element: Any, shape: Any) -> None:
        sizes = [getattr(size, "value", size) for size in shape]
        key = (element.name, *sizes)
        if key not in described:
            describe(self, element, sizes)
            described[key] = self.shape, self.numel, self.name
        self.element_ty = element
        self.shape, self.numel, self.name = described[key]

    @functools.cache
    def extent(shape: tuple[int, ...]) -> tuple[Any, Any]:
        return tl.core.tuple([tl.constexpr(size) for size in shape]), tl.constexpr(math.prod(shape))

    def make_tensor(self: Any, value: Any, kind: Any) -> None:
        self.handle, self.type, self.dtype = value, kind, kind.scalar
        self.shape, self.numel = extent(kind.shape if kind.is_block() else ())

    block_type.__init__, tl.tensor.__init__ = describe_once, make_tensor
    builder.get_bf16, builder.cast_impl = get_bf16, cast_impl
    builder.create_fma, builder.create_dot = create_fma, create_dot
    ours = interpreter.interpreter_builder
    ours.options = dataclasses.replace(ours.options, sanitize_overflow=False)
    interpreter._get_np_dtype = numpy_dtype
    interpreter._patch_lang = functools.cache(interpreter._patch_lang)  # it patches `tl` for good, but in every call
    for name in ("unary_op", "binary_op", "ternary_op"):
        setattr(builder, name, through_float32(getattr(builder, name)))
    for kind in (interpreter.ReduceOps, interpreter.ScanOps):
        kind.apply_impl = of_widened(kind.apply_impl)
