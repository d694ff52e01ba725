"""What a solution's source uses. Labels inform; they never decide."""

from __future__ import annotations

import ast
from pathlib import Path

CALLS = {
    "torch.compile": "torch_compile",
    "torch.cuda.CUDAGraph": "cuda_graph",
    "torch.cuda.graph": "cuda_graph",
    "torch.cuda.Stream": "side_stream",
    "torch.utils.cpp_extension.load_inline": "inline_cuda",
    "triton.autotune": "autotuned",
    "torch.autocast": "autocast",
}
ATTRIBUTES = {"allow_tf32": "sets_tf32", "set_float32_matmul_precision": "sets_tf32"}
HEAVY = ("linear", "matmul", "mm", "bmm", "addmm", "conv", "scaled_dot_product_attention", "softmax", "einsum")


def _dotted(node: ast.AST) -> str:
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    return ".".join([node.id, *reversed(parts)]) if isinstance(node, ast.Name) else ""


def labels(source: Path | None) -> list[str]:
    """Sorted labels of a file: triton, torch_compile, cuda_graph, torch_fallback, sets_tf32, ... or `unreadable`."""
    if source is None:
        return []
    try:
        tree = ast.parse(source.read_text())
    except (OSError, SyntaxError, ValueError, RecursionError, MemoryError):  # the last two: nested too deep
        return ["unreadable"]
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            decorators = [_dotted(d.func if isinstance(d, ast.Call) else d) for d in node.decorator_list]
            if any(d.endswith("jit") and "triton" in d for d in decorators):
                found.add("triton")
        if isinstance(node, ast.Attribute):
            name = _dotted(node)
            found.update(label for call, label in CALLS.items() if name == call or name.endswith("." + call))
            found.update(label for attribute, label in ATTRIBUTES.items() if node.attr == attribute)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            owner = _dotted(node.func)
            if owner.startswith(("torch.", "nn.functional.", "F.", "functional.")) and node.func.attr.startswith(HEAVY):
                found.add("torch_fallback")
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.MatMult):
            found.add("torch_fallback")
    if "triton" not in found and "inline_cuda" not in found:
        found.add("no_custom_kernel")
    return sorted(found)
