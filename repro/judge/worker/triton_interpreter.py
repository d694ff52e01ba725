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

from repro.judge.worker import triton_grid

_Array = np.ndarray[Any, Any]


def narrow(values: _Array) -> _Array:
    """Convert float32 to bfloat16 bits (uint16), to nearest even; a NaN stays a NaN."""
    single = np.ascontiguousarray(values, dtype=np.float32)
    bits = single.view(np.uint32).astype(np.uint64)
    rounded = ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)
    return np.where(np.isnan(single), np.uint16(0x7FC0), rounded).reshape(single.shape)


def widen(bits: _Array) -> _Array:
    """Convert bfloat16 bits (uint16) to float32, exactly."""
    return (np.ascontiguousarray(bits).astype(np.uint32) << 16).view(np.float32).reshape(bits.shape)


@functools.cache
def mend() -> None:
    """Patch the interpreter of this process. Raises AttributeError if Triton's functions have other names."""
    from triton.runtime import autotuner, interpreter

    _compute_bfloat16()
    _skip_needless_work()
    _complete(interpreter)
    triton_grid.mend(interpreter)
    autotuner.Autotuner._bench = _equal  # nothing is timed: the first configuration is taken


def _equal(tuner: Any, *arguments: Any, config: Any, **named: Any) -> list[float]:
    return [0.0, 0.0, 0.0]


def _complete(interpreter: Any) -> None:
    """Have operations work that the interpreter lacks and a GPU has."""

    def all_ones(self: Any, kind: Any) -> Any:
        return interpreter.TensorHandle(~np.zeros(1, interpreter._get_np_dtype(kind)), kind.scalar)

    def validate(self: Any) -> None:
        """Compare strides in bytes with 16, as a GPU does; the interpreter compares elements."""
        size = self.base.dtype.element_ty.primitive_bitwidth // 8
        *strides, last = [int(stride.data.item()) for stride in self.strides]
        assert self.base.data.item() % 16 == 0, "base must be 16-byte aligned"
        assert all(stride * size % 16 == 0 for stride in strides), "stride must be 16-byte aligned"
        assert last == 1, "last dim must be contiguous"

    interpreter.InterpreterBuilder.get_all_ones_value = all_ones
    interpreter.TensorDescHandle.validate = validate


class _Bfloat16:
    """Conversions of the interpreter's values from and to bfloat16. kind, single: Triton's types; handle: its class."""

    def __init__(self, language: Any, handle: Any) -> None:
        self.language, self.handle = language, handle
        self.kind, self.single, self.truth = language.bfloat16, language.float32, language.int1

    def is_one(self, value: Any) -> bool:
        return bool(value.dtype.scalar == self.kind)

    def widened(self, value: Any) -> Any:
        return self.handle(widen(value.data), self.single) if self.is_one(value) else value

    def narrowed(self, value: Any) -> Any:
        return self.handle(narrow(value.data), self.kind)

    def retyped(self, tensor: Any, converted: Callable[[Any], Any]) -> Any:
        """Return a tensor of the language with its value converted."""
        value = converted(tensor.handle)
        return self.language.tensor(value, tensor.type.with_element_ty(value.dtype))

    def elementwise(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """Return the interpreter's method for numpy functions of one to three values, with operands in float32."""

        def operate(builder: Any, *arguments: Any) -> Any:
            *operands, op = arguments
            if op is np.where or not self.is_one(operands[-1]):
                return original(builder, *arguments)
            result = original(builder, *[self.widened(value) for value in operands], op)
            return self.narrowed(result) if result.data.dtype == np.float32 else self.handle(result.data, self.truth)

        return operate

    def reducing(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """Return the interpreter's method of reductions and scans, with operands in float32."""

        def apply_impl(operation: Any, inputs: Any) -> Any:
            if not any(map(self.is_one, inputs)):
                return original(operation, inputs)
            results = original(operation, tuple(self.retyped(x, self.widened) if self.is_one(x) else x for x in inputs))
            results = results if isinstance(results, list | tuple) else [results]
            pairs = zip(inputs, results, strict=False)
            return [self.retyped(y, self.narrowed) if self.is_one(x) else y for x, y in pairs]

        return apply_impl


def _compute_bfloat16() -> None:
    """Have every operation on bfloat16 widen its operands to float32 and round its result once."""
    import triton.language as tl
    from triton.runtime import interpreter

    builder, handle = interpreter.InterpreterBuilder, interpreter.TensorHandle
    bf16 = _Bfloat16(tl, handle)
    cast, fma, dot = builder.cast_impl, builder.create_fma, builder.create_dot

    def get_bf16(self: Any, value: Any) -> Any:
        return handle(narrow(np.array([value], np.float32)), tl.bfloat16)

    def cast_impl(self: Any, value: Any, target: Any) -> Any:
        single = bf16.widened(value)
        return bf16.narrowed(single) if target.scalar == tl.bfloat16 else cast(self, single, target)

    def create_fma(self: Any, a: Any, b: Any, c: Any) -> Any:
        result = fma(self, bf16.widened(a), bf16.widened(b), bf16.widened(c))
        return bf16.narrowed(result) if bf16.is_one(c) else result

    def create_dot(self: Any, a: Any, b: Any, d: Any, *rest: Any) -> Any:
        left, right, added = bf16.widened(a), bf16.widened(b), bf16.widened(d)
        if added.data.dtype == np.float32 and left.data.dtype.kind == right.data.dtype.kind == "f":
            sums = np.matmul(left.data, right.data, dtype=np.float64) + added.data
            result = handle(sums.astype(np.float32), tl.float32)
        else:
            result = dot(self, left, right, added, *rest)
        return bf16.narrowed(result) if bf16.is_one(d) else result

    builder.get_bf16, builder.cast_impl = get_bf16, cast_impl
    builder.create_fma, builder.create_dot = create_fma, create_dot
    for name in ("unary_op", "binary_op", "ternary_op"):
        setattr(builder, name, bf16.elementwise(getattr(builder, name)))
    for kind in (interpreter.ReduceOps, interpreter.ScanOps):
        kind.apply_impl = bf16.reducing(kind.apply_impl)


def _skip_needless_work() -> None:
    """Have calls leave out what has no effect."""
    import triton.language as tl
    from triton.runtime import interpreter

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
    ours = interpreter.interpreter_builder
    ours.options = dataclasses.replace(ours.options, sanitize_overflow=False)
    interpreter._get_np_dtype = numpy_dtype
    interpreter._patch_lang = functools.cache(interpreter._patch_lang)  # it patches `tl` for good, but in every call
