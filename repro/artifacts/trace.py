"""Results computed from a trace: running best, parents, the shipped round, the floor, the dtype of a profile."""

from __future__ import annotations

from repro.artifacts.layout import KERNEL, KERNELS, PROFILES, Artifact, Round, code, program, single
from repro.problems import catalogue
from repro.records.base import Drawn, Number, Record

READ, WRITTEN = "dram__bytes_read.sum", "dram__bytes_write.sum"
RATE, _RATE_PERCENT = "dram__bytes.sum.per_second", "dram__throughput.avg.pct_of_peak_sustained_elapsed"
_BFLOAT16_BYTES, _FLOAT32_BYTES = 2, 4
# Traffic tells a dtype where one side of it is at least this, and within these shares of what is due: a cache may keep
# the last of what is written. Source: an L2 holds 50 to 60 MB; published profiles are within 1 % of what is due.
_LARGE_BYTES, _SHORT, _OVER = 128e6, 0.7, 1.15


class _RoundFacts(Record):
    """A round, times in ms; None for unknown values."""

    round: int
    time_ms: Number | None
    running_best_ms: Number | None
    profile_dtype: str | None = None
    timing_dtype: str | None = None


class Facts(Drawn):
    """The facts of one artifact's trace, times in ms; None for unknown values."""

    problem: str
    number: int | None
    rounds: list[_RoundFacts]
    best_round: int | None
    shipped_round: int | None
    bandwidth_gb_s: Number | None
    floor_ms: Number | None


def running_best(times: dict[int, float]) -> dict[int, float]:
    """Return the smallest time so far, ms, after every round that has one."""
    best: dict[int, float] = {}
    for number in sorted(times):
        best[number] = min([times[number], *best.values()])
    return best


def times(artifact: Artifact) -> dict[int, float]:
    """Return round -> time, ms, of the rounds with a finite one."""
    return {r.number: r.timing.time_ms for r in artifact.rounds if r.timing.time_ms is not None}


def best_round(artifact: Artifact) -> int | None:
    """Return the fastest round; of equal ones the first."""
    own = times(artifact)
    return min(own, key=lambda number: (own[number], number)) if own else None


def _peak_bandwidth(artifact: Artifact) -> float | None:
    """Return the peak bytes a second of the profiled GPU's memory, from the kernel that came closest to it.

    None if no profile has both the rate and its share of the peak.
    """
    peaks = []
    for kernel in (k for r in artifact.rounds for which in PROFILES for k in r.profile(which).values()):
        rate, percent = single(kernel.get(RATE)), single(kernel.get(_RATE_PERCENT))
        if rate and percent:
            peaks.append((percent, rate / percent * 100))
    return max(peaks)[1] if peaks else None


def work(artifact: Artifact) -> catalogue.Work | None:
    """Return the compulsory traffic of the problem at the folder's sizes, or None if unknown."""
    return catalogue.load(artifact.known).work if artifact.known else None


def floor_ms(artifact: Artifact) -> float | None:
    """Return the time of the compulsory traffic at the profiled GPU's peak bandwidth; None if either is unknown."""
    needed, rate = work(artifact), _peak_bandwidth(artifact)
    if needed is None or rate is None:
        return None
    return (needed.read_elements + needed.written_elements) * _BFLOAT16_BYTES / rate * 1e3


def profile_dtype(of: Round, which: str, needed: catalogue.Work) -> str | None:
    """The dtype that a profiled run's traffic is of, or None where it does not tell.

    Every element of the output is written once: that decides where outputs are large. Reads decide only where they are
    under what float32 would need, because a kernel may read twice; twice as many are `float32 or two reads`, and
    `float32` where the round's own time is too short for two reads.
    """
    written, read = of.total(which, WRITTEN), of.total(which, READ)
    if written is not None and needed.written_elements * _BFLOAT16_BYTES >= _LARGE_BYTES:
        for dtype, size in (("bfloat16", _BFLOAT16_BYTES), ("float32", _FLOAT32_BYTES)):
            if _SHORT <= written / (needed.written_elements * size) <= _OVER:
                return dtype
        return None
    if read is None or needed.read_elements * _BFLOAT16_BYTES < _LARGE_BYTES:
        return None
    share = read / (needed.read_elements * _BFLOAT16_BYTES)
    if _SHORT <= share <= _OVER:
        return "bfloat16"
    if not _SHORT <= share / 2 <= _OVER:
        return None
    time_ms, rate, percent = of.timing.time_ms, of.total(which, RATE), of.total(which, _RATE_PERCENT)
    if which == "optimized" and time_ms and rate and percent and len(of.profile(which)) == 1:
        # The timed run cannot have read as much: the memory would have to be faster than it is.
        return "float32" if read / time_ms * 1e3 > rate / percent * 100 else "float32 or two reads"
    return "float32 or two reads"


def shipped_round(artifact: Artifact) -> tuple[int | None, bool]:
    """Return the round with the shipped kernel (of several the best, else the first), and whether it is identical."""
    shipped = artifact.text(KERNELS["optimized"])
    meaning = program(shipped)
    same: dict[int, bool] = {}
    for r in artifact.rounds:
        text = r.text(KERNEL)
        if text is not None and shipped is not None:
            if text.rstrip("\n") == shipped.rstrip("\n"):
                same[r.number] = True
            elif meaning is not None and program(text) == meaning:
                same[r.number] = False
    if not same:
        return None, False
    best = best_round(artifact)
    chosen = best if best in same else min(same)
    assert chosen is not None
    return chosen, same[chosen]


def parent(artifact: Artifact, of: Round) -> tuple[str | None, str]:
    """Return where the kernel that a round started from was published: `input_kernel.py`, `round N`, or why not."""
    prompt = of.text("opt_prompt.txt")
    if prompt is None:
        return None, "opt_prompt.txt is missing"
    blocks = {p for block in code(prompt) if (p := program(block)) is not None}
    if not blocks:
        return None, "opt_prompt.txt holds no kernel"
    earlier = [(f"round {r.number}", r.text(KERNEL)) for r in artifact.rounds if r.number < of.number]
    for name, text in [*reversed(earlier), (KERNELS["input_kernel"], artifact.text(KERNELS["input_kernel"]))]:
        if program(text) in blocks:
            return name, ""
    return None, "the kernel in opt_prompt.txt is no earlier round's and not the input kernel"


def repaired(of: Round) -> bool | None:
    """Return whether the round's kernel differs from the program in its reply; None if either is missing."""
    kernel, reply = program(of.text(KERNEL)), of.text("opt_reply.txt")
    blocks = [p for block in code(reply or "") if (p := program(block)) is not None]
    return kernel not in blocks if kernel is not None and blocks else None


def summary(artifact: Artifact) -> Facts:
    """Return the facts for a table or a figure of one artifact."""
    own, needed, bandwidth = times(artifact), work(artifact), _peak_bandwidth(artifact)
    best = running_best(own)
    rounds = [
        _RoundFacts(
            round=r.number,
            time_ms=own.get(r.number),
            running_best_ms=best.get(r.number),
            profile_dtype=profile_dtype(r, "optimized", needed) if needed else None,
            timing_dtype=r.dtype or None,
        )
        for r in artifact.rounds
    ]
    return Facts(
        problem=artifact.name,
        number=artifact.number,
        rounds=rounds,
        best_round=best_round(artifact),
        shipped_round=shipped_round(artifact)[0],
        bandwidth_gb_s=bandwidth / 1e9 if bandwidth else None,
        floor_ms=floor_ms(artifact),
    )
