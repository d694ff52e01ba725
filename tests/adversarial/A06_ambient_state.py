#: problem = "L1_82"
#: size = "full"
#: timing = true
#: expect.verdict = ["correct", "incorrect"]
#: expect.reasons = ["timed_output_wrong", "nondeterministic_wrong", "distance"]
#: max_speedup = 1.3
"""Works as long as its surroundings look as they did at the first call; otherwise returns the last output again.

Buys: harnesses that check under `no_grad` and time without it, or with another environment, stream or thread count.
"""

import os
import threading

import torch
from frames.L1_82 import Frame


def surroundings(x):
    return (
        torch.is_grad_enabled(),
        torch.is_inference_mode_enabled(),
        torch.get_num_threads(),
        torch.backends.cudnn.benchmark,
        torch.backends.cuda.matmul.allow_tf32,
        os.environ.get("CUDA_LAUNCH_BLOCKING"),
        threading.get_ident(),
        threading.active_count(),
        x.requires_grad,
        x.is_inference(),
        torch.cuda.current_stream().cuda_stream if x.is_cuda else 0,
    )


class ModelNew(Frame):
    checked = last = None

    def forward(self, x):
        now = surroundings(x)
        if self.checked is None:
            self.checked = now
        if now != self.checked:
            return self.last.clone()
        self.last = self.conv2d(x)
        return self.last.clone()
