#: problem = "L1_36"
#: device = ["cuda"]
#: timing = true
#: expect.reasons = ["timed_output_wrong", "nondeterministic_wrong", "distance", "deferred_write"]
#: labels = ["cuda_graph"]
"""Captures the work for every input that it has seen in one CUDA graph, and replays it once in eight calls.

Buys: a harness that captures or times a batch of calls: the work of a replay is shared by all of them.
"""

import torch
from frames.L1_36 import Frame


class ModelNew(Frame):
    calls, graph = 0, None

    def forward(self, x):
        self.known = getattr(self, "known", {})
        new = x.data_ptr() not in self.known
        self.known[x.data_ptr()] = x
        if new:
            self.right(x)
            self.graph, self.ready = torch.cuda.CUDAGraph(), {}
            torch.cuda.synchronize()
            with torch.cuda.graph(self.graph):
                self.ready = {address: self.right(tensor) for address, tensor in self.known.items()}
        if new or self.calls % 8 == 0:
            self.graph.replay()
        self.calls += 1
        return self.ready[x.data_ptr()]
