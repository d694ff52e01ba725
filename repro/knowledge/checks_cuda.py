"""Checks of CUDA C++ as text, without a parser: each looks at one kernel's body between its braces."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator

from repro.knowledge.finding import Finding

# A snippet does not have more or longer kernels.
MAX_KERNELS, MAX_BODY_CHARS = 50, 20_000
_KERNEL = re.compile(r"__global__[^;{]{0,200}?\b(\w+)\s*\(([^{;]{0,1000}?)\)\s*\{")
_COMMENT = re.compile(r"//[^\n]*|/\*.*?(?:\*/|\Z)", re.S)
_BRANCH = re.compile(
    r"\bif\s*\([^;{}]{0,200}\b(?:threadIdx|tid|lane|idx)\b[^;{}]{0,200}\)\s*\{[^{}]{0,2000}?__syncthreads"
)
_BARRIER = re.compile(r"__sync(?:threads|warp)|\bsync\s*\(|\bbar(?:rier)?\b|\barrive_and_wait\b")
_OLD_SHUFFLE = re.compile(r"\b__(?:shfl(?:_up|_down|_xor)?|ballot|any|all)\s*\(")
_LAUNCH = re.compile(r"<<<([^>;]{1,400})>>>")
_WIDE = re.compile(r"reinterpret_cast<\s*(?:const\s+)?(?:float4|float2|int4|uint4|double2)\s*(?:const\s*)?[*&]")
_GUARD = re.compile(r"\bif\s*\(|\bfor\s*\(|\?|\bmin\s*\(|\bwhile\s*\(")
_LOW_SUM = re.compile(r"\b(?:__)?(?:nv_bfloat16|half|bfloat16)\s+(\w*(?:sum|acc)\w*)\s*=", re.I)


def looks_like(code: str) -> bool:
    """Return whether a text contains CUDA C++."""
    return any(mark in code for mark in ("__global__", "__device__", "<<<", "threadIdx", "#include"))


def run(code: str) -> Iterator[Finding]:
    """Yield every finding in a text."""
    if not looks_like(code):
        return
    plain = _COMMENT.sub(lambda found: re.sub(r"[^\n]", " ", found.group()), code)
    for kernel in itertools.islice(_KERNEL.finditer(plain), MAX_KERNELS):
        body = plain[kernel.end() : _end(plain, kernel.end())]
        line = plain.count("\n", 0, kernel.start()) + 1
        yield from _kernel(body, line, plain.count("\n", 0, kernel.end()) + 1)
    for match in _OLD_SHUFFLE.finditer(plain):
        what = "A warp intrinsic without _sync was removed with Volta. Use the _sync form with a mask of active lanes."
        yield Finding("fault", _line(plain, match), what, "races-and-synchronisation")
    for match in _LAUNCH.finditer(plain):
        if match.group(1).count(",") < 3:
            what = "The launch names no stream: it uses the default stream and not torch's current one."
            yield Finding("doubt", _line(plain, match), what, "inline-cuda-extension")


def _kernel(body: str, line: int, first: int) -> Iterator[Finding]:
    """Yield the findings in one kernel. line: where it starts; first: where its body starts."""
    if "__shared__" in body and not _BARRIER.search(body):
        what = "Shared memory is used without a barrier between writing and reading it."
        yield Finding("fault", line, what, "races-and-synchronisation")
    for match in _BRANCH.finditer(body):
        what = "__syncthreads is in a branch that depends on the thread: threads that skip it hang the block."
        yield Finding("fault", first + body.count("\n", 0, match.end()), what, "races-and-synchronisation")
    if ("threadIdx" in body or "blockIdx" in body) and "[" in body and not _GUARD.search(body):
        what = "Addresses come from the thread's index, which is never compared with the extent."
        yield Finding("doubt", line, what, "error-illegal-memory-access")
    for match in _WIDE.finditer(body):
        what = "A wide access by reinterpret_cast faults unless every address is a multiple of its size."
        yield Finding("doubt", first + body.count("\n", 0, match.start()), what, "vector-loads-and-alignment")
    for match in _LOW_SUM.finditer(body):
        what = f"`{match.group(1)}` adds up in 16 bits: keep sums in float and convert at the store."
        yield Finding("fault", first + body.count("\n", 0, match.start()), what, "bf16-accumulation")


def _end(text: str, start: int) -> int:
    """Return where the brace opened before `start` closes, or where a body may end at the latest."""
    depth, stop = 1, min(len(text), start + MAX_BODY_CHARS)
    for match in re.compile(r"[{}]").finditer(text, start, stop):
        depth += 1 if match.group() == "{" else -1
        if depth == 0:
            return match.start()
    return stop


def _line(text: str, match: re.Match[str]) -> int:
    return text.count("\n", 0, match.start()) + 1
