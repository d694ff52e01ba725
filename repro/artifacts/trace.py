"""Results computed from a trace: the running best and the shipped round."""

from __future__ import annotations

from repro.artifacts.layout import KERNEL, KERNELS, Artifact, program


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


def shipped_round(artifact: Artifact) -> tuple[int | None, bool]:
    """Return the round with the shipped kernel (of several the best, else the first), and whether it is identical."""
    shipped = artifact.text(KERNELS["optimized"])
    meaning = program(shipped)
    same = {}
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
