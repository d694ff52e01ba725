"""A solution in the judge's own process, for `--trust dev`."""

from __future__ import annotations

import contextlib
import io
from collections import deque
from collections.abc import Mapping

import torch

from repro.errors import of_worker, printable_lines
from repro.judge.gpu.shared_memory import SharedBuffer
from repro.judge.processes.wire import Json
from repro.judge.worker import fresh_memory, no_gpu, server, triton_interpreter
from repro.system import removal


class InProcess:
    """Answers the judge's requests as a worker process does: quick, for an agent's inner loop.

    It protects nothing: it has no time limit and no separate memory. It is never stopped, and always at rest.
    """

    unrest = ""

    def __init__(self, device: torch.device, buffers: dict[str, SharedBuffer]) -> None:
        if device.type == "cpu":
            triton_interpreter.mend()
            no_gpu.pass_guards()
        self._worker = server.Worker(device, None)
        self._worker.buffers = {name: buffer.bytes for name, buffer in buffers.items()}
        self._due: deque[Mapping[str, object]] = deque()
        self._printed = io.StringIO()

    def start(self) -> Json:
        """Return the description of the software. The buffers are already in this process."""
        return server.answer(self._worker, {"op": "hello"})

    def ask(self, message: Mapping[str, object], timeout_s: float) -> Json:
        """Run one request and return its answer. Raises SolutionError."""
        self.post(message, timeout_s)
        return self.collect(timeout_s)

    def post(self, message: Mapping[str, object], timeout_s: float) -> None:
        """Queue a request; `collect` runs it."""
        self._due.append(message)

    def collect(self, timeout_s: float) -> Json:
        """Run the oldest queued request, without a time limit. Raises SolutionError."""
        printed = contextlib.redirect_stdout(self._printed), contextlib.redirect_stderr(self._printed)
        with printed[0], printed[1], fresh_memory.meanwhile():
            answer = server.answer(self._worker, dict(self._due.popleft()))
        if "error" in answer:
            raise of_worker(str(answer["code"]), str(answer["error"])).traced(answer.get("trace"))
        return answer

    def collected(self, patience_s: float, timeout_s: float) -> Json | None:
        """Return `collect`."""
        return self.collect(timeout_s)

    def stop(self) -> None:
        """Do nothing, as `wake` and `doom` do."""

    wake = doom = stop

    def rest(self) -> bool:
        """Return that it rests, as `rested` does."""
        return True

    rested = rest

    def printed(self) -> str:
        """Return the end of what Python code printed; what a GPU kernel prints goes to this process's own output."""
        return printable_lines(self._printed.getvalue())

    def close(self) -> None:
        """Drop the solution and remove its scratch folder."""
        self._worker.drop()
        removal.remove(self._worker.scratch)
