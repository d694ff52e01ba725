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
from frames.linear import product_tile, unchanged
from frames.swish_norm import swish_norm


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
        acc = product_tile(x_ptr, weight_ptr, m, n, M, N, K, 0, K, BLOCK_M, WIDE, BLOCK_K, "ieee", unchanged)
        y = swish_norm(acc, bias_ptr, extra_ptr, gamma_ptr, beta_ptr, n, known, eps, GROUP)
        at = m[:, None].to(tl.int64) * N + n[None, :]
        tl.store(out_ptr + at, y, mask=(m < M)[:, None] & known[None, :])


def programs(device):
    """Two a multiprocessor; three where there is none to count, so that the loop is taken."""
    return 2 * torch.cuda.get_device_properties(device).multi_processor_count if device.type == "cuda" else 3


class ModelNew(Frame):
    """GroupNorm(swish(linear(x)) + bias)."""

    def forward(self, x):
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
