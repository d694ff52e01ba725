#: problem = "L1_36"
#: expect.verdict = ["incorrect", "rejected"]
#: expect.reasons = ["distance", "banned", "nondeterministic_wrong"]
"""As B14_frames, reaching the callers through a traceback of its own and looking into their objects too.

Buys: the same, unseen by a ban.
"""

import torch
from frames.L1_36 import Frame
from frames.plain import plain


def callers():
    try:
        raise LookupError
    except LookupError as error:
        frame = getattr(error.__traceback__, plain("go_senzr"))
    while frame is not None:
        yield frame
        frame = getattr(frame, plain("s_onpx"))


def tensors(value, depth=0):
    if type(value) is torch.Tensor:
        yield value
    elif depth < 3:
        parts = value.values() if isinstance(value, dict) else value if isinstance(value, list | tuple) else ()
        for part in list(parts) + list(getattr(value, "__dict__", {}).values()):
            yield from tensors(part, depth + 1)


class ModelNew(Frame):
    def forward(self, x):
        for frame in callers():
            for found in tensors(dict(frame.f_locals)):
                if found.numel() == x.numel() and found.data_ptr() != x.data_ptr():
                    return found.view(x.shape).float().clone()
        return torch.zeros_like(x)
