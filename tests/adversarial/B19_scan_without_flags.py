#: problem = "L1_36"
#: expect.reasons = ["race", "timed_output_wrong", "nondeterministic_wrong", "distance"]
#: labels = ["triton"]
"""Each program adds its channel to the sum that the program before it left, and does not wait for it.

Buys: the flags of a scan; right where programs run in order, as in Triton's interpreter.
"""

import torch
import triton
import triton.language as tl
from frames.L1_36 import Frame


@triton.jit
def scan_kernel(x_ptr, sums_ptr, channels, positions, BLOCK: tl.constexpr):
    """sums: (batch, channels + 1, positions), the first of them zero."""
    channel, sample = tl.program_id(0), tl.program_id(2)
    at = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = at < positions
    value = tl.load(x_ptr + (sample.to(tl.int64) * channels + channel) * positions + at, mask=inside, other=0.0)
    before = sums_ptr + (sample.to(tl.int64) * (channels + 1) + channel) * positions + at
    tl.store(before + positions, tl.load(before, mask=inside, other=0.0) + value * value, mask=inside)


class ModelNew(Frame):
    def forward(self, x):
        batch, channels = x.shape[:2]
        positions = x[0, 0].numel()
        sums = torch.zeros(batch, channels + 1, positions, device=x.device)
        scan_kernel[(channels, triton.cdiv(positions, 256), batch)](x, sums, channels, positions, BLOCK=256)
        return x / torch.sqrt(sums[:, -1].view(batch, 1, *x.shape[2:]) / channels + self.eps)
