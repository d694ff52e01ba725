"""Compiles every Triton kernel that a solution launches at full problem size, for given GPUs, with no GPU at hand.

    python tests/compile_kernels.py SOLUTION... ARCH...     (archs: 80 89 90 100; prints JSON, a line a solution)

The solution is called with tensors on the device "meta", which have shapes but no memory; Triton assumes that the
active GPU is the wanted one, and each launch stops after ptxas. So the kernels, their specialisation, constants and
options are those of a real call. TRITON_INTERPRET must not be set.
"""

from __future__ import annotations

import ast
import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.runtime.jit import JITFunction

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from repro.judge.worker.binding import bind  # noqa: E402

RUN = JITFunction.run
Shapes = list[tuple[int, ...]]
# What reaches the kernels that the problem itself does not. kernel_function: shapes of the tensors, keywords.
EXTRA_CALLS = {
    "04_Matrix_vector_multiplication": [([(32768, 5000), (5000, 1)], {})],  # one part; a ragged edge
    "36_RMSNorm": [([(4, 2048, 32, 32)], {})],
    "43_Max_Pooling_3D": [
        ([(2, 4, 9, 10, 40)], {"kernel_size": (2, 5, 3), "stride": 1, "padding": (1, 2, 1)}),  # masked columns
        ([(2, 4, 9, 10, 37)], {"kernel_size": 3, "stride": 2, "padding": 1, "dilation": 3}),  # the general path
    ],
    "77_conv_transposed_3D_square_padded_dilated_strided": [
        ([(4, 24, 8, 9, 10), (24, 40, 3, 3, 3)], {"stride": 1, "padding": 1, "dilation": 1}),
        ([(4, 32, 8, 9, 10), (32, 64, 3, 3, 3)], {"stride": 3, "padding": 1, "dilation": 3}),
        ([(4, 32, 8, 9, 16), (32, 64, 3, 3, 3)], {"stride": 2, "padding": 1, "dilation": 2}),  # no Gluon on sm_90
    ],
    "82_conv_depthwise_2D_square_input_square_kernel": [
        ([(2, 64, 128, 128), (64, 1, 3, 3)], {"stride": 1, "padding": 1}),
        ([(2, 64, 128, 128), (64, 1, 3, 3)], {"stride": 2, "padding": 1}),
    ],
}
# ModelNew: constructor arguments, shapes of the inputs. Small ones, for which sm_90 has no kernel in Gluon.
EXTRA_MODELS = {
    "L1_97_ScaledDotProductAttention": [([], [(1, 2, 48, 64)] * 3)],
    "L2_34_ConvTranspose3d_LayerNorm_GELU_Scaling": [([8, 16, 4, 2, 1], [(2, 8, 2, 4, 8)])],
    "L2_37_Matmul_Swish_Sum_GroupNorm": [([96, 256, 8, (256,)], [(24, 96)])],
    "L3_43_MinGPTCausalAttention": [([96, 4, 0.0, 0.0, 64], [(3, 40, 96)])],
    "L3_44_MiniGPTBlock": [([96, 4, 0.0, 0.0, 64], [(3, 40, 96)])],
    "63_conv_standard_2D__square_input__square_kernel": [
        ([16, 128, 3], [(16, 16, 1024, 1024)]),
        ([5, 7, 3, 2, 1, 2], [(3, 5, 17, 16)]),
    ],
}


class Recorder:
    """Replaces JITFunction.run: compiles instead of launching, and keeps what was compiled."""

    def __init__(self) -> None:
        self.compiled = []

    def run(self, function: JITFunction[Any], *args: Any, grid: Any, warmup: bool, **kwargs: Any) -> Any:
        kernel = RUN(function, *args, grid=grid, warmup=True, **kwargs)
        if callable(grid):
            grid = grid(dict(zip(function.arg_names, args, strict=False)) | kwargs)
        entry = {
            "name": function.__name__,
            "arch": kernel.metadata.target.arch,
            "shared": kernel.metadata.shared,
            "warps": kernel.metadata.num_warps,
            "cubin": len(kernel.asm["cubin"]),
            "grid": [*grid],
        }
        if entry not in self.compiled:
            self.compiled.append(entry)
        return kernel


def aim(arch: int) -> None:
    """Make Triton compile for an architecture. Each has a device of its own, which keeps Triton's caches apart."""
    driver = SimpleNamespace(
        get_current_target=lambda: GPUTarget("cuda", arch, 32), get_current_device=lambda: arch,
        get_current_stream=lambda device: 0, get_active_torch_device=lambda: torch.device("meta"),
    )  # fmt: skip
    triton.runtime.driver.set_active(driver)


def load(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def call_model(path: Path, solution: ModuleType) -> None:
    """ModelNew as the agent study calls it, in fp32, where that has the problem, then the extra models."""
    if (ROOT / "problems" / path.name).exists():
        problem = load(ROOT / "problems" / path.name)
        solution.ModelNew(*problem.get_init_inputs()).eval()(*problem.get_inputs())
    for arguments, shapes in EXTRA_MODELS.get(path.stem, []):
        solution.ModelNew(*arguments).eval()(*(torch.empty(shape) for shape in shapes))


def call_function(path: Path, solution: ModuleType, dtype: torch.dtype) -> None:
    """kernel_function as the artifact study calls it, then (bf16 only, to save minutes) the extra calls."""
    problem = load(path.parent / "problem.py")
    inputs = [t.to(dtype) for t in problem.get_inputs()]
    init = problem.get_init_inputs()
    model = problem.Model(*init).to(dtype)
    bind(solution.kernel_function, model, len(inputs), init)(*inputs)
    if dtype is not torch.bfloat16:
        return
    for shapes, keywords in EXTRA_CALLS.get(path.parent.name, []):
        solution.kernel_function(*(torch.empty(shape, dtype=dtype) for shape in shapes), **keywords)


def call(path: Path) -> None:
    """Every call of the solution whose kernels are to be compiled: artifacts in bf16 and in fp32, others in bf16."""
    solution = load(path)
    with torch.device("meta"), torch.no_grad():
        if hasattr(solution, "ModelNew"):
            call_model(path, solution)
        else:
            call_function(path, solution, torch.bfloat16)
            if path.parent.name in EXTRA_CALLS:
                call_function(path, solution, torch.float32)


def launched_names(solution: Path, decorator: str) -> list[str]:
    """The functions of the file, so decorated, that it launches, NAME[grid](...); those called by kernels are not."""
    tree = ast.parse(solution.read_text())
    kernels = {
        node.name
        for node in tree.body
        if isinstance(node, ast.FunctionDef) and any(decorator in ast.unparse(d) for d in node.decorator_list)
    }
    launches = (n.func.value for n in ast.walk(tree) if isinstance(n, ast.Call) and isinstance(n.func, ast.Subscript))
    return sorted({n.id for n in launches if isinstance(n, ast.Name)} & kernels)


def main(solution: Path, archs: list[int]) -> dict[str, Any]:
    recorder = Recorder()
    JITFunction.run = lambda self, *args, **kwargs: recorder.run(self, *args, **kwargs)
    for arch in archs:
        aim(arch)
        call(solution)
    return {
        "triton": triton.__version__,
        "launched": launched_names(solution, "triton.jit"),
        "gluon": launched_names(solution, "gluon_jit"),
        "compiled": recorder.compiled,
    }


if __name__ == "__main__":
    archs = [int(word) for word in sys.argv[1:] if word.isdigit()]
    for word in sys.argv[1:]:
        if not word.isdigit():
            print(json.dumps(main(Path(word).resolve(), archs)), flush=True)
