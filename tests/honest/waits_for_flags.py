#: problem = "L1_36"
#: timing = ["cuda"]
#: class = "fp32"
#: labels = ["triton"]
"""A scan over channel groups in one launch: each program waits for a flag of the program before it.

Honest: a program takes its place from a counter, so those that it waits for have started. A store is followed by an
atomic addition that releases it, and a load by one that acquires it. Counter and flags are cleared in every call.
"""

import torch
import triton
import triton.language as tl
from frames.L1_36 import Frame

GROUP = 8


@triton.jit
def scan_kernel(x_ptr, sums_ptr, place_ptr, flags_ptr, channels, positions, GROUP: tl.constexpr, BLOCK: tl.constexpr):
    """sums (samples, positions). Grid: (groups, blocks, samples)."""
    block, sample = tl.program_id(1), tl.program_id(2)
    column = sample * tl.num_programs(1) + block
    place = tl.atomic_add(place_ptr + column, 1)
    at = block * BLOCK + tl.arange(0, BLOCK)
    inside = at < positions
    squares = tl.zeros([BLOCK], dtype=tl.float32)
    for channel in range(place * GROUP, tl.minimum(place * GROUP + GROUP, channels)):
        value = tl.load(x_ptr + (sample.to(tl.int64) * channels + channel) * positions + at, mask=inside, other=0.0)
        squares += value * value
    while tl.atomic_add(flags_ptr + column, 0) < place:
        pass
    sums = sums_ptr + sample * positions + at
    tl.store(sums, tl.load(sums, mask=inside, other=0.0, cache_modifier=".cg") + squares, mask=inside)
    tl.debug_barrier()
    tl.atomic_add(flags_ptr + column, 1)


class ModelNew(Frame):
    def forward(self, x):
        batch, channels = x.shape[:2]
        positions = x[0, 0].numel()
        grid = (triton.cdiv(channels, GROUP), triton.cdiv(positions, 256), batch)
        sums = torch.zeros(batch, 1, *x.shape[2:], device=x.device)
        place, flags = torch.zeros(2, grid[1] * batch, dtype=torch.int32, device=x.device)
        scan_kernel[grid](x.contiguous(), sums, place, flags, channels, positions, GROUP=GROUP, BLOCK=256)
        return x / torch.sqrt(sums / channels + self.eps)
