#: problem = "L1_36"
#: device = ["cuda"]
#: timing = true
#: expect = { verdict = ["correct"], reasons = [] }
#: labels = ["cuda_graph"]
"""A CUDA graph of the reference, replayed on a copy of the input.

Buys: the launches. Legal, and labelled.
"""

import torch
from frames.L1_36 import Frame


class ModelNew(Frame):
    graph = None

    def work(self, x):
        return self.right(x)

    def capture(self, x):
        self.x = x.clone()
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            self.work(self.x)
        torch.cuda.current_stream().wait_stream(side)
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph):
            self.out = self.work(self.x)

    def forward(self, x):
        if self.graph is None:
            self.capture(x)
        self.x.copy_(x)
        self.graph.replay()
        return self.out.clone()
