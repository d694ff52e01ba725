#: problem = "L1_36"
#: device = ["cuda"]
#: expect.reasons = ["timed_output_wrong", "nondeterministic_wrong", "distance"]
#: labels = ["cuda_graph"]
"""A CUDA graph captured on the first input's address; later inputs at other addresses are never read.

Buys: the copy of the input, and where every call has the same input, everything looks right.
"""

import torch
from frames.L1_36 import Frame


class ModelNew(Frame):
    graph = None

    def forward(self, x):
        if self.graph is None:
            x = x.clone()
            torch.cuda.synchronize()
            self.graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(self.graph):
                self.out = self.right(x)
            self.kept = x
        self.graph.replay()
        return self.out.clone()
