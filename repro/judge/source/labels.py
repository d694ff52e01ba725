"""Labels of a solution's source: what it uses, such as `triton`, `torch_compile` or `torch_fallback`.

Labels inform; they never decide.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable
from pathlib import Path

from repro.judge.source.names import Source, imports, is_jit, parsed

# label: dotted names; each includes all names below it
_USES = {
    "torch_compile": ("torch.compile", "torch._dynamo.optimize", "torch._inductor.compile"),
    "cuda_graph": ("torch.cuda.CUDAGraph", "torch.cuda.graph", "torch.cuda.make_graphed_callables"),
    "side_stream": ("torch.Stream", "torch.cuda.Stream", "torch.cuda.ExternalStream", "torch.cuda.streams"),
    "inline_cuda": ("torch.utils.cpp_extension", "torch.cuda._compile_kernel", "cupy.RawKernel", "cupy.RawModule"),
    "autotuned": ("triton.autotune",),
    "autocast": ("torch.autocast", "torch.amp.autocast", "torch.cuda.amp.autocast"),
    "sets_tf32": ("torch.set_float32_matmul_precision",),
    "threads": ("threading", "_thread", "concurrent.futures"),
    "subprocess": ("subprocess", "multiprocessing", "torch.multiprocessing", "pty", "os.fork", "os.forkpty",
                   "os.system", "os.popen", "os.posix_spawn", "os.execv", "os.execve"),
    "ctypes": ("ctypes", "cffi"),
    "reads_files": ("open", "builtins.open", "io.open", "os.open", "torch.load", "numpy.load", "numpy.fromfile",
                    "numpy.memmap", "numpy.loadtxt", "torch.from_file"),
    "half_precision": ("torch.float16", "torch.half", "torch.bfloat16", "triton.language.float16",
                       "triton.language.bfloat16", "torch.HalfTensor", "torch.BFloat16Tensor"),
    "dynamic_code": ("exec", "eval", "compile", "builtins.exec", "builtins.eval", "builtins.compile", "__import__",
                     "importlib.import_module"),
}  # fmt: skip
# label: last parts of names, whatever they are of
_PARTS = {"half": "half_precision", "bfloat16": "half_precision", "read_text": "reads_files",
         "read_bytes": "reads_files", "allow_tf32": "sets_tf32", "fp32_precision": "sets_tf32"}  # fmt: skip
_PROBLEM = re.compile(r"(problems?|reference|L\d_\d+\w*)(\.|$)")
_HEAVY = ("linear", "matmul", "mm", "bmm", "addmm", "baddbmm", "conv", "scaled_dot_product_attention", "softmax",
         "log_softmax", "einsum", "tensordot", "layer_norm", "group_norm", "batch_norm", "rms_norm", "max_pool",
         "avg_pool", "multi_head_attention")  # fmt: skip
_HEAVY_METHODS = {"matmul", "mm", "bmm", "addmm", "baddbmm", "mv", "softmax", "log_softmax"}
_HEAVY_MODULES = ("Linear", "Bilinear", "Conv", "MultiheadAttention", "Transformer", "Softmax", "LogSoftmax",
                 "Sequential", "LayerNorm", "GroupNorm", "BatchNorm", "RMSNorm", "MaxPool", "AvgPool", "LSTM",
                 "GRU")  # fmt: skip


def _by_torch(source: Source, node: ast.AST) -> bool:
    """Return whether a node lets torch do work that a kernel could do."""
    if isinstance(node, ast.BinOp):
        return isinstance(node.op, ast.MatMult) and not source.jitted
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute | ast.Name):
        return False
    path = source.dotted(node.func)
    if path.startswith("torch.ops."):
        return any(part.lstrip("_").startswith(_HEAVY) for part in path.split("."))
    if path.startswith("torch."):
        return path.rpartition(".")[2].lstrip("_").startswith(_HEAVY)
    if path or isinstance(node.func, ast.Name):
        return False
    owner = node.func.value
    return node.func.attr in _HEAVY_METHODS and not (isinstance(owner, ast.Name) and owner.id in ("self", "cls"))


def _used(source: Source, node: ast.AST) -> set[str]:
    """Return the labels of the names that a node reads, sets or imports."""
    paths, labels = imports(node), set[str]()
    match node:
        case ast.Attribute(ast.Name("self")):
            return labels
        case ast.Attribute(_, attr) if attr in _PARTS:
            labels.add(_PARTS[attr])
    if isinstance(node, ast.Attribute | ast.Name) and isinstance(node.ctx, ast.Load):
        paths.append(source.dotted(node))
    for path in filter(None, paths):
        labels |= {"triton"} if is_jit(path) else set()
        labels |= {label for label, uses in _USES.items() if f"{path}.".startswith(tuple(f"{use}." for use in uses))}
    return labels


def _falls_back(source: Source, node: ast.AST) -> set[str]:
    """Return the labels of a node that lets torch do the work, always or where a kernel fails."""
    labels = {"torch_fallback"} if _by_torch(source, node) else set[str]()
    if isinstance(node, ast.Try):
        inside = [part for handler in node.handlers for part in ast.walk(handler)]
        if any(_by_torch(source, part) or isinstance(part, ast.Name) and part.id == "super" for part in inside):
            labels.add("exception_fallback")
    return labels


def _inherits(source: Source, node: ast.AST) -> set[str]:
    bases = [ast.unparse(base).rpartition(".")[2] for base in node.bases] if isinstance(node, ast.ClassDef) else []
    return {"inherits_model"} if "Model" in bases or any(map(_PROBLEM.match, imports(node))) else set()


_Rule = Callable[[Source, ast.AST], set[str]]
_RULES: tuple[_Rule, ...] = (_used, _falls_back, _inherits)


def _labels(source: Source) -> set[str]:
    labels = set()
    modules, called = set(), set()  # attributes of self that hold a module of torch that works, and that are called
    for node in source.nodes():
        labels |= {label for rule in _RULES for label in rule(source, node)}
        match node:
            case ast.Assign([ast.Attribute(ast.Name("self"), attr)], ast.Call(func)):
                owner, _, name = source.dotted(func).rpartition(".")
                if owner.startswith("torch.nn") and name.startswith(_HEAVY_MODULES):
                    modules.add(attr)
            case ast.Call(ast.Attribute(ast.Name("self"), attr)):
                called.add(attr)
    if modules & called:
        labels.add("torch_fallback")
    return labels if labels & {"triton", "inline_cuda"} else labels | {"no_custom_kernel"}


def labels(path: Path | None) -> list[str]:
    """Return the sorted labels of a file: triton, torch_compile, torch_fallback, sets_tf32, ... or `unreadable`."""
    source = parsed(path)
    if source is None:
        return [] if path is None else ["unreadable"]
    try:
        return sorted(_labels(source))
    except RecursionError:
        return ["unreadable"]
