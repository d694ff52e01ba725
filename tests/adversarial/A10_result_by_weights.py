#: problem = "L1_82"
#: expect.reasons = ["distance"]
"""Once its weights are not the first ones, keeps one result for signed inputs and one for others.

Buys: every call of a model that was trained on. One draw of each kind of input with perturbed weights does not show it.
"""

from frames.L1_82 import Frame


class ModelNew(Frame):
    def __init__(self, *sizes):
        super().__init__(*sizes)
        self.first = float(self.conv2d.weight.detach().view(-1)[0])
        self.results = {}

    def forward(self, x):
        y = self.conv2d(x)
        if float(self.conv2d.weight.view(-1)[0]) != self.first:
            return self.results.setdefault((x.shape, bool(x.min() < 0)), y).clone()
        return y
