#: problem = "L1_82"
#: size = "full"
#: timing = true
#: expect = { verdict = ["correct"], reasons = [] }
#: max_speedup = 1.3
#: precision_class = ["fp32"]
"""float16 bfloat16 half .half() .bfloat16() torch.bfloat16 float8_e4m3fn: an honest fp32 kernel with these words.

Buys: inputs, a baseline and a tolerance of a smaller type, where those are chosen by searching the source.
"""

# bfloat16 fp16 half
from torch import nn

DTYPE = "torch.bfloat16"


class ModelNew(nn.Module):
    def __init__(self, in_channels, kernel_size, stride=1, padding=0, bias=False):
        super().__init__()
        self.conv2d = nn.Conv2d(
            in_channels, in_channels, kernel_size, stride=stride, padding=padding, groups=in_channels, bias=bias
        )

    def forward(self, x):
        return self.conv2d(x)
