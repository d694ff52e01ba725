"""What every engine does: run a list of cells, one outcome each, whatever happens to a cell."""

from __future__ import annotations

import abc
import contextlib
import itertools
import json
from collections.abc import Callable, Generator, Iterable, Iterator
from typing import Any

from repro import jsonio
from repro.cells import CELLS, ENDED, Cell, Outcome
from repro.engines.agent import AgentCell, AgentOutcome
from repro.errors import EngineGone, PrerequisiteError

Progress = Callable[[str], None]
#: One outcome after the other as the cells end, then how the process or container ended ("" is well).
Attempt = Generator[Outcome, None, str]
START_ALLOWANCE_S = 120.0


class Engine(abc.ABC):
    """Runs cells. Cells handed over together share a process and a container; a caller that wants them apart calls
    `run` for each."""

    name: str
    device: str

    @abc.abstractmethod
    def attempt(self, cells: list[Cell], timeout_s: float, progress: Progress) -> Attempt:
        """Runs cells in one process or container. Closed before its end, it ends that too.

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

    def run(self, cells: list[Cell], progress: Progress) -> Generator[Outcome]:
        """One outcome for every cell, in order, each as soon as it ended: it is not lost with the rest.

        A cell that takes its process down fails alone.
        """
        pending = list(cells)
        while pending:
            timeout_s = sum(cell.timeout_s for cell in pending) + START_ALLOWANCE_S
            left = {cell.id: cell for cell in pending}
            try:
                ending = yield from self._first(self.attempt(pending, timeout_s, progress), left)
            except EngineGone as error:
                for name in left:
                    yield Outcome(name, "lost", error=str(error))
                return
            pending = list(left.values())
            if pending:
                yield Outcome(pending.pop(0).id, "failed", error=ending or "the cell left no outcome")

    @staticmethod
    def _first(attempt: Attempt, left: dict[str, Cell]) -> Attempt:
        """An attempt's outcomes, the first of every cell that is left, which it then is not."""
        ending = ""
        with contextlib.closing(attempt):
            while True:
                try:
                    outcome = next(attempt)
                except StopIteration as end:
                    ending = str(end.value)
                    break
                if left.pop(outcome.cell, None) is not None:
                    yield outcome
        return ending


def inbox(cells: list[Cell]) -> dict[str, bytes]:
    """The files of a cell folder: the cells and everything that they name, apart from each other's."""
    if len(cells) > 1:
        cells = [cell.apart(f"{at}_") for at, cell in enumerate(cells)]
    files = {CELLS: "".join(jsonio.dumps(cell.to_json()) + "\n" for cell in cells).encode()}
    for cell in cells:
        files |= cell.files
    return files


def follow(lines: Iterable[str], progress: Progress, read: Callable[[], str]) -> Iterator[Outcome]:
    """The outcomes of a cell process, by what it prints: when it says that a cell ended, and at its end, those that
    `read` has of the outcomes file and had not before. All other lines are progress."""
    told = 0
    for line in itertools.chain(lines, [ENDED]):
        if line != ENDED:
            progress(line)
            continue
        found = outcomes(read())
        yield from found[told:]
        told = len(found)


def outcomes(text: str) -> list[Outcome]:
    """The outcomes in the text of an outcomes file; a last line cut short is left out."""
    found = []
    for line in text.splitlines():
        try:
            found.append(Outcome(**json.loads(line)))
        except (ValueError, TypeError):
            continue
    return found
