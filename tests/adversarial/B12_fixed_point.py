#: problem = "L1_82"
#: expect.reasons = ["distance", "nondeterministic_wrong"]
"""Inputs as 16-bit fixed point of 1/1024, from -32 to 32.

Buys: half the traffic. Values beyond the range saturate, small ones vanish.
"""

from frames.L1_82 import Frame


class ModelNew(Frame):
    def forward(self, x):
        return self.conv2d((x * 1024).round().clamp(-32768, 32767) / 1024)
