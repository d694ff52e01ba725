"""Fixed checks of code for well-known mistakes in GPU kernels. The code is parsed and never run."""

from __future__ import annotations

import ast
import textwrap

from repro.knowledge import checks_cuda, checks_triton
from repro.knowledge.finding import Finding

MAX_CODE_CHARS, MAX_FINDINGS = 100_000, 20


def none(code: str) -> list[Finding]:
    """Return no findings: the checks of a library without checks."""
    return []


def findings(code: str) -> list[Finding]:
    """Return the findings in Python with Triton kernels and in CUDA C++, also in strings; faults first."""
    code = textwrap.dedent(fenced(code))[:MAX_CODE_CHARS]
    found: list[Finding] = []
    try:
        tree = ast.parse(code)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        if not checks_cuda.looks_like(code):
            line = error.lineno or 1 if isinstance(error, SyntaxError) else 1
            found.append(Finding("fault", line, f"This is not Python: {error}", "error-triton-compilation"))
    else:
        try:
            found += checks_triton.run(tree)
        except RecursionError:
            found.append(Finding("doubt", 1, "An expression is nested too deeply to be checked.", "debugging-triton"))
    found += checks_cuda.run(code)
    found.sort(key=lambda finding: (finding.severity != "fault", finding.line_number))
    return list(dict.fromkeys(found))[:MAX_FINDINGS]


def fenced(code: str) -> str:
    """Return the code inside a markdown fence, or all of it without a fence. Line numbers stay."""
    lines = code.splitlines()
    fences = [n for n, line in enumerate(lines) if line.lstrip().startswith("```")]
    if len(fences) < 2:
        return code
    return "\n".join(line if fences[0] < n < fences[1] else "" for n, line in enumerate(lines))
