"""How far an output is from the fp64 reference, accumulated over chunks of rows.

rel_l2   ||y - r|| / ||r|| over everything
max      max |y - r| / rms(r): one destroyed element cannot hide in the average
row      max over rows of ||y_i - r_i||, over the root mean square row norm of r: one destroyed row cannot hide
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import torch

GUARDS = ("rel_l2", "max", "row")
LEGACY = {"allclose_1e-2": 1e-2, "allclose_1e-4": 1e-4}
# fp64 elements that are compared at once: 32 MiB a temporary.
SLICE_ELEMENTS = 1 << 22


@dataclass
class Distance:
    """Running sums over chunks. Rows are the entries of dimension 0."""

    error_sq: float = 0.0
    reference_sq: float = 0.0
    max_error: float = 0.0
    max_row_sq: float = 0.0
    rows: int = 0
    elements: int = 0
    finite: bool = True
    legacy: dict[str, bool] = field(default_factory=lambda: dict.fromkeys(LEGACY, True))

    def add(self, output: torch.Tensor, reference: torch.Tensor) -> None:
        """output: any float dtype; reference: fp64; both (rows, ...), on one device. Works in slices of a row."""
        rows = max(1, reference.shape[0]) if reference.dim() else 1
        ours, expected = output.reshape(rows, -1), reference.reshape(rows, -1)
        self.rows += rows
        self.elements += expected.numel()
        row_sq = torch.zeros(rows, dtype=torch.float64, device=reference.device)
        step = max(1, SLICE_ELEMENTS // rows)
        for start in range(0, expected.shape[1], step):
            row_sq += self._slice(ours[:, start : start + step], expected[:, start : start + step])
        self.error_sq += float(row_sq.sum())
        self.max_row_sq = max(self.max_row_sq, float(row_sq.max()))

    def _slice(self, ours: torch.Tensor, expected: torch.Tensor) -> torch.Tensor:
        """Adds one slice (rows, columns) and returns its squared error a row."""
        magnitude, known = (ours.to(torch.float64) - expected).abs_(), expected
        if not bool(torch.isfinite(magnitude).all()):
            same = (ours == expected) | (ours.isnan() & expected.isnan())
            magnitude = magnitude.masked_fill_(same, 0.0)
            self.finite = self.finite and bool(torch.isfinite(magnitude).all())
            known = expected.masked_fill(~torch.isfinite(expected), 0.0)
        self.reference_sq += float(known.square().sum())
        self.max_error = max(self.max_error, float(magnitude.max()))
        for name, tolerance in LEGACY.items():
            if self.legacy[name]:
                allowed = expected.abs().mul_(tolerance).add_(tolerance)
                self.legacy[name] = bool((magnitude <= allowed).all())
        return magnitude.square_().sum(1)

    def values(self) -> dict[str, float]:
        """The three guards; infinity where the output is not finite while the reference is."""
        if not self.finite or self.elements == 0:
            return dict.fromkeys(GUARDS, math.inf)
        norm = math.sqrt(self.reference_sq)
        if norm == 0.0:
            return {name: 0.0 if self.error_sq == 0.0 else math.inf for name in GUARDS}
        return {
            "rel_l2": math.sqrt(self.error_sq) / norm,
            "max": self.max_error / (norm / math.sqrt(self.elements)),
            "row": math.sqrt(self.max_row_sq) / (norm / math.sqrt(self.rows)),
        }


def worst(distances: list[Distance]) -> dict[str, float]:
    """Each guard's largest value over several outputs."""
    return {name: max(d.values()[name] for d in distances) for name in GUARDS}


def score(values: dict[str, float], limits: dict[str, float]) -> float:
    """The worst guard as a fraction of its limit: at most 1 passes."""
    return max((values[name] / limit for name, limit in limits.items() if name in values), default=math.inf)
