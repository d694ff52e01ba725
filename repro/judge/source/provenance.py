"""Labels of a solution's source (`labels`), bans (`bans`), and origins of its kernels (`profile`, `share`).

Labels and shares inform; they never decide. The bans are a tripwire: a string that is assembled at run time gets past
them. They exist so that a plain attack is rejected with its line number, without a measurement. Other attacks are
stopped by keeping seeds, limits, expected values and the verdict out of the worker's process.

The list is short, so that it never matches an honest kernel. Each entry, and why it is banned:
- writing to attributes of torch, triton, time, builtins, sys, os, json: the worker reads clocks, waits for the device
  and speaks to the judge through them. Flags that tune a library stay open (`OPEN`);
- importing repro or __main__, finding them in sys.modules, writing to sys.modules: the worker's own program;
- sys._getframe, f_back, tb_frame, inspect.stack and similar: the callers' variables, clocks among them;
- gc.get_objects and similar, sys.settrace, sys.setprofile: the same objects by another way;
- ptrace, process_vm_readv, process_vm_writev, mprotect, /proc/*/mem: memory of the judge, or native code in the worker;
- LD_PRELOAD: code in the next process; os.kill of os.getppid(): ending the judge's processes.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict

from repro.judge.source.names import Source, imports, is_jit, parsed, text

if TYPE_CHECKING:
    from repro.records.verdict import KernelShares

# -- labels ----------------------------------------------------------------------------------------------------------

# label: dotted names; each includes all names below it
USES = {
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
METHODS = {"half": "half_precision", "bfloat16": "half_precision",
           "read_text": "reads_files", "read_bytes": "reads_files"}  # fmt: skip
PROBLEM = re.compile(r"(problems?|reference|L\d_\d+\w*)(\.|$)")
HEAVY = ("linear", "matmul", "mm", "bmm", "addmm", "baddbmm", "conv", "scaled_dot_product_attention", "softmax",
         "log_softmax", "einsum", "tensordot", "layer_norm", "group_norm", "batch_norm", "rms_norm", "max_pool",
         "avg_pool", "multi_head_attention")  # fmt: skip
HEAVY_METHODS = {"matmul", "mm", "bmm", "addmm", "baddbmm", "mv", "softmax", "log_softmax"}
HEAVY_MODULES = ("Linear", "Bilinear", "Conv", "MultiheadAttention", "Transformer", "Softmax", "LogSoftmax",
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
        return any(part.lstrip("_").startswith(HEAVY) for part in path.split("."))
    if path.startswith("torch."):
        return path.rpartition(".")[2].lstrip("_").startswith(HEAVY)
    own = (
        isinstance(node.func, ast.Name)
        or isinstance(node.func.value, ast.Name)
        and node.func.value.id in ("self", "cls")
    )
    return not path and not own and isinstance(node.func, ast.Attribute) and node.func.attr in HEAVY_METHODS


def _calls_super(node: ast.AST) -> bool:
    return isinstance(node, ast.Attribute) and node.attr in ("forward", "__call__") and (
        isinstance(node.value, ast.Call) and isinstance(node.value.func, ast.Name) and node.value.func.id == "super"
    )  # fmt: skip


def _labels(source: Source) -> set[str]:
    found: set[str] = set()
    modules: set[str] = set()  # attributes of self that hold a module of torch, and those that are called
    called: set[str] = set()
    for node in source.nodes():
        paths = imports(node)
        if isinstance(node, ast.Attribute | ast.Name) and isinstance(node.ctx, ast.Load):
            paths.append(source.dotted(node))
        for path in filter(None, paths):
            found |= {label for label, uses in USES.items() if any(path == u or path.startswith(u + ".") for u in uses)}
            if is_jit(path):
                found.add("triton")
        if _by_torch(source, node):
            found.add("torch_fallback")
        match node:
            case ast.Import() | ast.ImportFrom() if any(map(PROBLEM.match, imports(node))):
                found.add("inherits_model")
            case ast.ClassDef(_, bases) if any(ast.unparse(base).rpartition(".")[2] == "Model" for base in bases):
                found.add("inherits_model")
            case ast.Try(_, handlers):
                inside = [node for handler in handlers for node in ast.walk(handler)]
                if any(_by_torch(source, node) or _calls_super(node) for node in inside):
                    found.add("exception_fallback")
            case ast.Attribute(_, "allow_tf32" | "fp32_precision", ast.Store()):
                found.add("sets_tf32")
            case ast.Assign([ast.Attribute(ast.Name("self"), attr)], ast.Call(func)):
                owner, _, name = source.dotted(func).rpartition(".")
                if owner.startswith("torch.nn") and name.startswith(HEAVY_MODULES):
                    modules.add(attr)
            case ast.Call(ast.Attribute(ast.Name("self"), attr)):
                called.add(attr)
            case ast.Call(ast.Attribute(_, attr)) if attr in METHODS:
                found.add(METHODS[attr])
            case ast.Call(func, [first, *rest]):
                path = source.dotted(func).removeprefix("builtins.")
                if path in ("__import__", "importlib.import_module") and not text(first):
                    found.add("dynamic_code")
                if path == "getattr" and rest and not text(rest[0]) and source.dotted(first):
                    found.add("dynamic_code")
                if path == "setattr" and rest and text(rest[0]) in ("allow_tf32", "fp32_precision"):
                    found.add("sets_tf32")
    if modules & called:
        found.add("torch_fallback")
    if not found & {"triton", "inline_cuda"}:
        found.add("no_custom_kernel")
    return found


def labels(path: Path | None) -> list[str]:
    """Return the sorted labels of a file: triton, torch_compile, torch_fallback, sets_tf32, ... or `unreadable`."""
    source = parsed(path)
    if source is None:
        return [] if path is None else ["unreadable"]
    try:
        return sorted(_labels(source))
    except RecursionError:
        return ["unreadable"]


# -- bans ------------------------------------------------------------------------------------------------------------

PROTECTED = ("torch", "triton", "time", "builtins", "sys", "os", "json")
MODULES = {*PROTECTED} - {"triton"}  # below such a name nothing is a flag; torch's compiler has flags named triton
OPEN = re.compile(r"torch\.(backends|_\w+\.config|_inductor\.config|utils\._config\w*)\.|triton\.knobs\."
                  r"|torch\.(compiler\.config|fx\.experimental\._config)\.[^.]+$"
                  r"|sys\.(path|argv|dont_write_bytecode)$")  # fmt: skip
PEEKS = ("sys._getframe", "sys._current_frames", "sys.settrace", "sys.setprofile", "threading.settrace",
         "threading.setprofile", "inspect.stack", "inspect.currentframe", "inspect.getouterframes", "inspect.trace",
         "gc.get_objects", "gc.get_referrers", "gc.get_referents")  # fmt: skip
FRAMES, NATIVE = {"f_back", "tb_frame"}, {"ptrace", "process_vm_readv", "process_vm_writev", "mprotect"}
NATIVE_CALL = re.compile(rf"\b({'|'.join(sorted(NATIVE))})\s*\(")
MEMORY = re.compile(r"/proc/[\w{}%$*-]+(/task/[\w{}%$*-]+)?/mem(?!\w)")
UPDATES = {"update", "setdefault", "pop", "popitem", "clear", "__setitem__", "__delitem__", "__ior__"}
UNREADABLE = "the source is nested too deeply or is too long to be checked"
JUDGE = re.compile(r"(repro|__main__)(\.|$)")


def _protected(path: str) -> str:
    """Return the protected attribute that a dotted name writes to, or ""."""
    plain = path.replace(".__dict__", "")
    first, *names = plain.split(".")
    return plain if first in PROTECTED and names and not (OPEN.match(plain) and MODULES.isdisjoint(names)) else ""


def _writes(source: Source, node: ast.AST) -> str:
    """Return the protected attribute that a node assigns to, deletes or patches, or ""."""
    match node:
        case ast.Attribute(_, _, ast.Store() | ast.Del()):
            path = source.dotted(node)
            return "" if path == "os.environ" and id(node) in source.merged else _protected(path)
        case ast.Subscript(value, key, ast.Store() | ast.Del()):
            owner = source.dotted(value)
            if owner in ("sys.modules", "builtins"):
                return f"{owner}[...]"
            return _protected(f"{owner}.{text(key) or '?'}") if owner.endswith(".__dict__") else ""
        case ast.Call(ast.Attribute(value, "__setattr__" | "__delattr__"), [first, *rest]):
            if text(first):
                return _protected(f"{source.dotted(value)}.{text(first)}")
            return _protected(f"{source.dotted(first)}.{text(rest[0]) or '?'}") if rest else ""
        case ast.Call(ast.Attribute(value, attr)) if attr in UPDATES and (owner := source.dotted(value)):
            return f"{owner}[...]" if owner == "sys.modules" else _protected(owner + ".?") * owner.endswith(".__dict__")
        case ast.Call(func, [first, *rest]):
            path = source.dotted(func).removeprefix("builtins.")
            second = text(rest[0]) if rest else ""
            if path in ("setattr", "delattr"):
                return _protected(f"{source.dotted(first)}.{second or '?'}")
            if path.endswith(("mock.patch", "mock.patch.dict")):
                target = text(first) or source.dotted(first)
                if target == "os.environ" and path.endswith(".dict"):  # patches its items only
                    return ""
                target += ".?" * target.endswith(".__dict__")
                return "sys.modules[...]" if target == "sys.modules" else _protected(target)
            if path.endswith(("mock.patch.object", "mock.patch.multiple")):
                return _protected(f"{text(first) or source.dotted(first)}.{second or '?'}")
    return ""


def _reason(source: Source, node: ast.AST) -> str:
    """Return why a node is banned, or ""."""
    if written := _writes(source, node):
        return f"writes to {written}"
    for path in imports(node):
        if JUDGE.match(path):
            return f"imports {path.partition('.')[0]}"
        if path in PEEKS:
            return f"uses {path}"
    if isinstance(node, ast.Attribute | ast.Call) and (path := source.dotted(node)) in PEEKS:
        return f"uses {path}"
    if isinstance(node, ast.Subscript | ast.Call) and JUDGE.match(path := source.dotted(node)):
        return f"reaches for {path}"
    if isinstance(node, ast.Attribute) and node.attr in FRAMES | NATIVE:
        return f"uses {node.attr}"
    if isinstance(node, ast.Call) and source.dotted(node.func) in ("os.kill", "os.killpg"):
        if any(source.dotted(part) == "os.getppid()" for argument in node.args for part in ast.walk(argument)):
            return "signals its parent"
    said = "" if id(node) in source.docstrings else text(node)
    if said in NATIVE or "#include" in said and (call := NATIVE_CALL.search(said)) and (said := call[1]):
        return f"names {said}"
    if found := MEMORY.search(said):
        return f"names {found[0]}"
    return "names LD_PRELOAD" if re.fullmatch(r"LD_PRELOAD(=.*)?", said) else ""


def bans(path: Path | None) -> list[str]:
    """Return the banned operations of a file, such as `line 12: writes to torch.cuda.Event.record`.

    A file that is not Python has none: it fails when it is imported.
    """
    source = parsed(path)
    if source is None:
        return []
    found: dict[str, int] = {}
    try:
        for node in source.nodes():
            if reason := _reason(source, node):
                line = getattr(node, "lineno", 0)
                found.setdefault(f"line {line}: {reason}", line)
    except RecursionError:
        found[UNREADABLE] = 0
    return sorted(found, key=found.__getitem__)


# -- kernels that ran ------------------------------------------------------------------------------------------------

# class: patterns of its kernels' names as CUPTI gives them; the first match counts
LIBRARIES = {name: re.compile(pattern, re.IGNORECASE) for name, pattern in {
    "memory": r"^\[?(CUDA )?mem(cpy|set)\b",
    "inductor": r"^triton_(poi|red|per|tem|mm|bmm|for|spl|mix|nop|unk|flex|convolution|\d|$)",
    "aten": r"\bat(_cuda_detail)?::|pytorch_flash|PyTorchMemEff|fmha_cutlass|\bcub::|cunn_|softmax_warp"
    r"|vectorized_(elementwise|layer_norm|templated)|elementwise_kernel|\bCatArrayBatchedCopy|conv_depthwise\dd_",
    "cudnn": r"cudnn|(^|_)(fprop|dgrad|wgrad)(_|\b)|(implicit|explicit)_convolve|convolve_common|winograd|nchwToNhwc"
    r"|nhwcToNchw|conv2d_grouped_direct|\bfft2d_",
    "cutlass": r"cutlass",
    "cublas": r"cublas|nvjet_|(sm\d+|ampere|volta|turing|maxwell|hopper|blackwell)_\w*gemm|\bgemv"
    r"|\bgemm(SN|k1|2x2|_kernel2x2)|splitKreduce|\bdot_kernel<|\breduce_1Block_kernel",
}.items()}  # fmt: skip
FOREIGN = re.compile(r"\b(at|cub|thrust|cutlass|cudnn|cublasLt|pytorch_flash)::")
PLAIN = re.compile(r"[A-Za-z_]\w*")  # Triton's kernels have no C++ signature
GLOBAL = re.compile(r"__global__(?:\s+(?:__launch_bounds__\s*\([^()]*\)|extern|static|inline|void))+\s+(\w+)\s*\(")
COMMENT = re.compile(r"//[^\n]*|/\*[\s\S]*?(?:\*/|\Z)")  # `\Z`: an unclosed comment is scanned only once
KEPT, NAME_CHARS, MOST_KERNELS = 12, 400, 200


class Kernel(TypedDict):
    """All launches of one kernel in a call, as a worker sends them. us: GPU time, microseconds."""

    name: str
    us: float
    count: int


def own_names(path: Path | None) -> set[str]:
    """Return the names of a file's own kernels: functions under triton.jit, `__global__` ones in its strings."""
    source = parsed(path)
    try:
        return _own_names(source) if source is not None else set()
    except RecursionError:
        return set()


