"""Cheats: answers that skip the work. A fixture that one of them passes is refused.

Every problem has zeros, constant (the mean of all outputs), feature_mean (the mean over the batch, per position) and
stale (another input's output). `answers` adds, per problem, answers that leave a sub-operation out. Each runs on the
trials where it must fail: those that take weights for granted under perturbed weights, the others under native weights
if the problem has native trials. An omitted epsilon and a GELU in tanh form stay within every class; they are no
cheats.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import nn
from torch.nn import functional

_Answers = Iterator[tuple[str, torch.Tensor]]
# Arguments: model (fp64), inputs (fp64), whether the weights are perturbed.
_Maker = Callable[[Any, list[Any], bool], _Answers]


def answers(problem_id: str, model: nn.Module, inputs: list[Any], kind: str, *, moved: bool = True) -> _Answers:
    """Yield (name, output) of every cheat of a problem that is measured on this trial kind, one at a time.

    moved: whether perturbed trials have other constructor arguments. Where they have not, as for a file of the same id
    from elsewhere, what leaves such an argument out is right.
    """
    if problem_id in _CONSTRUCTED and kind.startswith("perturbed") and not moved:
        return
    if kind in ("native", "stress", "perturbed", "perturbed_stress") and problem_id in _MAKERS:
        yield from _MAKERS[problem_id](model, inputs, kind.startswith("perturbed"))


def _matvec(model: Any, inputs: list[Any], perturbed: bool) -> _Answers:
    a, b = inputs
    half = a.shape[1] // 2
    yield "half_of_k", torch.matmul(a[:, :half], b[:half]) * (a.shape[1] / half)


def _rms_norm(model: Any, inputs: list[Any], perturbed: bool) -> _Answers:
    x = inputs[0]
    square = x[:, : x.shape[1] // 2].square().mean(1, keepdim=True)
    yield "half_of_channels", x / torch.sqrt(square + model.eps)
    yield "one_rms_for_all", x / torch.sqrt(x.square().mean((1, 2, 3), keepdim=True) + model.eps)


def _max_pool(model: Any, inputs: list[Any], perturbed: bool) -> _Answers:
    x, pool = inputs[0], model.maxpool
    y = pool(x)
    yield "padded_with_zero", y.clamp_min(0.0)
    size, rest = pool.kernel_size, (pool.stride, pool.padding, pool.dilation)
    fewer = functional.max_pool3d(x, (size - 1, size, size), *rest)
    yield "without_a_plane", fewer[:, :, : y.shape[2]]


def _kept(
    tensors: nn.Parameter | list[torch.Tensor], change: Callable[[torch.Tensor], object], answer: Callable[[], Any]
) -> torch.Tensor:
    """Return an answer computed while tensors are changed in place."""
    changed = tensors if isinstance(tensors, list) else [tensors.data]
    kept = [tensor.clone() for tensor in changed]
    try:
        for tensor in changed:
            change(tensor)
        return answer()  # type: ignore[no-any-return]
    finally:
        for tensor, old in zip(changed, kept, strict=True):
            tensor.copy_(old)


def _without_tap(weight: torch.Tensor) -> None:
    weight.view(weight.shape[0], weight.shape[1], -1)[..., 0] = 0


def _transposed(model: Any, inputs: list[Any], perturbed: bool) -> _Answers:
    if not perturbed:
        yield "without_a_tap", _kept(model.conv_transpose3d.weight, _without_tap, lambda: model(*inputs))


def _depthwise(model: Any, inputs: list[Any], perturbed: bool) -> _Answers:
    if not perturbed:
        weight = model.conv2d.weight
        yield "without_a_tap", _kept(weight, _without_tap, lambda: model(*inputs))
        yield "one_kernel_for_all", _kept(weight, lambda w: w.copy_(w[:1].clone().expand_as(w)), lambda: model(*inputs))


def _attention(model: Any, inputs: list[Any], perturbed: bool) -> _Answers:
    q, k, v = inputs
    half = k.shape[-2] // 2
    yield "mean_of_values", v.mean(dim=-2, keepdim=True).expand_as(v)
    mean_query = functional.scaled_dot_product_attention(q.mean(dim=-2, keepdim=True), k, v)
    yield "mean_query", mean_query.expand_as(v)
    yield "half_of_keys", functional.scaled_dot_product_attention(q, k[..., :half, :], v[..., :half, :])


def _norm_gelu(model: Any, inputs: list[Any], perturbed: bool) -> _Answers:
    y, scale = model.conv_transpose(inputs[0]), model.scaling_factor
    if perturbed:
        plain = functional.gelu(functional.layer_norm(y, model.layer_norm.normalized_shape))
        yield "affine_and_scale_ignored", plain
        yield "affine_ignored", plain * scale
        yield "scale_ignored", functional.gelu(model.layer_norm(y))
        return
    normed = model.layer_norm(y)
    yield "gelu_skipped", normed * scale
    yield "gelu_as_relu", functional.relu(normed) * scale
    yield "norm_skipped", functional.gelu(y) * scale
    taken = _kept(model.conv_transpose.weight, _without_tap, lambda: model(*inputs))
    yield "without_a_tap", taken


def _swish_norm(model: Any, inputs: list[Any], perturbed: bool) -> _Answers:
    layer, norm, bias = model.matmul, model.group_norm, model.bias
    y = layer(inputs[0])
    if perturbed:
        yield "affine_ignored", functional.group_norm(functional.silu(y) + bias, norm.num_groups)
        yield "linear_bias_ignored", norm(functional.silu(y - layer.bias) + bias)
        return
    yield "swish_as_half", norm(y / 2 + bias)
    yield "swish_skipped", norm(y + bias)
    yield "bias_alone", norm(bias.expand_as(y))
    yield "bias_skipped", norm(functional.silu(y))
    yield "half_of_k", norm(functional.silu(_half(layer, inputs[0])) + bias)


def _half(layer: Any, x: torch.Tensor) -> torch.Tensor:
    half = layer.weight.shape[1] // 2
    return functional.linear(x[:, :half], layer.weight[:, :half], layer.bias)


def _norm_softmax(model: Any, inputs: list[Any], perturbed: bool) -> _Answers:
    y, bn, scale = model.gemm(inputs[0]), model.bn, model.scale
    softmax = lambda z: torch.softmax(z, dim=1)  # noqa: E731
    if perturbed:
        yield "batch_norm_skipped", softmax(scale * y)
        yield "statistics_ignored", softmax(scale * (y * bn.weight + bn.bias))
        yield "affine_ignored", softmax(scale * functional.batch_norm(y, bn.running_mean, bn.running_var, eps=bn.eps))
        yield "scale_ignored", softmax(bn(y))
    yield "half_of_k", softmax(scale * bn(_half(model.gemm, inputs[0])))
    yield "uniform", torch.full_like(y, 1 / y.shape[1])


def _gelu_softmax(model: Any, inputs: list[Any], perturbed: bool) -> _Answers:
    y = model.linear(inputs[0])
    softmax = lambda z: torch.softmax(z, dim=1)  # noqa: E731
    if perturbed:
        yield "bias_ignored", softmax(functional.gelu(y - model.linear.bias))
        return
    yield "gelu_skipped", softmax(y)
    yield "gelu_as_relu", softmax(functional.relu(y))
    yield "half_of_k", softmax(functional.gelu(_half(model.linear, inputs[0])))
    yield "uniform", torch.full_like(y, 1 / y.shape[1])


def _heads(attn: Any, x: torch.Tensor) -> list[torch.Tensor]:
    """Return q, k and v of a causal self-attention, each (batch, heads, length, width of a head)."""
    batch, length, width = x.shape
    heads = (batch, length, attn.n_head, width // attn.n_head)
    return [part.view(heads).transpose(1, 2) for part in attn.c_attn(x).split(width, dim=2)]


def _joined(attn: Any, y: torch.Tensor) -> torch.Tensor:
    return attn.c_proj(y.transpose(1, 2).flatten(2))  # type: ignore[no-any-return]


def _running_mean(v: torch.Tensor) -> torch.Tensor:
    """Return the output of causal attention with equal scores."""
    steps = torch.arange(1, v.shape[2] + 1, device=v.device, dtype=v.dtype).view(1, 1, -1, 1)
    return v.cumsum(2) / steps


def _causal(model: Any, inputs: list[Any], perturbed: bool) -> _Answers:
    if perturbed:
        return
    q, k, v = _heads(model, inputs[0])
    mean = _running_mean(v)
    yield "running_mean_of_values", _joined(model, mean)
    exact = min(64, v.shape[2] // 4)
    first = functional.scaled_dot_product_attention(q[:, :, :exact], k[:, :, :exact], v[:, :, :exact], is_causal=True)
    yield "running_mean_after_an_exact_start", _joined(model, torch.cat([first, mean[:, :, exact:]], 2))
    yield "not_causal", _joined(model, functional.scaled_dot_product_attention(q, k, v))


def _block(model: Any, inputs: list[Any], perturbed: bool) -> _Answers:
    x, mlp = inputs[0], model.mlp

    def after(y: torch.Tensor, normed: torch.Tensor, act: Callable[[torch.Tensor], torch.Tensor]) -> torch.Tensor:
        return y + mlp["c_proj"](act(mlp["c_fc"](normed)))  # type: ignore[no-any-return]

    if perturbed:
        plain = lambda z: functional.layer_norm(z, z.shape[-1:])  # noqa: E731
        y = x + model.attn(plain(x))
        yield "affine_ignored", after(y, plain(y), mlp["act"])
        return
    y = x + _joined(model.attn, _running_mean(_heads(model.attn, model.ln_1(x))[2]))
    yield "running_mean_of_values", after(y, model.ln_2(y), mlp["act"])
    yield "attention_skipped", after(x, model.ln_2(x), mlp["act"])
    y = x + model.attn(model.ln_1(x))
    yield "mlp_skipped", y
    yield "gelu_as_relu", after(y, model.ln_2(y), functional.relu)


def _mobilenet(model: Any, inputs: list[Any], perturbed: bool) -> _Answers:
    x = inputs[0]
    norms = [m for m in model.modules() if isinstance(m, nn.BatchNorm2d)]

    def without(name: str, value: float) -> torch.Tensor:
        return _kept([getattr(norm, name).data for norm in norms], lambda t: t.fill_(value), lambda: model(x))

    yield "means_ignored", without("running_mean", 0.0)
    yield "norm_weights_ignored", without("weight", 1.0)
    yield "norm_biases_ignored", without("bias", 0.0)
    yield "constant_input", model(x.mean((1, 2, 3), keepdim=True).expand_as(x))
    yield "half_resolution", model(functional.avg_pool2d(x, 2))


# Problems of which a cheat under perturbed weights leaves out a constructor argument.
_CONSTRUCTED = frozenset({"L2_34"})
_MAKERS: dict[str, _Maker] = {
    "L1_04": _matvec,
    "L1_36": _rms_norm,
    "L1_43": _max_pool,
    "L1_77": _transposed,
    "L1_82": _depthwise,
    "L1_97": _attention,
    "L2_34": _norm_gelu,
    "L2_37": _swish_norm,
    "L2_84": _norm_softmax,
    "L2_99": _gelu_softmax,
    "L3_43": _causal,
    "L3_44": _block,
    "L3_20": _mobilenet,
}
