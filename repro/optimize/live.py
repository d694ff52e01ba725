"""What a person sees of a search: on a terminal a board that is drawn again as it goes on, plain lines elsewhere."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

from rich.console import Group, RenderableType
from rich.live import Live
from rich.text import Text

from repro.optimize.state import DUPLICATE, INPUT, NOT_JUDGED, REFUSED, STAMP, State
from repro.runs.progress import Progress, spoken


class Board(Progress):
    """Progress of a search. `watch` names the state that the board shows."""

    _state: State | None = None
    _elapsed_s: Callable[[], float] | None = None
    _shows = False

    def watch(self, state: State, elapsed_s: Callable[[], float]) -> None:
        """Show a run. elapsed_s: returns its seconds, with those before it was resumed."""
        self._state, self._elapsed_s = state, elapsed_s

    @contextlib.contextmanager
    def live(self) -> Iterator[Progress]:
        """Show the board while the block runs; a block within it, of a job of the search, changes nothing."""
        if self._shows:
            yield self
            return
        self._shows, terminal = True, self.console.is_terminal and not self.console.quiet
        board = Live(get_renderable=self.board, console=self.console, refresh_per_second=4, transient=True)
        try:
            with board if terminal else self.plain():
                yield self
        finally:
            self._shows = False

    def board(self) -> RenderableType:
        """Return the board: rounds and budgets, candidates of this round, what is running."""
        running = "; ".join(lane.line for lane in self.lanes() if lane.line) or "nothing"
        now = Text(f"running: {running}", "cyan", no_wrap=True, overflow="ellipsis")
        if self._state is None or self._elapsed_s is None:
            return now
        head = f"{budgets(self._state, self._elapsed_s())}\n{counted(self._state)}"
        return Group(Text(head, no_wrap=True, overflow="ellipsis"), now)


def budgets(state: State, elapsed_s: float) -> str:
    """Return how much of the rounds, the time, the money and the tokens is used up."""
    options, spent = state.options, state.spent
    stamp = STAMP * (options.device == "cpu")
    parts = [f"{options.problem}{stamp}: round {state.round} of {options.rounds}", spoken(elapsed_s)]
    parts[-1] += f" of {spoken(60 * options.minutes)}" if options.minutes is not None else ""
    if spent["usd"] or options.usd is not None:
        parts.append(f"{spent['usd']:.2f}{f' of {options.usd:.2f}' if options.usd is not None else ''} usd")
    parts += [f"{spent['tokens']:.0f} tokens"] * bool(spent["tokens"])
    return ", ".join(parts)


def counted(state: State) -> str:
    """Return what became of this round's candidates."""
    made = [p for p in list(state.programs.values()) if p.round == state.round and p.id != INPUT]
    waiting = sum(p.verdict == NOT_JUDGED for p in made)
    out = sum(p.verdict in (DUPLICATE, REFUSED) for p in made)
    passed = sum(p.passed for p in made)
    wrong = len(made) - waiting - out - passed
    return (f"candidates of this round: {len(made)}; {passed} passed, {wrong} failed, {out} refused or known, "
            f"{waiting} waiting; {sum(p.gain is not None for p in made)} timed in full")  # fmt: skip
