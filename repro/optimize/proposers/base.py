"""The interface of a proposer."""

from __future__ import annotations

from typing import Protocol

from repro.optimize.state import State
from repro.records.search import Proposed


class Proposer(Protocol):
    """Makes candidates of the programs in the beam.

    It keeps no state that decides: what it proposes follows from the state of the run, so that a resumed run goes on.
    waits: whether candidates may still appear by themselves after it proposed none.
    """

    name: str
    waits: bool

    def propose(self, state: State, count: int) -> Proposed:
        """Return up to `count` candidates of this round; none if it has none left in this round."""
