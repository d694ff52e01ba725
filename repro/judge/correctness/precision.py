"""Arithmetic at a chosen precision: float32 without TF32, and TF32 operands that are the same on every device."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch
from torch.utils._pytree import tree_map

from repro.problems.plan import Functions

_CONTRACTIONS = frozenset(
    "linear matmul __matmul__ __rmatmul__ mm bmm addmm baddbmm einsum conv1d conv2d conv3d "
    "conv_transpose1d conv_transpose2d conv_transpose3d scaled_dot_product_attention "
    "multi_head_attention_forward _native_multi_head_attention _transformer_encoder_layer_fwd "
    "lstm gru rnn_tanh rnn_relu".split()
)


def round_mantissa(value: torch.Tensor) -> torch.Tensor:
    """Round float32 to 10 mantissa bits (nearest even), which TF32 and fp16 operands keep."""
    bits = value.view(torch.int32)
    rounded = (bits + 0xFFF + ((bits >> 13) & 1)) & ~0x1FFF
    return rounded.view(torch.float32)


class TF32Operands(Functions):
    """Rounds the float32 operands of every contraction, so that TF32 is the same on the CPU and on any GPU; those of a
    backward are the rounded operands and a rounded gradient."""

    def call(self, func: Any, name: str, args: Any, kwargs: Any) -> Any:
        if name in _CONTRACTIONS:
            args, kwargs = tree_map(_rounded, (args, kwargs))
            return tree_map(_gradient_rounded, func(*args, **kwargs))
        return func(*args, **kwargs)


class _Rounding(torch.autograd.Function):
    """Rounds a tensor on the way forward, or its gradient on the way back."""

    @staticmethod
    def forward(ctx: Any, value: torch.Tensor, back: bool) -> torch.Tensor:
        ctx.back = back
        return value.view_as(value) if back else round_mantissa(value)

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> Any:
        return round_mantissa(gradients[0].contiguous()) if ctx.back else gradients[0], None


def _rounded(value: Any) -> Any:
    return _Rounding.apply(value, False) if isinstance(value, torch.Tensor) and value.dtype is torch.float32 else value


def _gradient_rounded(value: Any) -> Any:
    return _Rounding.apply(value, True) if isinstance(value, torch.Tensor) and value.requires_grad else value


@contextlib.contextmanager
def exact_float32() -> Iterator[None]:
    """Turn TF32 off for cuDNN and matmul meanwhile."""
    before = (torch.backends.cudnn.allow_tf32, torch.backends.cuda.matmul.allow_tf32)
    torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = False
    try:
        yield
    finally:
        torch.backends.cudnn.allow_tf32, torch.backends.cuda.matmul.allow_tf32 = before
