"""Results computed from a trace: running best, parents, durations, baselines in prompts, the dtype of a profile."""

from __future__ import annotations

import re
from typing import Any

from repro.artifacts.layout import KERNEL, KERNELS, Artifact, Round, code, program, single
from repro.artifacts.readme import Published
from repro.problems import catalogue

READ, WRITTEN = "dram__bytes_read.sum", "dram__bytes_write.sum"
RATE, RATE_PERCENT = "dram__bytes.sum.per_second", "dram__throughput.avg.pct_of_peak_sustained_elapsed"
BFLOAT16_BYTES, FLOAT32_BYTES = 2, 4
SIZES = {"bfloat16": BFLOAT16_BYTES, "float16": 2, "float32": FLOAT32_BYTES}
BANDWIDTH = (RATE, RATE_PERCENT)
# Lines of a prompt: the time of eager PyTorch, and an attempt's time before (and after) its change.
EAGER = re.compile(r"eager baseline:\s*(\d+(?:\.\d+)?)\s*ms", re.IGNORECASE)
ATTEMPT = re.compile(r"^\W*Performance\W+(\d+(?:\.\d+)?)\s*ms\s*(?:→|->)", re.MULTILINE)
# Traffic tells a dtype where one side of it is at least this, and within these shares of what is due: a cache may keep
# the last of what is written. Source: an L2 holds 50 to 60 MB; published profiles are within 1 % of what is due.
LARGE_BYTES, SHORT, OVER = 128e6, 0.7, 1.15


def running_best(times: dict[int, float]) -> dict[int, float]:
    """Return the smallest time so far, ms, after every round that has one."""
    found: dict[int, float] = {}
    for number in sorted(times):
        found[number] = min([times[number], *found.values()])
    return found


def times(artifact: Artifact) -> dict[int, float]:
    """Return round -> time, ms, of the rounds with a finite one."""
    return {r.number: r.timing.time_ms for r in artifact.rounds if r.timing.time_ms is not None}


def eager_ms(artifact: Artifact) -> float | None:
    """Return the time of eager PyTorch that the prompts give, ms."""
    return next(iter(_prompted(artifact, EAGER, {r.number for r in artifact.rounds})), None)


def input_ms(artifact: Artifact) -> float | None:
    """Return the input kernel's benchmarked time, ms: the shortest that round 2's prompt gives for round 1's attempts.

    None if round 1 did not start from the input kernel.
    """
    first = next((r for r in artifact.rounds if r.number == 1), None)
    if first is None or parent(artifact, first)[0] != KERNELS["input_kernel"]:
        return None
    return min(_prompted(artifact, ATTEMPT, {2}), default=None)


def _prompted(artifact: Artifact, pattern: re.Pattern[str], rounds: set[int]) -> list[float]:
    texts = (r.text("opt_prompt.txt") or "" for r in artifact.rounds if r.number in rounds)
    return [float(value) for text in texts for value in pattern.findall(text)]


def best_round(artifact: Artifact) -> int | None:
    """Return the fastest round; of equal ones the first."""
    found = times(artifact)
    return min(found, key=lambda number: (found[number], number)) if found else None


def duration_ms(found: Round, which: str) -> float | None:
    """Return how long the profiled kernels took, ms: bytes over bytes a second, summed. Profilers lock the clock."""
    total = 0.0
    profile = found.profile(which)
    for kernel in profile.values():
        read, written, rate = (_number(kernel, name) for name in (READ, WRITTEN, RATE))
        if read is None or written is None or not rate:
            return None
        total += (read + written) / rate * 1e3
    return total if profile else None


def _number(kernel: dict[str, Any], name: str) -> float | None:
    return single(kernel.get(name))


def peak_bandwidth(artifact: Artifact) -> float | None:
    """Return the peak bytes a second of the profiled GPU's memory, from the kernel that came closest to it.

    None if no profile has both the rate and its share of the peak.
    """
    found = []
    for each in artifact.rounds:
        for which in ("input", "optimized"):
            for kernel in each.profile(which).values():
                rate, percent = _number(kernel, RATE), _number(kernel, RATE_PERCENT)
                if rate and percent:
                    found.append((percent, rate / percent * 100))
    return max(found)[1] if found else None


def work(artifact: Artifact) -> catalogue.Work | None:
    """Return the compulsory traffic of the problem at the folder's sizes, or None if unknown."""
    return catalogue.load(artifact.known).work if artifact.known else None


def floor_ms(artifact: Artifact) -> float | None:
    """Return the time of the compulsory traffic at the profiled GPU's peak bandwidth; None if either is unknown."""
    needed, rate = work(artifact), peak_bandwidth(artifact)
    if needed is None or rate is None:
        return None
    return (needed.read_elements + needed.written_elements) * BFLOAT16_BYTES / rate * 1e3


