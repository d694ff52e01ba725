"""The judge's end of a worker: start it, ask it with a bounded wait, end it."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch

from repro import settings
from repro.errors import SolutionDied, SolutionError, SolutionRejected, SolutionTimeout
from repro.judge.buffers import SharedBuffer
from repro.judge.protocol import Channel, ChannelClosed, ChannelGarbage, ChannelTimeout

START_TIMEOUT_S = 120.0
STDERR_TAIL_BYTES = 4000


class WorkerProcess:
    """One worker: a fresh interpreter, session and scratch folder, with an allow-listed environment."""

    def __init__(self, name: str, device: torch.device, buffers: dict[str, SharedBuffer], *, trusted: bool) -> None:
        self.name, self.device, self.trusted = name, device, trusted
        self.scratch = Path(tempfile.mkdtemp(prefix=f"repro-{name}-"))
        self._log = (self.scratch / "stderr").open("wb+")
        to_worker, from_judge = os.pipe()
        to_judge, from_worker = os.pipe()
        inherited = [to_worker, from_worker, *(b.fd for b in buffers.values() if b.fd is not None)]
        interpret = device.type == "cpu"
        command = [sys.executable, "-P", "-m", "repro.judge.worker", str(to_worker), str(from_worker), str(device)]
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=self._log,
            stderr=self._log,
            cwd=self.scratch,
            env=settings.worker_env(self.scratch, interpret=interpret),
            pass_fds=inherited,
            start_new_session=True,
        )
        os.close(to_worker)
        os.close(from_worker)
        self.channel = Channel(to_judge, from_judge)
        self.buffers = buffers

    def start(self) -> dict[str, Any]:
        """Waits for the worker and opens the buffers in it; returns what it says of its software."""
        hello = self.ask({"op": "hello"}, START_TIMEOUT_S)
        self.ask({"op": "attach", "buffers": {name: b.ticket() for name, b in self.buffers.items()}}, START_TIMEOUT_S)
        return hello

    def ask(self, message: dict[str, Any], timeout_s: float) -> dict[str, Any]:
        """One request and its answer.

        Raises SolutionTimeout (the worker is killed), SolutionDied with how it ended, SolutionError with the
        exception that the solution raised, SolutionRejected where the answer is not one.
        """
        try:
            self.channel.send(message)
            answer = self.channel.receive(timeout_s)
        except ChannelTimeout:
            self.kill()
            raise SolutionTimeout("timeout", f"{message['op']} took longer than {timeout_s:.0f} s") from None
        except ChannelClosed:
            raise self._death(message["op"]) from None
        except ChannelGarbage as error:
            self.kill()
            raise SolutionRejected("protocol_tampered", str(error)) from None
        if "error" in answer:
            code = str(answer.get("code", "exception"))[:40]
            raise SolutionError(code, str(answer["error"]))
        return answer

    def _death(self, op: str) -> SolutionDied:
        try:
            code = self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.kill()
            return SolutionDied("worker_closed_pipe", f"during {op}")
        tail = self.stderr_tail()
        if code < 0:
            names = {s.value: s.name for s in signal.Signals}  # real-time ones have no name
            name = names.get(-code, f"signal {-code}")
            reason = {"SIGSEGV": "segfault", "SIGKILL": "killed"}.get(name, "worker_died")
            hint = " (out of memory?)" if name == "SIGKILL" else ""
            return SolutionDied(reason, f"the worker ended by {name}{hint} during {op}. {tail}")
        return SolutionDied("worker_exited", f"the worker ended with code {code} during {op}. {tail}")

    def stderr_tail(self) -> str:
        """The end of what the worker printed."""
        self._log.flush()
        size = self._log.seek(0, os.SEEK_END)
        self._log.seek(max(0, size - STDERR_TAIL_BYTES))
        lines = self._log.read().decode(errors="replace").strip().splitlines()
        return " | ".join(lines[-3:])

    def kill(self) -> None:
        """Kills the worker and everything in its session."""
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            self.process.poll()
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            time.sleep(0)

    def close(self) -> None:
        """Ends the worker and removes its scratch folder."""
        self.kill()
        self.channel.close()
        self._log.close()
        shutil.rmtree(self.scratch, ignore_errors=True)
