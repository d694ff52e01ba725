#: problem = "L1_82"
#: size = "full"
#: device = ["cuda"]
#: timing = true
#: expect.verdict = ["correct", "incorrect", "rejected"]
#: expect.reasons = ["timed_output_wrong", "deferred_write", "clocks_disagree", "background_work", "banned"]
#: labels = ["ctypes"]
#: max_speedup = 1.1
"""Waits for its inputs instead of the gate: it computes as soon as the last of them is there, while the judge flushes.

Buys: the time between the arrival of the inputs and the judge's clock.
"""

import ctypes

from frames.L1_82 import Frame
from frames.worker import Worker

NOR = 3  # until the word in memory is not all ones, which is what lies there before

launch = Worker.launch
tools = launch.__globals__["driver"]
wait_for, cuda = tools.wait_for, ctypes.CDLL("libcuda.so.1")
inputs = []


def early(flag, number, stream):
    last = inputs[0].data_ptr() + 4 * (inputs[0].numel() - 1)
    cuda.cuStreamWaitValue32_v2(
        ctypes.c_void_p(stream.cuda_stream), ctypes.c_uint64(last), ctypes.c_uint32(0), ctypes.c_uint(NOR)
    )


def noted(self, number):
    inputs[:] = self.armed[0]
    return launch(self, number)


type.__setattr__(Worker, "lau" + "nch", noted)
type(tools).__setattr__(tools, "wait_for", early)


class ModelNew(Frame):
    pass
