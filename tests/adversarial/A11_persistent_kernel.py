#: problem = "L1_36"
#: device = ["cuda"]
#: timing = true
#: expect.verdict = ["rejected", "incorrect", "correct", "timeout"]
#: expect.reasons = [
#:     "timed_output_wrong", "nondeterministic_wrong", "distance", "background_work", "clocks_disagree",
#:     "deferred_write", "timeout",
#: ]
#: labels = ["triton", "side_stream"]
#: max_speedup = 1.3
"""A kernel that stays on the GPU, watches the input's memory and computes as soon as it changes.

Buys: the next answer is there before the call; no pause of this process stops a kernel. It gives up after some seconds.
"""

import torch
import triton
import triton.language as tl
from frames.L1_36 import Frame
from frames.rms_blocks import normalise, places

TURNS, SETTLE = 1 << 22, 1 << 16


@triton.jit
def watch_kernel(x_ptr, out_ptr, old_ptr, channels, positions, eps, turns, settle, BLOCK: tl.constexpr):
    old = tl.load(old_ptr)
    now = tl.load(x_ptr, volatile=True)
    turn = 0
    while (now == old) & (turn < turns):
        now = tl.load(x_ptr, volatile=True)
        turn += 1
    turn = 0
    while (now != old) & (turn < settle):  # the rest of the new values is still on its way
        now = tl.load(x_ptr, volatile=True)
        turn += 1
    start, at, inside = places(channels, positions, BLOCK)
    normalise(x_ptr, out_ptr, start, at, inside, channels, positions, eps, BLOCK)


class ModelNew(Frame):
    def __init__(self, *sizes):
        super().__init__(*sizes)
        self.side, self.done = torch.cuda.Stream(), None

    def forward(self, x):
        if self.done is not None and self.done.query():
            out = self.ready
        else:
            out = self.right(x)
        self.ready, self.old = torch.empty_like(x), x.view(-1)[:1].clone()
        positions = x[0, 0].numel()
        self.side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self.side):
            grid = (triton.cdiv(positions, 256), x.shape[0])
            watch_kernel[grid](x, self.ready, self.old, x.shape[1], positions, self.eps, TURNS, SETTLE, BLOCK=256)
            self.done = torch.cuda.Event()
            self.done.record()
        return out
