"""Records of an agent's run on an engine: the job with its gateway's configuration, and its outcome."""

from __future__ import annotations

import io
import re
import tarfile
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Any

from repro import config
from repro.errors import EngineError, PrerequisiteError, ReproError
from repro.errors import printable as plain
from repro.system import jsonio

GATEWAY_JSON, AGENT_JSON, SCRIPT = "gateway.json", "agent.json", "replay.jsonl"
OUTCOME, EVENTS, TRANSCRIPT, SOLUTIONS = "agent-outcome.json", "events.jsonl", "transcript", "work/solutions"
JOURNAL, METER, RECORDING = "journal.jsonl", "meter.json", "record.jsonl"
READY = "ready"
READY_S = 180.0
# Time to finish after an agent's own wall budget, before its container is killed.
ALLOWANCE_S = 120.0
# Time to end after SIGTERM.
GRACE_S = 20.0
# Most bytes of one file and of all files of a job; beyond them the rest is cut off and named.
FILE_BYTES, JOB_BYTES = 32 << 20, 96 << 20
LOG_BYTES = 64 << 10
# Bounds on the files of an agent, which the bundle's machine must be able to write.
MOST_FILES, LONGEST_NAME = 1000, 200
NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._+@=-]{0,119}")


@dataclass(frozen=True)
class AgentJob:
    """One agent to run.

    gateway, agent: the two JSON files, without the paths that only the engine knows. files: name below the job's
    folder -> content. script: of a replay. online: whether the gateway needs a network. share: the fraction of the
    machine's memory that the agent may use.
    """

    id: str
    gateway: dict[str, Any]
    agent: dict[str, Any]
    files: dict[str, bytes] = field(default_factory=dict, repr=False)
    script: bytes = field(default=b"", repr=False)
    online: bool = True
    wall_s: float = 2400.0
    share: float = 1.0


@dataclass
class AgentOutcome:
    """Outcome of an agent's job.

    ending: how the agent's process ended, "" if well. cause: who caused it to end, "" for the agent itself, or timeout,
    memory, stopped (this run was interrupted) or infrastructure. Files are read even if it was killed.
    """

    job: str
    ending: str = ""
    cause: str = ""
    gateway_ending: str = ""
    wall_s: float = 0.0
    agent_files: dict[str, bytes] = field(default_factory=dict, repr=False)
    gateway_files: dict[str, bytes] = field(default_factory=dict, repr=False)
    isolation: dict[str, Any] = field(default_factory=dict)
    cut: list[str] = field(default_factory=list)


def refused(code: int | None, said: str) -> ReproError:
    """Return the error for a gateway that ended before it listened. said: its last line, after `: `.

    Exit code 1 means that something is missing or wrong, which a second attempt cannot mend.
    """
    said = said.removeprefix(": repro: ")
    if code == 1 and said:
        return PrerequisiteError("the gateway cannot start", said)
    return EngineError("the gateway did not start", f"exit code {code}{said and ': '}{said.removeprefix(': ')}")


def secret_line(secrets: dict[str, str]) -> bytes:
    """Return the one line with the keys that a gateway reads from its standard input."""
    return (jsonio.dumps(secrets) + "\n").encode()


def pack(files: dict[str, bytes], folders: Iterable[str] = (), mode: int = 0o644) -> bytes:
    """Return a tar archive of files and folders that belong to the container's user. mode: of the files."""
    every = {str(parent) for name in files for parent in PurePosixPath(name).parents if str(parent) != "."}
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w") as archive:
        for folder in sorted({*every, *folders}):
            info = tarfile.TarInfo(folder)
            info.type, info.mode = tarfile.DIRTYPE, 0o755
            _own(info)
            archive.addfile(info)
        for name, content in files.items():
            info = tarfile.TarInfo(name)
            info.size, info.mode = len(content), mode
            _own(info)
            archive.addfile(info, io.BytesIO(content))
    return stream.getvalue()


def _own(info: tarfile.TarInfo) -> None:
    info.uid = info.gid = config.CONTAINER_UID
    info.mtime = int(time.time())


@dataclass
class Basket:
    """Collects files up to a job's bounds; files beyond them are cut and named."""

    files: dict[str, bytes] = field(default_factory=dict)
    cut: list[str] = field(default_factory=list)
    left: int = JOB_BYTES

    def put(self, name: str, read: Any) -> None:
        """Add a file. read: a function of the most bytes to read."""
        if len(self.files) >= MOST_FILES:
            self.drop("more files")
            return
        bound = min(FILE_BYTES, self.left)
        content: bytes = read(bound + 1)
        if len(content) > bound:
            content = content[:bound]
            self.cut.append(name)
        self.left -= len(content)
        self.files[name] = content

    def drop(self, name: str) -> None:
        """Name a file that is left out."""
        told = printable(name)
        if told not in self.cut and len(self.cut) < MOST_FILES:
            self.cut.append(told)


def printable(text: str, limit: int = LONGEST_NAME) -> str:
    """Return an agent's text on one line, without terminal control characters."""
    return plain(text[: 4 * limit])[:limit]


def wanted(name: str) -> bool:
    """Return whether a file of a job's folder is kept: its record, the raw transcript or a solution."""
    if name in (OUTCOME, EVENTS):
        return True
    path = PurePosixPath(name)
    if ".." in path.parts or path.is_absolute():
        return False
    below = str(path.parent)
    return (below == SOLUTIONS and path.suffix == ".py") or below == TRANSCRIPT or below.startswith(f"{TRANSCRIPT}/")


def storable(name: str) -> bool:
    """Return whether every file system and reader accepts a name."""
    return len(name) <= LONGEST_NAME and all(NAME.fullmatch(part) for part in name.split("/"))
