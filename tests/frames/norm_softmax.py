"""The tail of L2_84 in Triton: bias, batch norm, scale and softmax."""

import torch
import triton
import triton.language as tl


@triton.jit
def norm_softmax_kernel(
    y_ptr, bias_ptr, mean_ptr, var_ptr, gamma_ptr, beta_ptr, scale_ptr, out_ptr, columns, eps,
    SCALES: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """out = softmax(scale * batch_norm(y + bias)), a row a program. Grid: (rows,)."""
    column = tl.arange(0, BLOCK)
    row = tl.program_id(0).to(tl.int64) * columns
    inside = column < columns
    y = tl.load(y_ptr + row + column, mask=inside, other=0.0) + tl.load(bias_ptr + column, mask=inside, other=0.0)
    y -= tl.load(mean_ptr + column, mask=inside, other=0.0)
    y *= 1.0 / tl.sqrt(tl.load(var_ptr + column, mask=inside, other=1.0) + eps)
    gamma = tl.load(gamma_ptr + column, mask=inside, other=0.0)
    y = y * gamma + tl.load(beta_ptr + column, mask=inside, other=0.0)
    y *= tl.load(scale_ptr + column % SCALES)
    y = tl.where(inside, y, -float("inf"))
    y = tl.exp(y - tl.max(y, axis=0))
    tl.store(out_ptr + row + column, y / tl.sum(y, axis=0), mask=inside)


def norm_softmax(y, model):
    """What the model makes of the product y."""
    out, bn = torch.empty_like(y), model.bn
    rows, columns = y.shape
    norm_softmax_kernel[(rows,)](
        y, model.gemm.bias, bn.running_mean, bn.running_var, bn.weight, bn.bias, model.scale, out, columns, bn.eps,
        SCALES=model.scale.numel(), BLOCK=triton.next_power_of_2(columns), num_warps=8,
    )  # fmt: skip
    return out
