"""The standby of a sitting: started by the agent's first `repro evaluate`, ended with the sitting.

`repro.engines.standby` is the process. It starts when a command is waiting for it, so a sitting that judges nothing
pays nothing. One that the agent kills starts again for the next command.
"""

from __future__ import annotations

import contextlib
import os
import select
import socket
import subprocess
from pathlib import Path

from repro import config
from repro.agents import children

SOCKET = "standby.sock"
# An agent that kills its standby more often has every further command in a new process.
MOST_STARTS = 20


class Standby:
    """See the module. Its processes belong to the thread that calls `tend`."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / SOCKET
        self._environment: dict[str, str] = {}
        self._listener: socket.socket | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._starts = 0

    def open(self, environment: dict[str, str]) -> None:
        """Accept commands. environment: of the agent's programs. Without a socket they run in new processes."""
        listener = socket.socket(socket.AF_UNIX)
        try:
            self.path.unlink(missing_ok=True)
            listener.bind(os.fspath(self.path))
            self.path.chmod(0o600)
            listener.listen()
        except OSError:  # as where the path is too long for a socket
            listener.close()
        else:
            self._environment, self._listener = environment, listener

    def tend(self) -> None:
        """Start the process if a command waits for it. Give up one that ended by itself: it cannot serve."""
        listener, process = self._listener, self._process
        if listener is None or (process is not None and process.poll() is None):
            return
        if (process is not None and process.returncode >= 0) or self._starts == MOST_STARTS:
            self.close()
        elif select.select([listener], [], [], 0)[0]:
            self._starts += 1
            fd = listener.fileno()
            self._process = children.start(
                [*config.COMMAND, "standby", str(fd)],
                stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                env=self._environment, cwd=self.path.parent, pass_fds=(fd,),
            )  # fmt: skip

    def close(self) -> None:
        """Accept no more commands, and kill the process. The forks end with it."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
        if self._listener is not None:
            with contextlib.suppress(OSError):
                self.path.unlink(missing_ok=True)
            self._listener.close()
            self._listener = None
