"""What every engine does: run a list of cells, one outcome each, whatever happens to a cell."""

from __future__ import annotations

import abc
import json
from collections.abc import Callable, Iterator
from typing import Any

from repro import jsonio
from repro.cells import CELLS, Cell, Outcome
from repro.engines.agent import AgentCell, AgentOutcome
from repro.errors import EngineGone, PrerequisiteError

Progress = Callable[[str], None]
START_ALLOWANCE_S = 120.0


class Engine(abc.ABC):
    """Runs cells. Cells handed over together share a process and a container; a caller that wants them apart calls
    `run` for each."""

    name: str
    device: str

    @abc.abstractmethod
    def attempt(self, cells: list[Cell], timeout_s: float, progress: Progress) -> tuple[list[Outcome], str]:
        """Runs cells in one process or container. Returns the outcomes it left and how it ended ("" is well).

        Raises EngineGone where the engine itself no longer answers.
        """

    @abc.abstractmethod
    def describe(self) -> dict[str, Any]:
        """Name, version and isolation, for the bundle."""

    def run_agent(self, cell: AgentCell, secrets: dict[str, str], progress: Progress) -> AgentOutcome:
        """Runs one agent beside its gateway, with a GPU of its own where this engine has any. Safe to call from several
        threads. secrets: go to the gateway's standard input alone.

        Raises EngineError where the engine refuses, EngineGone where it no longer answers.
        """
        raise PrerequisiteError(f"no agent runs on the engine {self.name}")

    def look(self, program: str) -> str:
        """What a short Python program, standard library alone, prints where this engine's agents and gateways run.

        Raises EngineError where it fails.
        """
        raise PrerequisiteError(f"no agent runs on the engine {self.name}")

    def halt(self) -> None:  # noqa: B027
        """Ends what `run_agent` and `attempt` run in other threads: agents by SIGTERM, then what they left is read."""

    def kill(self) -> None:  # noqa: B027
        """Kills and removes whatever this run still has, at once."""

    def run(self, cells: list[Cell], progress: Progress) -> Iterator[Outcome]:
        """One outcome for every cell, in order. A cell that takes its process down fails alone."""
        pending = list(cells)
        while pending:
            timeout_s = sum(cell.timeout_s for cell in pending) + START_ALLOWANCE_S
            try:
                outcomes, ending = self.attempt(pending, timeout_s, progress)
            except EngineGone as error:
                for cell in pending:
                    yield Outcome(cell.id, "lost", error=str(error))
                return
            done = {outcome.cell: outcome for outcome in outcomes}
            left = [cell for cell in pending if cell.id not in done]
            yield from (done[cell.id] for cell in pending if cell.id in done)
            if left:
                failed = left.pop(0)
                yield Outcome(failed.id, "failed", error=ending or "the cell left no outcome")
            pending = left


def inbox(cells: list[Cell]) -> dict[str, bytes]:
    """The files of a cell folder: the cells and everything that they name."""
    files = {CELLS: "".join(jsonio.dumps(cell.to_json()) + "\n" for cell in cells).encode()}
    for cell in cells:
        for name, content in cell.files.items():
            if files.setdefault(name, content) != content:
                raise ValueError(f"two cells bring different files named {name}")
    return files


def outcomes(text: str) -> list[Outcome]:
    """The outcomes in the text of an outcomes file; a last line cut short is left out."""
    found = []
    for line in text.splitlines():
        try:
            found.append(Outcome(**json.loads(line)))
        except (ValueError, TypeError):
            continue
    return found