def _own_names(source: Source) -> set[str]:
    found: set[str] = set()
    for node in source.nodes():
        match node:
            case ast.FunctionDef(name) if source.jits(node):
                found.add(name)
            case ast.Call(func, [ast.Name(name)]) if is_jit(source.dotted(func)):
                found.add(name)
        if "__global__" in (code := text(node)):
            found |= set(GLOBAL.findall(COMMENT.sub("", code)))
    return found


def _base(kernel: str) -> str:
    """Return the bare name in `void ns::name<int>(float*)`."""
    bare = re.sub(r"\(anonymous namespace\)::|<unnamed>::", "", kernel).removeprefix("void ")
    return re.split(r"[<(]", bare, maxsplit=1)[0].rpartition("::")[2].strip()


def classify(kernel: str, own: set[str]) -> str:
    """Return a kernel's origin: own, inductor, cublas, cudnn, aten, cutlass, memory, other_triton or other."""
    mangled = kernel.startswith("_Z") and any(f"{len(name)}{name}" in kernel for name in own)
    if mangled or _base(kernel) in own and not FOREIGN.search(kernel.split("(", 1)[0]):
        return "own"
    for name, pattern in LIBRARIES.items():
        if pattern.search(kernel):
            return name
    return "other_triton" if PLAIN.fullmatch(kernel) else "other"


