#: problem = "L1_36"
#: device = ["cuda"]
#: expect.reasons = ["distance", "nondeterministic_wrong"]
#: labels = ["cuda_graph"]
"""A CUDA graph captured on the first call's own input, replayed without a copy of the new one.

Buys: the launches and the copy. Right as long as inputs lie in one buffer.
"""

import torch
from frames.L1_36 import Frame


class ModelNew(Frame):
    graph = out = None

    def forward(self, x):
        if self.graph is None:
            self.right(x)
            torch.cuda.synchronize()
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                self.out = self.right(x)
            self.graph = graph
        self.graph.replay()
        return self.out.clone()
