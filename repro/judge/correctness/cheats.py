"""Cheats: answers that skip the work. A fixture that one of them passes is refused.

Every problem has zeros, constant (the mean of all outputs), feature_mean (the mean over the batch, per position) and
stale (another input's output). `answers` adds, per problem, those answers that leave a sub-operation out and come
closest to the truth: only the closest one counts. Each runs on the trials where it must fail: those that take weights
for granted under perturbed weights, the others under native weights if the problem has native trials. An omitted
epsilon and a GELU in tanh form stay within every class; they are no cheats.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import nn
from torch.nn import functional

_Inputs = list[Any]
_Answers = Iterator[tuple[str, torch.Tensor]]
# Arguments: model (fp64), inputs (fp64), whether the weights are perturbed.
_Maker = Callable[[Any, _Inputs, bool], _Answers]


def answers(problem_id: str, model: nn.Module, inputs: _Inputs, kind: str) -> _Answers:
    """Yield (name, output) of every cheat of a problem that is measured on this trial kind, one at a time."""
    if kind in ("native", "stress", "perturbed", "perturbed_stress") and problem_id in _MAKERS:
        yield from _MAKERS[problem_id](model, inputs, kind.startswith("perturbed"))


def _matvec(model: Any, inputs: _Inputs, perturbed: bool) -> _Answers:
    a, b = inputs
    half = a.shape[1] // 2
    yield "half_of_k", torch.matmul(a[:, :half], b[:half]) * (a.shape[1] / half)


def _rms_norm(model: Any, inputs: _Inputs, perturbed: bool) -> _Answers:
    x = inputs[0]
    square = x[:, : x.shape[1] // 2].square().mean(1, keepdim=True)
    yield "half_of_channels", x / torch.sqrt(square + model.eps)
    yield "one_rms_for_all", x / torch.sqrt(x.square().mean((1, 2, 3), keepdim=True) + model.eps)


def _max_pool(model: Any, inputs: _Inputs, perturbed: bool) -> _Answers:
    x, pool = inputs[0], model.maxpool
    size, rest = pool.kernel_size, (pool.stride, pool.padding, pool.dilation)
    fewer = functional.max_pool3d(x, (size - 1, size, size), *rest)
    yield "without_a_plane", fewer[:, :, : pool(x).shape[2]]


def _without_tap(model: Any, inputs: _Inputs, perturbed: bool) -> _Answers:
    """Leave one tap of a convolution out."""
    if not perturbed:
        (weight,) = [parameter.data for parameter in model.parameters() if parameter.dim() > 2]
        tap = weight.view(*weight.shape[:2], -1)[..., 0]
        kept = tap.clone()
        tap.zero_()
        yield "without_a_tap", model(*inputs)
        tap.copy_(kept)


def _attention(model: Any, inputs: _Inputs, perturbed: bool) -> _Answers:
    q, k, v = inputs
    half = k.shape[-2] // 2
    yield "half_of_keys", functional.scaled_dot_product_attention(q, k[..., :half, :], v[..., :half, :])


def _norm_gelu(model: Any, inputs: _Inputs, perturbed: bool) -> _Answers:
    if model.scaling_factor != 1:  # perturbed, unless a file of the same id from elsewhere has none to perturb
        yield "scale_ignored", functional.gelu(model.layer_norm(model.conv_transpose(inputs[0])))
    yield from _without_tap(model, inputs, perturbed)


def _swish_norm(model: Any, inputs: _Inputs, perturbed: bool) -> _Answers:
    layer = model.matmul
    if perturbed:
        swish = functional.silu(layer(inputs[0]) - layer.bias)
        yield "linear_bias_ignored", model.group_norm(swish + model.bias)


def _norm_softmax(model: Any, inputs: _Inputs, perturbed: bool) -> _Answers:
    y, bn, scale = model.gemm(inputs[0]), model.bn, model.scale
    if perturbed:
        normed = functional.batch_norm(y, bn.running_mean, bn.running_var, eps=bn.eps)
        yield "affine_ignored", torch.softmax(scale * normed, dim=1)
        yield "statistics_ignored", torch.softmax(scale * (y * bn.weight + bn.bias), dim=1)


def _gelu_softmax(model: Any, inputs: _Inputs, perturbed: bool) -> _Answers:
    if not perturbed:
        yield "gelu_as_relu", torch.softmax(functional.relu(model.linear(inputs[0])), dim=1)


def _running_mean(attn: Any, x: torch.Tensor) -> torch.Tensor:
    """Return the output of a causal self-attention with equal scores."""
    values = attn.c_attn(x).split(x.shape[2], dim=2)[2]
    steps = torch.arange(1, x.shape[1] + 1, device=x.device, dtype=x.dtype).view(-1, 1)
    return attn.c_proj(values.cumsum(1) / steps)  # type: ignore[no-any-return]


def _causal(model: Any, inputs: _Inputs, perturbed: bool) -> _Answers:
    x = inputs[0]
    if not perturbed:
        exact = min(64, x.shape[1] // 4)
        parts = [model(x)[:, :exact], _running_mean(model, x)[:, exact:]]
        yield "running_mean_after_an_exact_start", torch.cat(parts, 1)


def _block(model: Any, inputs: _Inputs, perturbed: bool) -> _Answers:
    x = inputs[0]
    if not perturbed:
        y = x + _running_mean(model.attn, model.ln_1(x))
        hidden = model.mlp["act"](model.mlp["c_fc"](model.ln_2(y)))
        yield "running_mean_of_values", y + model.mlp["c_proj"](hidden)


def _mobilenet(model: Any, inputs: _Inputs, perturbed: bool) -> _Answers:
    x = inputs[0]
    yield "constant_input", model(x.mean((1, 2, 3), keepdim=True).expand_as(x))


_MAKERS: dict[str, _Maker] = {
    "L1_04": _matvec,
    "L1_36": _rms_norm,
    "L1_43": _max_pool,
    "L1_77": _without_tap,
    "L1_82": _without_tap,
    "L1_97": _attention,
    "L2_34": _norm_gelu,
    "L2_37": _swish_norm,
    "L2_84": _norm_softmax,
    "L2_99": _gelu_softmax,
    "L3_43": _causal,
    "L3_44": _block,
    "L3_20": _mobilenet,
}
