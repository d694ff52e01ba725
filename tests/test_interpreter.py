"""bfloat16 kernels in Triton's interpreter give what a GPU would give."""

import subprocess
import sys

import numpy as np

from repro import settings
from repro.judge import interpreter

KERNEL = """
import torch, triton, triton.language as tl
from repro.judge import interpreter
interpreter.mend()

@triton.jit
def kernel(a, b, product, mixed, N: tl.constexpr):
    at = tl.arange(0, N)[:, None] * N + tl.arange(0, N)[None, :]
    x, y = tl.load(a + at), tl.load(b + at)
    tl.store(product + at, tl.dot(x, y))
    tl.store(mixed + at, (x * y + x).to(tl.float32) + tl.where(x > y, x, y) - x + tl.abs(y))

a, b = torch.randn(32, 32).bfloat16(), torch.randn(32, 32).bfloat16()
product, mixed = torch.empty(32, 32), torch.empty_like(a)
kernel[(1,)](a, b, product, mixed, N=32)
assert torch.allclose(product, a.float() @ b.float(), atol=1e-5)
expected = ((a * b + a).float() + torch.where(a > b, a, b) - a + b.abs()).bfloat16()
assert torch.equal(mixed, expected), (mixed - expected).abs().max()
"""


def test_bfloat16_arithmetic_and_dot_match_torch(tmp_path):
    file = tmp_path / "kernel.py"
    file.write_text(KERNEL)
    env = settings.cell_env({"TRITON_INTERPRET": "1", "PYTHONPATH": str(settings.ROOT)})
    done = subprocess.run([sys.executable, str(file)], env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_narrow_rounds_to_nearest_even_and_keeps_nan_and_infinity():
    import torch

    values = np.float32([1.0, 1.00390625, 1.01171875, -3.3e38, np.inf, -np.inf, 1e-40, 0.0, -0.0])
    expected = torch.from_numpy(values).bfloat16().view(torch.int16).numpy().view(np.uint16)
    assert (interpreter.narrow(values) == expected).all()
    assert np.isnan(interpreter.widen(interpreter.narrow(np.float32([np.nan])))[0])
