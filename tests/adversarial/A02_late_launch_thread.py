#: problem = "L1_36"
#: timing = true
#: expect.verdict = ["incorrect", "rejected"]
#: expect.reasons = [
#:     "deferred_write", "distance", "timed_output_wrong", "nondeterministic_wrong", "background_work",
#:     "clocks_disagree",
#: ]
#: labels = ["threads"]
"""A thread does the work after the call has returned an empty tensor.

Buys: the call takes the time of an allocation; the answer is there by the time a slow harness looks.
"""

import threading
import time

import torch
from frames.L1_36 import Frame


class ModelNew(Frame):
    def forward(self, x):
        out = torch.empty_like(x)

        def work():
            time.sleep(0.03)
            with torch.no_grad():
                out.copy_(self.right(x))

        threading.Thread(target=work, daemon=True).start()
        return out
