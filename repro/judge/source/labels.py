"""Labels of a solution's source: what it uses, such as `triton`, `torch_compile` or `torch_fallback`.

Labels inform; they never decide.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable
from pathlib import Path

from repro.judge.source.names import Source, imports, is_jit, parsed, text

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
    "dynamic_code": ("exec", "eval", "compile", "builtins.exec", "builtins.eval", "builtins.compile"),
}  # fmt: skip
_METHODS = {"half": "half_precision", "bfloat16": "half_precision",
           "read_text": "reads_files", "read_bytes": "reads_files"}  # fmt: skip
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


def _calls_super(node: ast.AST) -> bool:
    match node:
        case ast.Attribute(ast.Call(ast.Name("super")), "forward" | "__call__"):
            return True
    return False


def _used(source: Source, node: ast.AST) -> set[str]:
    """Return the labels of the names that a node reads or imports."""
    paths = imports(node)
    if isinstance(node, ast.Attribute | ast.Name) and isinstance(node.ctx, ast.Load):
        paths.append(source.dotted(node))
    labels = {"triton"} if any(map(is_jit, paths)) else set[str]()
    for path in filter(None, paths):
        labels |= {label for label, uses in _USES.items() if any(path == u or path.startswith(u + ".") for u in uses)}
    return labels


def _falls_back(source: Source, node: ast.AST) -> set[str]:
    """Return the labels of a node that lets torch do the work, always or where a kernel fails."""
    labels = {"torch_fallback"} if _by_torch(source, node) else set[str]()
    if isinstance(node, ast.Try):
        inside = [part for handler in node.handlers for part in ast.walk(handler)]
        labels |= (
            {"exception_fallback"} if any(_by_torch(source, part) or _calls_super(part) for part in inside) else set()
        )
    return labels


def _inherits(source: Source, node: ast.AST) -> set[str]:
    match node:
        case ast.ClassDef(_, bases):
            inherits = any(ast.unparse(base).rpartition(".")[2] == "Model" for base in bases)
        case _:
            inherits = any(map(_PROBLEM.match, imports(node)))
    return {"inherits_model"} if inherits else set()


def _flags_and_types(source: Source, node: ast.AST) -> set[str]:
    """Return the labels of precision that a node sets or asks for, and those of files that it reads."""
    match node:
        case ast.Attribute(_, "allow_tf32" | "fp32_precision", ast.Store()):
            return {"sets_tf32"}
        case ast.Call(ast.Attribute(ast.Name("self"))):
            return set()
        case ast.Call(ast.Attribute(_, attr)) if attr in _METHODS:
            return {_METHODS[attr]}
    return set()


def _named_at_run_time(source: Source, node: ast.AST) -> set[str]:
    """Return the labels of a call that imports, reads or sets by a name that is given as a value."""
    match node:
        case ast.Call(ast.Attribute(ast.Name("self"))):
            return set()
        case ast.Call(ast.Attribute(_, attr)) if attr in _METHODS:
            return set()
        case ast.Call(func, [first, *rest]):
            path, name = source.dotted(func).removeprefix("builtins."), text(rest[0]) if rest else ""
            if path in ("__import__", "importlib.import_module"):
                return set() if text(first) else {"dynamic_code"}
            if path == "getattr" and rest and not name and source.dotted(first):
                return {"dynamic_code"}
            if path == "setattr" and name in ("allow_tf32", "fp32_precision"):
                return {"sets_tf32"}
    return set()


_Rule = Callable[[Source, ast.AST], set[str]]
_RULES: tuple[_Rule, ...] = (_used, _falls_back, _inherits, _flags_and_types, _named_at_run_time)


def _module_of_torch(source: Source, node: ast.AST) -> str:
    """Return the attribute of self to which a node assigns a module of torch that works, or ""."""
    match node:
        case ast.Assign([ast.Attribute(ast.Name("self"), attr)], ast.Call(func)):
            owner, _, name = source.dotted(func).rpartition(".")
            return attr if owner.startswith("torch.nn") and name.startswith(_HEAVY_MODULES) else ""
    return ""


def _labels(source: Source) -> set[str]:
    labels: set[str] = set()
    modules: set[str] = set()  # attributes of self that hold a module of torch, and those that are called
    called: set[str] = set()
    for node in source.nodes():
        for rule in _RULES:
            labels |= rule(source, node)
        modules.add(_module_of_torch(source, node))
        match node:
            case ast.Call(ast.Attribute(ast.Name("self"), attr)):
                called.add(attr)
    if modules & called:
        labels.add("torch_fallback")
    if not labels & {"triton", "inline_cuda"}:
        labels.add("no_custom_kernel")
    return labels


def labels(path: Path | None) -> list[str]:
    """Return the sorted labels of a file: triton, torch_compile, torch_fallback, sets_tf32, ... or `unreadable`."""
    source = parsed(path)
    if source is None:
        return [] if path is None else ["unreadable"]
    try:
        return sorted(_labels(source))
    except RecursionError:
        return ["unreadable"]
