"""Progress on stderr: a live line on a terminal, plain lines elsewhere."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from rich import progress as bars
from rich.console import Console
from rich.markup import escape
from rich.table import Column
from rich.text import Text

from repro.errors import printable
from repro.records.wording import listed

# Columns that count and times take on the live line, and a margin at its end.
_ROOM = 44
# Seconds between two lines that say what runs, in a log file.
_BEAT_S = 60.0


def spoken(seconds: float) -> str:
    """`0:42`, `12:05`, `1:02:05`."""
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


@dataclass(eq=False)
class _Lane:
    """What runs: the ids of its rows or its sitting, when it began (s since the epoch), and its latest line."""

    what: list[str]
    since: float = field(default_factory=time.time)
    line: str = ""

    def text(self) -> str:
        """`L1_36/oracle/0 and 2 more, timing, 2:05`."""
        return ", ".join(filter(None, (listed(self.what, 1), self.line, spoken(time.time() - self.since))))


class Pace:
    """How far a job is, and how long the rest will take if it goes on as before."""

    def __init__(self) -> None:
        self.begin = self.latest = time.monotonic()
        self.first: int | None = None
        self.done = self.total = 0

    def at(self, number: int, total: int) -> None:
        """Unit `number` of `total` runs now. What was there before the first call took no time of this job."""
        if self.first is None:
            self.first, self.begin = number - 1, time.monotonic()
        if number - 1 > self.done or self.total != total:
            self.latest = time.monotonic()
        self.done, self.total = max(number - 1, self.done), total

    @property
    def rest_s(self) -> float | None:
        """Expected rest in seconds; None before the first unit is done, and after the last."""
        finished = self.done - (self.first or 0)
        if finished <= 0 or self.done >= self.total:
            return None
        each = (self.latest - self.begin) / finished
        return max(0.0, each * (self.total - self.done) - (time.monotonic() - self.latest))

    def text(self) -> str:
        """`0:42, about 1:30 left`; without the rest once that is overdue."""
        rest = self.rest_s or 0.0
        return spoken(time.monotonic() - self.begin) + (f", about {spoken(rest)} left" if rest >= 1 else "")


class _Times(bars.ProgressColumn):
    """Elapsed time and expected rest of a job."""

    max_refresh = 0.5

    def __init__(self, pace: Pace) -> None:
        super().__init__(Column(no_wrap=True))
        self.pace = pace

    def render(self, task: bars.Task) -> Text:
        return Text(self.pace.text(), "cyan")


class Progress:
    """`step` is what happens now, `done` what stays on the screen. Quiet: neither is shown."""

    def __init__(self, *, quiet: bool = False, console: Console | None = None) -> None:
        self.console = console or Console(stderr=True, highlight=False, soft_wrap=True, quiet=quiet)
        self._live: bars.Progress | None = None
        self._task = bars.TaskID(0)
        self._pace = Pace()
        self._prefix, self._number, self._total = "", 0, 0
        self._said: set[str] = set()
        self._alone, self._lanes = _Lane([]), list[_Lane]()
        self._lock = threading.Lock()

    @contextlib.contextmanager
    def live(self, *, counted: bool = True) -> Iterator[Progress]:
        """Show the live line while the block runs, counted or not in units of work. An inner block changes nothing."""
        if self._live is not None:
            yield self
            return
        self._pace = Pace()
        if not self.console.is_terminal or self.console.quiet:
            ended = threading.Event()
            threading.Thread(target=self._beat, args=(ended,), daemon=True).start()
            try:
                yield self
            finally:
                ended.set()
            return
        what = bars.TextColumn("{task.description}", table_column=Column(no_wrap=True, overflow="ellipsis"))
        times = (bars.MofNCompleteColumn(), _Times(self._pace)) if counted else (bars.TimeElapsedColumn(),)
        with bars.Progress(bars.SpinnerColumn(), *times, what, console=self.console, transient=True) as self._live:
            self._task = self._live.add_task("", total=None)
            try:
                yield self
            finally:
                self._live = None

    def _beat(self, ended: threading.Event) -> None:
        """Say every _BEAT_S what runs, and for how long."""
        while not ended.wait(_BEAT_S):
            self._print(f"running: {'; '.join(lane.text() for lane in self.lanes()) or 'nothing'}")

    def at(self, number: int, total: int) -> None:
        """Which unit of work runs now."""
        self._pace.at(number, total)
        self._number, self._total = number, total
        self._prefix = f"[{number}/{total}] "
        if self._live is not None:
            self._live.update(self._task, completed=number - 1, total=total)

    @property
    def rest_s(self) -> float | None:
        """How long the rest will take if it goes on as before, s; None if that is not known."""
        return self._pace.rest_s

    @contextlib.contextmanager
    def lane(self, what: list[str]) -> Iterator[Callable[[str], None]]:
        """Yield a `step` for one of several jobs that run at once; the live line shows the latest step."""
        lane = _Lane(what)
        with self._lock:
            self._lanes.append(lane)
        try:
            yield lambda line: self.step(line, lane)
        finally:
            with self._lock:
                self._lanes.remove(lane)

    def lanes(self) -> list[_Lane]:
        """Return what runs: every lane, and what `step` says without one."""
        with self._lock:
            return [self._alone] * bool(self._alone.line) + self._lanes

    def step(self, line: str, lane: _Lane | None = None) -> None:
        """What happens now; shown on a terminal only. Threads may call it at once, each for a lane of its own."""
        line = (lane or self._alone).line = printable(line)
        live = self._live
        if live is not None:
            # The line must not reach the edge: the terminal's own ^C would begin a new one, and this one would stay.
            room, count = max(10, self.console.width - _ROOM), sum(bool(each.line) for each in self.lanes())
            shown = line if count < 2 else f"{count} at once: {line}"
            shown = shown if len(shown) <= room else f"{shown[: room - 1]}…"
            live.update(self._task, description=escape(shown))

    def done(self, line: str) -> None:
        """A line that stays, about the unit of work that has ended. Elsewhere than on a terminal it carries the times
        that the live line shows there."""
        self._pace.at(self._number + 1, self._total)
        times = f" ({self._pace.text()})" if self._total and not self.console.is_terminal else ""
        self._print(f"{self._prefix}{line}{times}")

    def say(self, line: str) -> None:
        """A line that stays, about the run as a whole; a second time it is not shown."""
        if line not in self._said:
            self._said.add(line)
            self._print(line)

    def _print(self, line: str) -> None:
        self.console.print(escape(printable(line)), soft_wrap=not self.console.is_terminal)
