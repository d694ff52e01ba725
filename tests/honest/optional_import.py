#: problem = "L1_36@bf16"
#: class = "bf16"
#: labels = ["triton"]
"""An optional package behind try/except: profiler ranges where nvtx is installed, nothing where it is not.

Honest: both branches compute the same; an ImportError alone is caught, at import, and no failure of the kernel is
hidden.
"""

import contextlib

import torch
from frames.rms_norm import rms_norm

try:
    import nvtx
except ImportError:
    nvtx = None


def profiled(name):
    """A named range for the profiler, or nothing."""
    return contextlib.nullcontext() if nvtx is None else nvtx.annotate(name)


def kernel_function(x, num_features=64, eps=1e-5):
    """x: (batch, channels, ...); returns the same shape. num_features is the model's; the shape of x decides."""
    with profiled("rms_norm"):
        x = x.contiguous()
        return rms_norm(x, torch.empty_like(x), eps)
