#: problem = "L1_36"
#: device = ["cuda"]
#: expect.verdict = ["incorrect", "rejected"]
#: expect.reasons = [
#:     "deferred_write", "distance", "timed_output_wrong", "nondeterministic_wrong", "background_work",
#:     "clocks_disagree",
#: ]
#: labels = ["ctypes"]
"""A non-blocking stream made by the runtime library itself, so that no name of torch's stream class is in the file.

Buys: as A01_side_stream_unjoined, and even the legacy default stream does not wait for it.
"""

import ctypes

import torch
from frames.L1_36 import Frame

NON_BLOCKING = 1
PAUSE_CYCLES = 20_000_000


def runtime():
    """The CUDA runtime that torch has loaded."""
    with open("/proc/self/maps") as maps:
        path = next(line.split()[-1] for line in maps if "libcudart" in line)
    return ctypes.CDLL(path)


def raw_stream():
    handle = ctypes.c_void_p()
    assert runtime().cudaStreamCreateWithFlags(ctypes.byref(handle), NON_BLOCKING) == 0
    return torch.cuda.get_stream_from_external(handle.value)


class ModelNew(Frame):
    side = None

    def forward(self, x):
        if self.side is None:
            self.side = raw_stream()
        out = torch.empty_like(x)
        before = torch.cuda.current_stream()
        torch.cuda.set_stream(self.side)
        torch.cuda._sleep(PAUSE_CYCLES)
        out.copy_(self.right(x))
        torch.cuda.set_stream(before)
        return out
