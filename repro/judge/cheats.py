"""Answers that do not do the work: a fixture that one of them passes is refused.

zeros, constant (the mean of all outputs), feature_mean (the mean over the batch, per position) and stale (another
input's output) exist for every problem; `SKIPS` adds, per problem, an answer that leaves a sub-operation out.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn import functional

Skip = Callable[[nn.Module, list[Any]], torch.Tensor]


def _matvec_half(model: Any, inputs: list[Any]) -> torch.Tensor:
    a, b = inputs
    half = a.shape[1] // 2
    product: torch.Tensor = torch.matmul(a[:, :half], b[:half]) * (a.shape[1] / half)
    return product


def _rms_half(model: Any, inputs: list[Any]) -> torch.Tensor:
    x: torch.Tensor = inputs[0]
    square = x[:, : x.shape[1] // 2].square().mean(1, keepdim=True)
    return x / torch.sqrt(square + model.eps)


def _zero_padded_max(model: Any, inputs: list[Any]) -> torch.Tensor:
    return model.maxpool(inputs[0]).clamp_min(0.0)  # type: ignore[no-any-return]


def _conv_without_tap(layer: Any, forward: Callable[[], torch.Tensor]) -> torch.Tensor:
    weight = layer.weight.data
    kept = weight.clone()
    weight.view(weight.shape[0], weight.shape[1], -1)[..., 0] = 0
    try:
        return forward()
    finally:
        layer.weight.data.copy_(kept)


def _mean_of_values(model: Any, inputs: list[Any]) -> torch.Tensor:
    value: torch.Tensor = inputs[2]
    return value.mean(dim=-2, keepdim=True).expand_as(value)


def _layer_norm_only(model: Any, inputs: list[Any]) -> torch.Tensor:
    y = model.conv_transpose(inputs[0])
    return functional.gelu(functional.layer_norm(y, model.layer_norm.normalized_shape))


def _half_swish(model: Any, inputs: list[Any]) -> torch.Tensor:
    return model.group_norm(model.matmul(inputs[0]) / 2 + model.bias)  # type: ignore[no-any-return]


def _skip_batch_norm(model: Any, inputs: list[Any]) -> torch.Tensor:
    return torch.softmax(model.scale * model.gemm(inputs[0]), dim=1)


def _skip_gelu(model: Any, inputs: list[Any]) -> torch.Tensor:
    return torch.softmax(model.linear(inputs[0]), dim=1)


def _half_k(layer_name: str, rest: Callable[[Any, torch.Tensor], torch.Tensor]) -> Skip:
    def skip(model: nn.Module, inputs: list[Any]) -> torch.Tensor:
        layer = getattr(model, layer_name)
        half = layer.weight.shape[1] // 2
        return rest(model, functional.linear(inputs[0][:, :half], layer.weight[:, :half], layer.bias))

    return skip


def _attention(attn: Any, x: torch.Tensor, exact: int) -> torch.Tensor:
    """Causal attention that is exact for the first `exact` positions and a running mean of the values after them."""
    batch, length, width = x.shape
    heads = (batch, length, attn.n_head, width // attn.n_head)
    q, k, v = (part.view(heads).transpose(1, 2) for part in attn.c_attn(x).split(width, dim=2))
    steps = torch.arange(1, length + 1, device=x.device, dtype=x.dtype).view(1, 1, length, 1)
    y = v.cumsum(2) / steps
    if exact:
        y[:, :, :exact] = functional.scaled_dot_product_attention(
            q[:, :, :exact], k[:, :, :exact], v[:, :, :exact], is_causal=True
        )
    return attn.c_proj(y.transpose(1, 2).reshape(batch, length, width))  # type: ignore[no-any-return]


def _running_mean(model: Any, inputs: list[Any]) -> torch.Tensor:
    length = inputs[0].shape[1]
    return _attention(model, inputs[0], min(64, length // 4))


def _block_running_mean(model: Any, inputs: list[Any]) -> torch.Tensor:
    x = inputs[0]
    x = x + _attention(model.attn, model.ln_1(x), 0)
    hidden = model.mlp["act"](model.mlp["c_fc"](model.ln_2(x)))
    return x + model.mlp["c_proj"](hidden)  # type: ignore[no-any-return]


def _ignore_affine(model: Any, inputs: list[Any]) -> torch.Tensor:
    norms = [m for m in model.modules() if isinstance(m, nn.BatchNorm2d)]
    kept = [(m.weight.data.clone(), m.bias.data.clone()) for m in norms]
    for norm in norms:
        norm.weight.data.fill_(1)
        norm.bias.data.fill_(0)
    try:
        return model(inputs[0])  # type: ignore[no-any-return]
    finally:
        for norm, (weight, bias) in zip(norms, kept, strict=True):
            norm.weight.data.copy_(weight)
            norm.bias.data.copy_(bias)


SKIPS: dict[str, dict[str, Skip]] = {
    "L1_04": {"half_of_k": _matvec_half},
    "L1_36": {"half_of_channels": _rms_half},
    "L1_43": {"padded_with_zero": _zero_padded_max},
    "L1_77": {"without_a_tap": lambda m, x: _conv_without_tap(m.conv_transpose3d, lambda: m(*x))},
    "L1_82": {"without_a_tap": lambda m, x: _conv_without_tap(m.conv2d, lambda: m(*x))},
    "L1_97": {"mean_of_values": _mean_of_values},
    "L2_34": {"affine_and_scale_ignored": _layer_norm_only},
    "L2_37": {"swish_as_half": _half_swish},
    "L2_84": {
        "batch_norm_skipped": _skip_batch_norm,
        "half_of_k": _half_k("gemm", lambda m, y: torch.softmax(m.scale * m.bn(y), dim=1)),
    },
    "L2_99": {
        "gelu_skipped": _skip_gelu,
        "half_of_k": _half_k("linear", lambda m, y: torch.softmax(functional.gelu(y), dim=1)),
    },
    "L3_43": {"running_mean_of_values": _running_mean},
    "L3_44": {"running_mean_of_values": _block_running_mean},
    "L3_20": {"affine_ignored": _ignore_affine},
}
