"""Progress on stderr: a live line on a terminal, plain lines elsewhere."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from rich.console import Console
from rich.markup import escape


class Progress:
    """`step` is what happens now, `done` what stays on the screen."""

    def __init__(self) -> None:
        self.console = Console(stderr=True, highlight=False, soft_wrap=True)
        self._status = self.console.status("") if self.console.is_terminal else None
        self._prefix = ""

    @contextlib.contextmanager
    def live(self) -> Iterator[Progress]:
        """Shows the live line while the block runs."""
        with self._status or contextlib.nullcontext():
            yield self

    def at(self, number: int, total: int) -> None:
        """Which unit of work runs now."""
        self._prefix = f"[{number}/{total}] "

    def step(self, line: str) -> None:
        """What happens now; shown on a terminal only."""
        if self._status is not None:
            self._status.update(escape(self._prefix + line))

    def done(self, line: str) -> None:
        """A line that stays."""
        self.console.print(escape(self._prefix + line))

    def say(self, line: str) -> None:
        """A line that stays, about the run as a whole."""
        self.console.print(escape(line))