def profile_dtype(found: Round, which: str, needed: catalogue.Work) -> str | None:
    """The dtype that a profiled run's traffic is of, or None where it does not tell.

    Every element of the output is written once: that decides where outputs are large. Reads decide only where they are
    under what float32 would need, because a kernel may read twice; twice as many are `float32 or two reads`, and
    `float32` where the round's own time is too short for two reads.
    """
    written, read = found.total(which, WRITTEN), found.total(which, READ)
    if written is not None and needed.written_elements * BFLOAT16_BYTES >= LARGE_BYTES:
        for dtype, size in (("bfloat16", BFLOAT16_BYTES), ("float32", FLOAT32_BYTES)):
            if SHORT <= written / (needed.written_elements * size) <= OVER:
                return dtype
        return None
    if read is None or needed.read_elements * BFLOAT16_BYTES < LARGE_BYTES:
        return None
    share = read / (needed.read_elements * BFLOAT16_BYTES)
    if SHORT <= share <= OVER:
        return "bfloat16"
    if not SHORT <= share / 2 <= OVER:
        return None
    time_ms, rate, percent = found.timing.time_ms, found.total(which, RATE), found.total(which, RATE_PERCENT)
    if which == "optimized" and time_ms and rate and percent and len(found.profile(which)) == 1:
        # The timed run cannot have read as much: the memory would have to be faster than it is.
        return "float32" if read / time_ms * 1e3 > rate / percent * 100 else "float32 or two reads"
    return "float32 or two reads"


def shipped_round(artifact: Artifact) -> tuple[int | None, bool]:
    """Return the round with the shipped kernel (of several the best, else the first), and whether it is identical."""
    shipped = artifact.text(KERNELS["optimized"])
    meaning = program(shipped)
    same: dict[int, bool] = {}
    for each in artifact.rounds:
        text = each.text(KERNEL)
        if text is not None and shipped is not None:
            if text.rstrip("\n") == shipped.rstrip("\n"):
                same[each.number] = True
            elif meaning is not None and program(text) == meaning:
                same[each.number] = False
    if not same:
        return None, False
    best = best_round(artifact)
    chosen = best if best in same else min(same)
    assert chosen is not None
    return chosen, same[chosen]


def parent(artifact: Artifact, found: Round) -> tuple[str | None, str]:
    """Return where the kernel that a round started from was published: `input_kernel.py`, `round N`, or why not."""
    prompt = found.text("opt_prompt.txt")
    if prompt is None:
        return None, "opt_prompt.txt is missing"
    blocks = {p for block in code(prompt) if (p := program(block)) is not None}
    if not blocks:
        return None, "opt_prompt.txt holds no kernel"
    earlier = [(f"round {r.number}", r.text(KERNEL)) for r in artifact.rounds if r.number < found.number]
    for name, text in [*reversed(earlier), (KERNELS["input_kernel"], artifact.text(KERNELS["input_kernel"]))]:
        if program(text) in blocks:
            return name, ""
    return None, "the kernel in opt_prompt.txt is no earlier round's and not the input kernel"


def repaired(found: Round) -> bool | None:
    """Return whether the round's kernel differs from the program in its reply; None if either is missing."""
    kernel, reply = program(found.text(KERNEL)), found.text("opt_reply.txt")
    blocks = [p for block in code(reply or "") if (p := program(block)) is not None]
    return kernel not in blocks if kernel is not None and blocks else None


def summary(artifact: Artifact, published: Published) -> dict[str, Any]:
    """Return the facts for a table or a figure of one artifact, times in ms; None for unknown values."""
    own = times(artifact)
    best, needed = running_best(own), work(artifact)
    rounds = [
        {
            "round": r.number,
            "time_ms": own.get(r.number),
            "running_best_ms": best.get(r.number),
            "published_best_ms": published.rounds.get(r.number),
            "profile_ms": duration_ms(r, "optimized"),
            "profile_dtype": profile_dtype(r, "optimized", needed) if needed else None,
            "timing_dtype": r.dtype or None,
        }
        for r in artifact.rounds
    ]
    bandwidth = peak_bandwidth(artifact)
    return {
        "problem": artifact.name,
        "number": artifact.number,
        "rounds": rounds,
        "best_round": best_round(artifact),
        "shipped_round": shipped_round(artifact)[0],
        "bandwidth_gb_s": bandwidth / 1e9 if bandwidth else None,
        "floor_ms": floor_ms(artifact),
    }
