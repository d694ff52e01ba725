"""The bash tool: one persistent shell, with bounded commands, of which nothing remains when it ends.

The shell reads a command from a file and writes its output to another file; its end is a line on a separate pipe. So
output cannot be mistaken for the end, a background program does not block a call, and output cannot fill this process.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import select
import shlex
import subprocess
import time
from pathlib import Path

from repro.agents import children
from repro.agents.deadline import Deadline, Stopped
from repro.agents.tools_result import MOST_CHARACTERS, Result, shorten
from repro.system import signals
from repro.system.procfs import descendants, kill, processes

TICK_S = 0.2
# A command with more output is ended, so that it cannot fill the disk.
MOST_OUTPUT_BYTES = 256 << 20
# A character takes at most four bytes in UTF-8.
READ_BYTES = 4 * MOST_CHARACTERS
MARKER = "REPRO_SHELL"
KILL_ROUNDS = 20
NEXT = "the next command starts a new one in the working folder"
ENDED = f"ended with everything that this shell had started; {NEXT}"


class Bash:
    """A shell in `folder`, started when first needed. outputs: the folder of whole outputs that are long."""

    def __init__(self, folder: Path, env: dict[str, str], outputs: Path, deadline: Deadline, timeout_s: float) -> None:
        self.folder, self.env, self.outputs = folder, env, outputs
        self.deadline, self.timeout_s = deadline, timeout_s
        self.marker = secrets.token_hex(16)
        self._shell: subprocess.Popen[bytes] | None = None
        self._ends = -1
        self._calls = 0

    def run(self, command: str) -> Result:
        """Run one command. Return its output (stdout and stderr in order), and its exit code if that is not 0.

        Raises Stopped if the session ends meanwhile; the command is dead then.
        """
        if self._shell is None or self._shell.poll() is not None:
            self._start()
        assert self._shell is not None and self._shell.stdin is not None
        self._calls += 1
        self.outputs.mkdir(parents=True, exist_ok=True)
        source, output = self.outputs / f"{self._calls:04d}.sh", self.outputs / f"{self._calls:04d}.txt"
        source.write_bytes(command.encode(errors="replace") + b"\n")
        output.touch()
        line = f"{{ . {shlex.quote(str(source))}; }} >{shlex.quote(str(output))} 2>&1 </dev/null {self._said}>&-; "
        try:
            self._shell.stdin.write(f"{line}echo {self._calls} $? >&{self._said}\n".encode())
            self._shell.stdin.flush()
        except BrokenPipeError:
            return self._over(output, f"the shell had ended; {NEXT}")
        return self._wait(output)

    def _wait(self, output: Path) -> Result:
        """Wait for the end of the command."""
        assert self._shell is not None
        timeout_s = self.deadline.remaining_s(self.timeout_s)
        until = time.monotonic() + timeout_s
        told = b""
        while time.monotonic() < until and not self.deadline.stopping():
            if select.select([self._ends], [], [], min(TICK_S, max(0.0, until - time.monotonic())))[0]:
                chunk = os.read(self._ends, 4096)
                told += chunk
                if told.endswith(b"\n"):
                    code = int(told.split()[-1])
                    return self._answer(output, "" if code == 0 else f"exit code {code}", failed=code != 0)
                if chunk:
                    continue
            if self._shell.poll() is not None:
                return self._over(output, f"the shell ended with {_ended(self._shell.returncode)}; {NEXT}")
            if output.stat().st_size > MOST_OUTPUT_BYTES:
                return self._over(output, f"more than {MOST_OUTPUT_BYTES >> 20} MB of output: {ENDED}")
        result = self._over(output, f"not done after {timeout_s:.0f} s: {ENDED}")
        if self.deadline.stopping():
            raise Stopped
        return result

    def restart(self) -> Result:
        """End the shell with everything that it started, and start a new one."""
        self.close()
        self._start()
        return Result("the shell was restarted in the working folder")

    def close(self) -> None:
        """Kill the shell and everything that was started from it, in any session."""
        if self._shell is None:
            return
        for _ in range(KILL_ROUNDS):
            found = self._started()
            kill(found)
            self._shell.poll()
            if not found:
                break
            time.sleep(0.01)
        if self._shell.stdin is not None:
            with contextlib.suppress(BrokenPipeError):
                self._shell.stdin.close()
        self._shell.wait()
        os.close(self._ends)
        self._shell = None

    def _started(self) -> list[int]:
        """Return every living process of this shell: by descent, by session, or by its mark in the environment."""
        assert self._shell is not None
        found = set(descendants(self._shell.pid))
        mark = f"{MARKER}={self.marker}".encode()
        for pid, (_, state) in processes().items():
            if state != "Z" and pid not in found and pid != os.getpid():
                with contextlib.suppress(OSError):
                    if mark in Path(f"/proc/{pid}/environ").read_bytes() or os.getsid(pid) == self._shell.pid:
                        found |= set(descendants(pid))
        return sorted(found)

    def _start(self) -> None:
        if self._shell is not None:
            self.close()
        self._ends, self._said = os.pipe()
        try:
            self._shell = children.start(
                ["/bin/bash", "--noprofile", "--norc"],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                cwd=self.folder,
                env=self.env | {MARKER: self.marker},
                pass_fds=(self._said,),
            )
        finally:
            os.close(self._said)

    def _over(self, output: Path, why: str) -> Result:
        """Return the result of a command that ends together with its shell."""
        self.close()
        return self._answer(output, why, failed=True)

    def _answer(self, output: Path, note: str, *, failed: bool) -> Result:
        text = _ends_of(output)
        if output.stat().st_size <= READ_BYTES and len(text) <= MOST_CHARACTERS:
            output.unlink()
        else:
            text = shorten(text, str(output))
        said = [part for part in (text.rstrip("\n"), f"[{note}]" if note else "") if part]
        return Result("\n".join(said) or "[no output]", is_error=failed)


def _ends_of(file: Path) -> str:
    """Return the text of a file; of a long file its two ends, with the number of bytes left out between them.

    Bytes that are not UTF-8 become U+FFFD, and so does NUL, which no request may contain.
    """
    size = file.stat().st_size
    with file.open("rb") as stream:
        if size <= 2 * READ_BYTES:
            data = stream.read()
        else:
            head = stream.read(READ_BYTES)
            stream.seek(-READ_BYTES, os.SEEK_END)
            note = f"\n[... {size - 2 * READ_BYTES} bytes ...]\n".encode()
            data = head + note + stream.read()
    return data.decode(errors="replace").replace("\0", "\ufffd")


def _ended(code: int) -> str:
    """Return how a process ended, in words."""
    return f"exit code {code}" if code >= 0 else f"signal {signals.name(-code)}"
