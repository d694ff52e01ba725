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
from frames.L1_82 import Frame

DTYPE = "torch.bfloat16"


class ModelNew(Frame):
    pass
