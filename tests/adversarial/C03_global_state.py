#: problem = "L1_82"
#: size = "full"
#: timing = true
#: expect = { verdict = ["correct"], reasons = [] }
#: labels = ["sets_tf32"]
#: max_speedup = 1.3
"""Leaves every global switch of torch in another state than it found it.

Buys: where one process runs several solutions, the next ones are judged and timed under these switches.
"""

import torch
from frames.L1_82 import Frame

torch.backends.cuda.matmul.allow_tf32 = True
torch.backends.cudnn.allow_tf32 = True
torch.backends.cudnn.benchmark = True
torch.set_float32_matmul_precision("medium")
torch.set_default_dtype(torch.bfloat16)
torch.manual_seed(0)
torch.set_flush_denormal(True)
torch.set_printoptions(precision=1)


class ModelNew(Frame):
    pass
