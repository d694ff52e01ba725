"""The wire between judge and worker: one JSON object a line over two inherited pipes. Never pickle."""

from __future__ import annotations

import contextlib
import json
import os
import select
import time
from typing import Any

from repro.errors import printable

MAX_LINE_BYTES = 4 << 20
# Objects and lists in each other: what is kept of a message is written and read again by code that calls itself.
MOST_LEVELS = 24


class ChannelClosed(Exception):
    """The other side closed its end."""


class ChannelTimeout(Exception):
    """No whole line came in time."""


class ChannelGarbage(Exception):
    """What came is not a JSON object on one line of bounded length and depth."""


class Channel:
    """Reads lines from one file descriptor and writes them to another. from_judge: whose word comes as it was said;
    that of others is bounded and made printable."""

    def __init__(self, read_fd: int, write_fd: int, *, from_judge: bool = False) -> None:
        self.read_fd, self.write_fd, self.from_judge = read_fd, write_fd, from_judge
        self._buffer = b""

    def send(self, message: dict[str, Any], timeout_s: float | None = None) -> None:
        """Writes one message. Raises ChannelClosed where nobody can read any more, ChannelTimeout where nobody does."""
        data = json.dumps(message, allow_nan=True).encode() + b"\n"
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        try:
            os.set_blocking(self.write_fd, deadline is None)
            while data:
                left = None if deadline is None else deadline - time.monotonic()
                if left is not None and (left <= 0 or not select.select([], [self.write_fd], [], left)[1]):
                    raise ChannelTimeout
                with contextlib.suppress(BlockingIOError):  # somebody else's write took the room
                    data = data[os.write(self.write_fd, data) :]
        except OSError as error:
            raise ChannelClosed(str(error)) from error

    def receive(self, timeout_s: float | None = None) -> dict[str, Any]:
        """The next message. Raises ChannelClosed, ChannelTimeout or ChannelGarbage."""
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        while b"\n" not in self._buffer:
            left = None if deadline is None else deadline - time.monotonic()
            if left is not None and left <= 0:
                raise ChannelTimeout
            ready, _, _ = select.select([self.read_fd], [], [], left)
            if not ready:
                raise ChannelTimeout
            try:
                data = os.read(self.read_fd, 1 << 16)
            except OSError as error:
                raise ChannelClosed(str(error)) from error
            if not data:
                raise ChannelClosed("end of file")
            self._buffer += data
            if len(self._buffer) > MAX_LINE_BYTES:
                raise ChannelGarbage(f"a line of more than {MAX_LINE_BYTES} bytes")
        line, self._buffer = self._buffer.split(b"\n", 1)
        try:
            message = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise ChannelGarbage(f"not JSON: {line[:80]!r}") from error
        if not isinstance(message, dict):
            raise ChannelGarbage("not a JSON object")
        plain: dict[str, Any] = message if self.from_judge else _plain(message, 0)
        return plain

    def comes(self, within_s: float) -> bool:
        """Whether something to receive comes within these seconds, be it the end."""
        return b"\n" in self._buffer or bool(select.select([self.read_fd], [], [], within_s)[0])

    def waiting(self) -> bool:
        """Whether something has come that nobody asked for."""
        return bool(self._buffer) or bool(select.select([self.read_fd], [], [], 0)[0] and not self._at_end())

    def _at_end(self) -> bool:
        """Whether what is ready is the end: `receive` tells of that."""
        data = os.read(self.read_fd, 1 << 16)
        self._buffer += data
        return not data

    def close(self) -> None:
        """Closes both ends."""
        for fd in (self.read_fd, self.write_fd):
            try:
                os.close(fd)
            except OSError:
                continue


def _plain(value: Any, above: int) -> Any:
    """A value whose texts can be printed. Raises ChannelGarbage where it has too many levels with those above it."""
    if isinstance(value, str):
        return value if value.isprintable() else printable(value)
    if not isinstance(value, dict | list):
        return value
    if above == MOST_LEVELS:
        raise ChannelGarbage(f"an object of more than {MOST_LEVELS} levels")
    if isinstance(value, list):
        return [_plain(inner, above + 1) for inner in value]
    return {_plain(name, above): _plain(inner, above + 1) for name, inner in value.items()}
