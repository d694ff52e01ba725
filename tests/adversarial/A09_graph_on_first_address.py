#: problem = "L1_36"
#: device = ["cuda"]
#: expect.reasons = ["distance", "nondeterministic_wrong"]
#: labels = ["cuda_graph"]
"""A CUDA graph captured on the first call's own input, replayed without a copy of the new one.

Buys: the launches and the copy. Right as long as inputs lie in one buffer.
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, num_features, eps=1e-5):
        super().__init__()
        self.eps = eps
        self.graph = self.out = None

    def norm(self, x):
        return x / torch.sqrt(torch.mean(x**2, dim=1, keepdim=True) + self.eps)

    def forward(self, x):
        if self.graph is None:
            self.norm(x)
            torch.cuda.synchronize()
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                self.out = self.norm(x)
            self.graph = graph
        self.graph.replay()
        return self.out.clone()
