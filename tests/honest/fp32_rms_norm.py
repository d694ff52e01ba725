#: problem = "L1_36"
#: class = "fp32"
#: labels = ["triton"]
"""Plain fp32 Triton: one program reads all channels of a strip of pixels once, reduces, scales, writes once.

Honest: every output is computed in this call from this call's input, in the precision of the problem.
"""

import torch
import triton
from frames.L1_36 import Frame
from frames.rms_norm import rms_norm_kernel


class ModelNew(Frame):
    """x over the root of its mean square over dimension 1."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x.contiguous()
        out = torch.empty_like(x)
        batch, channels = x.shape[:2]
        pixels = x[0, 0].numel()
        grid = (triton.cdiv(pixels, 128), batch)
        rms_norm_kernel[grid](x, out, channels, pixels, self.eps, CHANNELS=triton.next_power_of_2(channels), BLOCK=128)
        return out
