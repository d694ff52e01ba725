#: problem = "L1_36"
#: device = ["cuda"]
#: class = "fp32"
#: labels = ["cuda_graph"]
"""CUDA graphs by the address of the input: another address means another capture.

Honest: a graph reads the memory that it was captured on, and is replayed for that memory only. A caller
whose inputs move pays for captures.
"""

import torch
from frames.L1_36 import Frame

MOST = 16


class ModelNew(Frame):
    """x over the root of its mean square over dimension 1."""

    def __init__(self, *sizes):
        super().__init__(*sizes)
        self.graphs: dict[tuple[object, ...], tuple[torch.cuda.CUDAGraph, torch.Tensor]] = {}

    def forward(self, x):
        key = (x.data_ptr(), x.shape)
        if key not in self.graphs:
            if len(self.graphs) >= MOST:
                self.graphs.pop(next(iter(self.graphs)))
            self.right(x)
            torch.cuda.synchronize()
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                out = self.right(x)
            self.graphs[key] = graph, out
        graph, out = self.graphs[key]
        graph.replay()
        return out.clone()
