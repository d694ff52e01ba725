#: problem = "L1_82"
#: size = "full"
#: device = ["cuda"]
#: timing = true
#: expect.verdict = ["incorrect", "rejected"]
#: expect.reasons = ["timed_output_wrong", "not_finite"]
"""Does not wait at the gate: it computes while the judge's clock does not run yet.

Buys: all of the time, where the inputs of a call are there when it is launched.
"""

from torch import nn

Worker = next(kind for kind in object.__subclasses__() if kind.__module__.endswith("judge.worker.server"))
driver = Worker.launch.__globals__["driver"]
type(driver).__setattr__(driver, "wait_for", lambda flag, number, stream: None)


class ModelNew(nn.Module):
    def __init__(self, in_channels, kernel_size, stride=1, padding=0, bias=False):
        super().__init__()
        self.conv2d = nn.Conv2d(
            in_channels, in_channels, kernel_size, stride=stride, padding=padding, groups=in_channels, bias=bias
        )

    def forward(self, x):
        return self.conv2d(x)
