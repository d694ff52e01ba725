"""Where the kernels of a call come from: the solution's own source, or a library.

Shares inform; they never decide.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict

from repro.judge.source.names import Source, is_jit, parsed, text

if TYPE_CHECKING:
    from repro.records.verdict import KernelShares

# class: patterns of its kernels' names as CUPTI gives them; the first match counts
_LIBRARIES = {name: re.compile(pattern, re.IGNORECASE) for name, pattern in {
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
_FOREIGN = re.compile(r"\b(at|cub|thrust|cutlass|cudnn|cublasLt|pytorch_flash)::")
_PLAIN = re.compile(r"[A-Za-z_]\w*")  # Triton's kernels have no C++ signature
_GLOBAL = re.compile(r"__global__(?:\s+(?:__launch_bounds__\s*\([^()]*\)|extern|static|inline|void))+\s+(\w+)\s*\(")
_COMMENT = re.compile(r"//[^\n]*|/\*[\s\S]*?(?:\*/|\Z)")  # `\Z`: an unclosed comment is scanned only once
_KEPT, _NAME_CHARS, MOST_KERNELS = 12, 400, 200


class _Kernel(TypedDict):
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
    names: set[str] = set()
    for node in source.nodes():
        match node:
            case ast.FunctionDef(name) if source.jits(node):
                names.add(name)
            case ast.Call(func, [ast.Name(name)]) if is_jit(source.dotted(func)):
                names.add(name)
        if "__global__" in (code := text(node)):
            names |= set(_GLOBAL.findall(_COMMENT.sub("", code)))
    return names


def _base(kernel: str) -> str:
    """Return the bare name in `void ns::name<int>(float*)`."""
    bare = re.sub(r"\(anonymous namespace\)::|<unnamed>::", "", kernel).removeprefix("void ")
    return re.split(r"[<(]", bare, maxsplit=1)[0].rpartition("::")[2].strip()


def classify(kernel: str, own: set[str]) -> str:
    """Return a kernel's origin: own, inductor, cublas, cudnn, aten, cutlass, memory, other_triton or other."""
    mangled = kernel.startswith("_Z") and any(f"{len(name)}{name}" in kernel for name in own)
    if mangled or _base(kernel) in own and not _FOREIGN.search(kernel.split("(", 1)[0]):
        return "own"
    for name, pattern in _LIBRARIES.items():
        if pattern.search(kernel):
            return name
    return "other_triton" if _PLAIN.fullmatch(kernel) else "other"


def share(kernels: list[Any], path: Path | None) -> KernelShares:
    """Return shares of GPU time by class, and the longest kernels.

    kernels: as `profile` returns them, but from an untrusted process, so malformed entries are left out.
    """
    from repro.records.verdict import KernelShares, KernelTime  # the worker imports this module without them

    own = own_names(path)
    times: list[KernelTime] = []
    spent: dict[str, float] = {}
    for kernel in kernels[:MOST_KERNELS]:
        match kernel:
            case {"name": str(name), "us": float(us) | int(us)} if 0 <= us < 1e12 and type(us) is not bool:
                kind, count = classify(name[:_NAME_CHARS], own), kernel.get("count")
                count = count if type(count) is int else None
                times.append(KernelTime(name=name[:_NAME_CHARS], klass=kind, us=us, count=count))
                spent[kind] = spent.get(kind, 0.0) + us
    total, order = sum(spent.values()), sorted(spent, key=spent.__getitem__, reverse=True)
    return KernelShares(
        own=round(spent.get("own", 0.0) / total, 4) if total else None,
        by_class={kind: round(spent[kind] / total, 4) for kind in order if total},
        kernels=sorted(times, key=lambda kernel: -kernel.us)[:_KEPT],
    )


def profile(call: Callable[[], object]) -> tuple[list[_Kernel], str]:
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
        by_name: dict[str, _Kernel] = {}
        for event in profiler.function_events or ():
            if event.device_type.name == "CUDA" and not getattr(event, "is_user_annotation", False):
                kernel = by_name.setdefault(event.name, {"name": event.name, "us": 0.0, "count": 0})
                kernel["us"] += event.time_range.elapsed_us()
                kernel["count"] += 1
    except Exception as error:
        return [], f"the profiler failed: {type(error).__name__}: {error}"[:300]
    kernels = sorted(by_name.values(), key=lambda kernel: -kernel["us"])
    return kernels, "" if kernels else "the profiler saw no kernel"
