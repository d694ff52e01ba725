"""Runs jobs as child processes in sessions of their own, without a container."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import platform
import secrets
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from repro import config
from repro.engines import resources
from repro.engines.base import Engine, Progress, Slots, inbox, known_gpus
from repro.engines.resources import Lease
from repro.engines.session import Process
from repro.errors import EngineError, PrerequisiteError, refusing
from repro.records.job import OUTCOMES, Job
from repro.system import removal, signals
from repro.system.procfs import alive, dead, descendants, kill, owner, place

_FOLDER = "repro-job-"
# A disk with less free space than this counts as full.
_FULL_BYTES = 64 << 10
# Time in which killed processes end; a driver frees much memory slowly.
_GONE_S = 30.0


class LocalEngine(Engine):
    """Runs `repro job FOLDER` in a temporary folder. docs/judging.md says what it does not isolate."""

    name = "local"

    def __init__(self, *, gpus: str, device: str) -> None:
        self.gpus = resources.leases(resources.select(gpus) if device != "cpu" and resources.visible() else [])
        self.device = "cuda" if self.gpus else "cpu"
        if not self.gpus and (device == "cuda" or (device == "auto" and gpus not in ("all", "none"))):
            remedy = "Use --device cpu --size smoke, and leave --gpus out."
            raise PrerequisiteError("no NVIDIA GPU here", "NVML reports none", remedy)
        # not imported: that takes seconds, and this process does not use it
        if importlib.util.find_spec("torch") is None:
            raise PrerequisiteError(
                "torch is not installed here", "", "Run `make setup ENGINE=local` or `pip install .` in a checkout."
            )
        self.description = {"engine": "local", "isolation": "processes", "python": platform.python_version()}
        self.stopping = threading.Event()
        self._children: set[subprocess.Popen[str]] = set()
        sweep()

    def capacity(self) -> Slots:
        # without a container, a solution that fills the memory or the disk would harm the job beside it
        return Slots(known_gpus(self.gpus), len(os.sched_getaffinity(0)), shared=resources.SHARED)

    @contextlib.contextmanager
    def _process(self, verb: str, jobs: list[Job], progress: Progress) -> Iterator[Process]:
        with self._folder(jobs, progress) as (folder, lease, held):
            child = self._start(verb, folder, lease, held)
            try:
                yield _Child(child, folder)
            finally:
                _kill(child)
                self._children.discard(child)
                for stream in (child.stdin, child.stdout):
                    if stream is not None:
                        with contextlib.suppress(OSError):  # an unsent request
                            stream.close()

    @contextlib.contextmanager
    def _folder(self, jobs: list[Job], progress: Progress) -> Iterator[tuple[Path, Lease, int]]:
        """Hold a GPU for some jobs, and make a folder with their files. The last of the three is for `_start`."""
        root = Path(tempfile.gettempdir()) / f"{_FOLDER}{owner()}-{secrets.token_hex(4)}"
        folder, scratch = root / "job", root / "tmp"
        avoid, shares = max(job.avoid for job in jobs), all(job.shares for job in jobs)
        with (
            resources.hold(self.gpus, progress, self.stopping, avoid, shares) as lease,
            removal.removed(root) as held,
        ):
            with refusing(EngineError, "cannot write temporary files", "Free disk space."):
                root.mkdir(0o700)
                # only the job's process may read its files; workers of any user write their temporary files beside them
                folder.mkdir(0o700)
                scratch.mkdir()
                scratch.chmod(0o1777)
                root.chmod(0o711)
                for name, content in inbox(jobs).items():
                    (folder / name).write_bytes(content)
            yield folder, lease, held

    def look(self, program: str) -> str:
        command = [sys.executable, "-P", "-c", program]
        done = subprocess.run(command, capture_output=True, text=True, env=config.job_env({}), check=False)
        if done.returncode:
            raise EngineError("the environment's Python failed", done.stderr[-300:])
        return done.stdout

    def close(self, *, now: bool = False) -> None:
        self.stopping.set()
        for child in list(self._children):
            _kill(child)
        if now:
            kill(descendants(os.getpid())[1:])

    def _start(self, verb: str, folder: Path, lease: Lease, held: int) -> subprocess.Popen[str]:
        """Start a process of a job's folder, with standard input if it serves requests.

        Temporary files lie beside the job's folder, so that they are removed with it. held: a descriptor that launcher
        and judge hold, so that this happens after their end.
        """
        environment = config.job_env({"CUDA_VISIBLE_DEVICES": lease.gpu or "", "TMPDIR": str(folder.parent / "tmp")})
        with (folder / "stderr").open("wb") as stderr, resources.confined(lease.cpus):
            child = subprocess.Popen(
                [*config.COMMAND, verb, str(folder), owner()],
                stdin=subprocess.PIPE if verb == "session" else subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=stderr,
                env=environment,
                cwd=folder,
                pass_fds=[held],
                start_new_session=True,
                text=True,
            )
        self._children.add(child)
        if self.stopping.is_set():  # `close` may have looked for children before this one was there
            _kill(child)
        return child


def sweep(*more: Path) -> list[str]:
    """Remove folders of jobs whose engine was killed, on this machine, and `more` folders. Return their paths."""
    found = Path(tempfile.gettempdir()).glob(f"{_FOLDER}{place()}-*")
    left = [
        *filter(Path.is_dir, more),
        *(folder for folder in found if not alive(folder.name.removeprefix(_FOLDER).rpartition("-")[0])),
    ]
    for folder in left:
        removal.remove(folder)
    return [str(folder) for folder in left]


@dataclass
class _Child:
    """The process of a job or a session."""

    child: subprocess.Popen[str]
    folder: Path

    def send(self, line: str) -> None:
        assert self.child.stdin is not None
        self.child.stdin.write(line)
        self.child.stdin.flush()

    def lines(self) -> Iterator[str]:
        assert self.child.stdout is not None
        return (line.rstrip("\n") for line in self.child.stdout)

    def kill(self) -> None:
        _kill(self.child)

    def outcomes(self) -> str:
        file = self.folder / OUTCOMES
        return file.read_text() if file.exists() else ""

    def ending(self) -> str:
        code = self.child.wait()
        if code == 0:
            return ""
        tail = (self.folder / "stderr").read_text(errors="replace").strip().splitlines()[-1:]
        if shutil.disk_usage(self.folder).free < _FULL_BYTES:  # the process could not write its reason then
            tail = [f"No space left in {self.folder.parent}"]
        how = f"signal {signals.name(-code)}" if code < 0 else f"exit code {code}"
        return f"the job's process ended with {how}" + (f": {tail[0]}" if tail else "")


def _kill(child: subprocess.Popen[str]) -> None:
    """Kill the job and its workers, and wait until they are gone: the next job needs their memory.

    Workers are in sessions of their own and are found as children, while the job lives.
    """
    pids, deadline = descendants(child.pid), time.monotonic() + _GONE_S
    kill(pids)
    child.wait()
    while not all(map(dead, pids)) and time.monotonic() < deadline:
        time.sleep(0.01)
