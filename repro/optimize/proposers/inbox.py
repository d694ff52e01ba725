"""Candidates from a folder, as they appear: of a person, or of an agent outside.

A file `NAME.py` is a candidate, made of the best program. It is read once it is older than a moment, so that it is
whole; a file that is written again with another text is another candidate.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

from repro.errors import Unreadable
from repro.optimize.state import State
from repro.records.search import Proposal, Proposed
from repro.studies.evaluation import entry_of
from repro.system import foreign
from repro.system.digest import sha256

SETTLED_S = 0.5
LARGEST_BYTES = 1 << 20


@dataclass
class Inbox:
    """One folder."""

    name, waits = "inbox", True
    folder: Path

    def propose(self, state: State, count: int) -> Proposed:
        """See Proposer.propose."""
        found: list[Proposal] = []
        for file in sorted(self.folder.glob("*.py")):
            try:
                if time.time() - file.stat().st_mtime < SETTLED_S:
                    continue
                raw = foreign.read(file, LARGEST_BYTES)
            except (OSError, Unreadable):  # it was taken away, or is no candidate
                continue
            text = raw.decode(errors="replace")
            if state.known(sha256(text), "") or any(text == p.source for p in found):
                continue
            entry = entry_of(raw, state.winner.entry)
            name = file.name.encode(errors="surrogateescape").decode(errors="replace")
            found.append(Proposal(text, entry, state.best, name[:-3], why=f"{name} in the inbox"))
        return Proposed(proposals=found[:count])
