"""A workload of a problem: the sizes at which a solution is judged, and how much they count."""

from __future__ import annotations

from repro.records.base import Positive, Record
from repro.records.formats import Line
from repro.system.jsonio import Json


class Workload(Record):
    """One shape of a problem."""

    constants: Json = {}
    """Constant of the problem file -> its value; the others are as in the file."""
    weight: Positive = 1.0
    """Its weight in means of speedups."""
    held_out: bool = False
    """Whether it is a derived neighbour, which is a label and not timed."""
    line: Line | None = None
    """Of a definition's workload: its line."""

    @property
    def name(self) -> str:
        """Return its constants in words, as `M=64 N=4096`."""
        told = " ".join(f"{name}={value}".replace(" ", "") for name, value in self.constants.items())
        told += f" #{self.line.uuid[:8]}" if self.line else ""
        return (told.strip() or "own sizes") + " (held out)" * self.held_out
