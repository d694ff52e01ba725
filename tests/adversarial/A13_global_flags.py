#: problem = "L1_82"
#: size = "full"
#: timing = true
#: expect = { verdict = ["correct", "rejected"], reasons = ["banned", "baseline_disturbed"] }
#: max_speedup = 1.3
"""Turns every switch of its process that could slow a baseline down.

Buys: a baseline that is timed later in the same process runs without cuDNN, without fused attention, on one thread.
"""

import torch
from frames.L1_82 import Frame

torch.set_num_threads(1)
torch.backends.cudnn.enabled = False
torch.backends.cudnn.benchmark = False
torch.backends.mkldnn.enabled = False
torch.backends.cuda.enable_flash_sdp(False)
torch.use_deterministic_algorithms(True, warn_only=True)
torch.autograd.set_detect_anomaly(True)


class ModelNew(Frame):
    pass
