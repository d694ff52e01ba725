#: problem = "L2_37"
#: timing = ["cuda"]
#: class = ["fp32", "tf32"]
#: labels = ["triton"]
"""A persistent kernel: as many programs as multiprocessors, each working through its share of the tiles.

Honest: the grid does not grow with the problem, the loop inside does. The device is asked for its number of
multiprocessors; nothing outlives the launch.
"""

import torch
import triton
import triton.language as tl
from frames.L2_37 import Frame


@triton.jit
def persistent_kernel(
    x_ptr, weight_ptr, bias_ptr, extra_ptr, gamma_ptr, beta_ptr, out_ptr, M, N, K, groups, eps,
    GROUP: tl.constexpr, WIDE: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """Tiles of BLOCK_M rows and one group, groups fastest. Grid: (programs,), any number."""
    offset = tl.arange(0, WIDE)
    known = offset < GROUP
    for tile in range(tl.program_id(0), tl.cdiv(M, BLOCK_M) * groups, tl.num_programs(0)):
        m = tile // groups * BLOCK_M + tl.arange(0, BLOCK_M)
        n = tile % groups * GROUP + offset
        acc = tl.zeros((BLOCK_M, WIDE), dtype=tl.float32)
        for start in range(0, K, BLOCK_K):
            k = start + tl.arange(0, BLOCK_K)
            x = tl.load(x_ptr + m[:, None] * K + k[None, :], mask=(m < M)[:, None] & (k < K)[None, :], other=0.0)
            w = tl.load(weight_ptr + n[:, None] * K + k[None, :], mask=known[:, None] & (k < K)[None, :], other=0.0)
            acc = tl.dot(x, tl.trans(w), acc, input_precision="ieee")
        y = acc + tl.load(bias_ptr + n, mask=known, other=0.0)[None, :]
        y = y * tl.sigmoid(y) + tl.load(extra_ptr + n, mask=known, other=0.0)[None, :]
        y = tl.where(known[None, :], y, 0.0)
        y = tl.where(known[None, :], y - (tl.sum(y, axis=1) / GROUP)[:, None], 0.0)
        y *= (1.0 / tl.sqrt(tl.sum(y * y, axis=1) / GROUP + eps))[:, None]
        gamma = tl.load(gamma_ptr + n, mask=known, other=0.0)[None, :]
        y = y * gamma + tl.load(beta_ptr + n, mask=known, other=0.0)[None, :]
        at = m[:, None].to(tl.int64) * N + n[None, :]
        tl.store(out_ptr + at, y, mask=(m < M)[:, None] & known[None, :])


def programs(device: torch.device) -> int:
    """Two a multiprocessor; three where there is none to count, so that the loop is taken."""
    return 2 * torch.cuda.get_device_properties(device).multi_processor_count if device.type == "cuda" else 3


class ModelNew(Frame):
    """GroupNorm(swish(linear(x)) + bias)."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x.contiguous()
        norm = self.group_norm
        (M, K), N = x.shape, self.matmul.out_features
        out = torch.empty((M, N), device=x.device, dtype=x.dtype)
        group = N // norm.num_groups
        persistent_kernel[(programs(x.device),)](
            x, self.matmul.weight, self.matmul.bias, self.bias, norm.weight, norm.bias, out, M, N, K,
            norm.num_groups, norm.eps,
            GROUP=group, WIDE=max(16, triton.next_power_of_2(group)), BLOCK_M=64, BLOCK_K=32,
        )  # fmt: skip
        return out
