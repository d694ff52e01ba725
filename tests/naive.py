"""The twelve naive kernels from which searches of KernelBench problems start; those of a kind share a template."""

from __future__ import annotations

from pathlib import Path

import jinja2

FOLDER = Path(__file__).parent / "data" / "naive"
RELU, GELU = "tl.maximum(acc, 0.0)", "0.5 * acc * (1.0 + tl.erf(acc * 0.7071067811865476))"
# Problem -> what it is, the name of its layer, numbers that it is made with, what follows the product.
LINEAR = {
    "12_Gemm_Multiply_LeakyReLU": ("Linear layer, product with a number and LeakyReLU", "gemm",
        ["multiplier", "negative_slope"], ["acc * multiplier", "tl.where(acc > 0, acc, acc * negative_slope)"]),
    "63_Gemm_ReLU_Divide": ("Linear layer, ReLU and division by a number", "linear", ["divisor"],
        [RELU, "acc / divisor"]),
    "76_Gemm_Add_ReLU": ("Linear layer, bias and ReLU", "gemm", [], [RELU]),
    "86_Matmul_Divide_GELU": ("Linear layer, division by a number and GELU", "linear", ["divisor"],
        ["acc / divisor", GELU]),
}  # fmt: skip
# Problem -> the name of its kernel.
WINDOWS = {"42_Max_Pooling_2D": "pool_kernel", "63_conv_standard_2D__square_input__square_kernel": "conv_kernel"}


def kernels() -> dict[str, str]:
    """Return KernelBench's name of a problem -> the source of its naive kernel."""
    found = {file.stem: file.read_text() for file in FOLDER.glob("*.py")}
    linear, window = (
        jinja2.Template((FOLDER / f"{name}.py.j2").read_text(), trim_blocks=True, keep_trailing_newline=True)
        for name in ("linear", "window")
    )
    for name, (what, layer, numbers, epilogue) in LINEAR.items():
        found[name] = linear.render(what=what, layer=layer, numbers=numbers, epilogue=epilogue)
    for name, kernel in WINDOWS.items():
        found[name] = window.render(kernel=kernel, conv=kernel == "conv_kernel")
    return dict(sorted(found.items()))
