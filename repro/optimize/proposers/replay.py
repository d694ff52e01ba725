"""The proposers of a recorded run: the journal holds what they proposed, so they are never asked."""

from __future__ import annotations

from repro.optimize.journal import ReplayEnded
from repro.optimize.state import State
from repro.records.search import Proposed


class Recorded:
    """Stands for a proposer of the recorded run, by its name."""

    def __init__(self, name: str) -> None:
        self.name, self.waits = name, name == "inbox"

    def propose(self, state: State, count: int) -> Proposed:
        """See Proposer.propose. Raises ReplayEnded: the journal has no further answer."""
        raise ReplayEnded("the journal ends here", "the recorded run was interrupted", "Use --resume on it.")
