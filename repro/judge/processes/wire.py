"""The messages between judge and worker: one JSON object a line over two inherited pipes. Never pickle."""

from __future__ import annotations

import contextlib
import json
import os
import select
import time
from collections.abc import Mapping, Sequence
from typing import Any

from repro.errors import printable

MAX_LINE_BYTES = 4 << 20
# An object of another process, of whose values nothing is known.
Json = dict[str, object]
# A worker that compiles asks the judge before each of its benchmarks, and tells when it has ended.
TUNES = "tunes"
# Most levels of nested objects and lists: code that stores a message and reads it again is recursive.
MOST_LEVELS = 24
_PRINTED_BYTES = 4000


class ChannelClosed(Exception):
    """The other side closed its pipe."""


class ChannelTimeout(Exception):
    """No whole line arrived in time."""


class ChannelGarbage(Exception):
    """The data is not a JSON object on one line of bounded length and depth."""


class Channel:
    """Reads lines from one file descriptor and writes them to another.

    from_judge: messages are the judge's and are taken unchanged; others are bounded and made printable.
    """

    def __init__(self, read_fd: int, write_fd: int, *, from_judge: bool = False) -> None:
        self.read_fd, self.write_fd, self.from_judge = read_fd, write_fd, from_judge
        self._buffer = b""

    @classmethod
    def of_worker(cls, fds: Sequence[int]) -> Channel:
        """Return the channel of a worker to its judge; what the worker starts does not inherit it."""
        for fd in fds[:2]:
            os.set_inheritable(fd, False)
        return cls(*fds[:2], from_judge=True)

    def send(self, message: Mapping[str, object], timeout_s: float | None = None) -> None:
        """Write one message. Raises ChannelClosed if the reader is gone, ChannelTimeout if it does not read in time."""
        data = json.dumps(dict(message), allow_nan=True).encode() + b"\n"
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        try:
            os.set_blocking(self.write_fd, deadline is None)
            while data:
                if deadline is not None:
                    _wait([], [self.write_fd], deadline)
                with contextlib.suppress(BlockingIOError):  # another writer filled the pipe
                    data = data[os.write(self.write_fd, data) :]
        except OSError as error:
            raise ChannelClosed(str(error)) from error

    def receive(self, timeout_s: float | None = None) -> dict[str, Any]:
        """Return the next message. Raises ChannelClosed, ChannelTimeout or ChannelGarbage."""
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        while b"\n" not in self._buffer:
            if deadline is not None:
                _wait([self.read_fd], [], deadline)
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
        return message if self.from_judge else _plain(message, 0)

    def comes(self, within_s: float) -> bool:
        """Return whether data, or the end of file, arrives within these seconds."""
        return b"\n" in self._buffer or bool(select.select([self.read_fd], [], [], within_s)[0])

    def waiting(self) -> bool:
        """Return whether there is data that answers no request."""
        return bool(self._buffer) or bool(select.select([self.read_fd], [], [], 0)[0] and not self._at_end())

    def _at_end(self) -> bool:
        """Return whether the descriptor is at its end, which `receive` then reports. Data read here is kept."""
        data = os.read(self.read_fd, 1 << 16)
        self._buffer += data
        return not data

    def close(self) -> None:
        """Close both ends."""
        for fd in (self.read_fd, self.write_fd):
            with contextlib.suppress(OSError):
                os.close(fd)


def _wait(readable: list[int], writable: list[int], deadline: float) -> None:
    """Wait until a descriptor is ready. Raises ChannelTimeout at the deadline, by `time.monotonic`."""
    left = deadline - time.monotonic()
    if left <= 0 or not any(select.select(readable, writable, [], left)):
        raise ChannelTimeout


def printed(log: int) -> str:
    """Return the end of what a process printed to a file."""
    return os.pread(log, _PRINTED_BYTES, max(0, os.fstat(log).st_size - _PRINTED_BYTES)).decode(errors="replace")


def _plain(value: Any, above: int) -> Any:
    """Return a value whose strings are printable. Raises ChannelGarbage below MOST_LEVELS levels."""
    if isinstance(value, str):
        return value if value.isprintable() else printable(value)
    if not isinstance(value, dict | list):
        return value
    if above == MOST_LEVELS:
        raise ChannelGarbage(f"an object of more than {MOST_LEVELS} levels")
    if isinstance(value, list):
        return [_plain(inner, above + 1) for inner in value]
    return {_plain(name, above): _plain(inner, above + 1) for name, inner in value.items()}