def share(kernels: list[Any], path: Path | None) -> KernelShares:
    """Return shares of GPU time by class, the longest kernels, and contradictions between source and kernels.

    kernels: as `profile` returns them, but from an untrusted process, so malformed entries are left out.
    """
    from repro.records.verdict import KernelShares, KernelTime  # the worker imports this module without them

    own = own_names(path)
    told: list[KernelTime] = []
    spent: dict[str, float] = {}
    for kernel in kernels[:MOST_KERNELS]:
        match kernel:
            case {"name": str(name), "us": float(us) | int(us)} if 0 <= us < 1e12 and type(us) is not bool:
                kind, count = classify(name[:NAME_CHARS], own), kernel.get("count")
                count = count if type(count) is int else None
                told.append(KernelTime(name=name[:NAME_CHARS], klass=kind, us=us, count=count))
                spent[kind] = spent.get(kind, 0.0) + us
    total, order = sum(spent.values()), sorted(spent, key=spent.__getitem__, reverse=True)
    doubtful = [f"{name} has a name like a kernel of {found}" for name in sorted(own)
                if (found := classify(name, set())) not in ("other", "other_triton")]  # fmt: skip
    if not told:
        doubtful.append("the profiler saw no kernel")
    elif own and "own" not in spent:
        doubtful.append("the source defines kernels, but none of them ran")
    return KernelShares(
        own=round(spent.get("own", 0.0) / total, 4) if total else None,
        by_class={kind: round(spent[kind] / total, 4) for kind in order if total},
        kernels=sorted(told, key=lambda kernel: -kernel.us)[:KEPT],
        inconsistent=doubtful,
    )


def profile(call: Callable[[], object]) -> tuple[list[Kernel], str]:
    """Return the device activities of one call by time, or none and the reason.

    It runs in the worker, where a solution can falsify it. Call it after timing: CUPTI slows launches down. It uses the
    base of torch.profiler directly, which saves seconds of imports.
    """
    import torch

    if not torch.cuda.is_available():
        return [], "no GPU"
    try:
        kineto = torch.autograd.profiler.profile(use_cpu=False, use_device="cuda", use_kineto=True, acc_events=True)
        with kineto as profiler:
            call()
            torch.cuda.synchronize()
        found: dict[str, Kernel] = {}
        for event in profiler.function_events or ():
            if event.device_type.name == "CUDA" and not getattr(event, "is_user_annotation", False):
                kernel = found.setdefault(event.name, {"name": event.name, "us": 0.0, "count": 0})
                kernel["us"] += event.time_range.elapsed_us()
                kernel["count"] += 1
    except Exception as error:
        return [], f"the profiler failed: {type(error).__name__}: {error}"[:300]
    kernels = sorted(found.values(), key=lambda kernel: -kernel["us"])
    return kernels, "" if kernels else "the profiler saw no kernel"
