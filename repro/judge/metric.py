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
    legacy: dict[str, bool] = field(default_factory=lambda: {"allclose_1e-2": True, "allclose_1e-4": True})

    def add(self, output: torch.Tensor, reference: torch.Tensor) -> None:
        """output: any float dtype; reference: fp64; both (rows, ...), on one device."""
        rows = max(1, reference.shape[0]) if reference.dim() else 1
        difference = (output.to(torch.float64) - reference).reshape(rows, -1)
        magnitude = difference.abs_()
        self.rows += rows
        self.elements += reference.numel()
        reference_rows = reference.reshape(rows, -1)
        self.reference_sq += float(torch.linalg.vector_norm(reference_rows).item()) ** 2
        if not bool(torch.isfinite(magnitude).all()):
            same = (output.reshape(rows, -1).to(torch.float64) == reference_rows) | (
                output.reshape(rows, -1).isnan() & reference_rows.isnan()
            )
            magnitude = magnitude.masked_fill(same, 0.0)
            if not bool(torch.isfinite(magnitude).all()):
                self.finite = False
        row_norms = torch.linalg.vector_norm(magnitude, dim=1)
        self.error_sq += float(torch.linalg.vector_norm(row_norms).item()) ** 2
        self.max_row_sq = max(self.max_row_sq, float(row_norms.max().item()) ** 2)
        self.max_error = max(self.max_error, float(magnitude.max().item()))
        for name, tolerance in (("allclose_1e-2", 1e-2), ("allclose_1e-4", 1e-4)):
            if self.legacy[name]:
                excess = magnitude - reference_rows.abs() * tolerance
                self.legacy[name] = bool((excess <= tolerance).all())

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
