"""The command line as a user starts it, and smoke fixtures that are measured once a session."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parent.parent
CPU = ("--engine", "local", "--device", "cpu", "--size", "smoke")
# What a test does not set, a user's shell must not set either. One thread: smoke shapes are too small for more.
CLEAN_ENV = {name: value for name, value in os.environ.items() if not name.startswith(("REPRO_", "DOCKER_", "TRITON_"))}
CLEAN_ENV |= {"OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}


@dataclass(frozen=True)
class Done:
    """A command that ended: exit code, what it printed, seconds."""

    code: int
    out: str
    err: str
    wall_s: float

    @property
    def complaint(self) -> str:
        """The one line in which the tool says why it did not do all its work; fails where that is not one line."""
        assert "Traceback" not in self.err, self.err
        lines = [line for line in self.err.splitlines() if line.startswith("repro")]
        assert len(lines) == 1 and self.err.splitlines()[-1] == lines[0], self.err
        return lines[0]


class Tool:
    """`python entrypoint.py` in a folder of its own: working folder, results and temporary files lie below it."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.results, self.tmp = folder, folder / "results", folder / "tmp"
        self.tmp.mkdir(parents=True, exist_ok=True)

    def start(self, *args: object, **env: str) -> subprocess.Popen[str]:
        """Starts a command as the leader of its own process group, as an interactive shell does."""
        settings = {"REPRO_RESULTS": str(self.results), "REPRO_STATE": str(self.tmp / "state"), "TMPDIR": str(self.tmp)}
        return subprocess.Popen(
            [sys.executable, str(ROOT / "entrypoint.py"), *map(str, args)],
            cwd=self.folder,
            env=CLEAN_ENV | settings | env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            process_group=0,
        )

    def finish(self, process: subprocess.Popen[str], timeout_s: float = 240) -> Done:
        """Waits for a command."""
        begin = time.monotonic()
        with process:
            try:
                out, err = process.communicate(timeout=timeout_s)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, 9)
                raise
        return Done(process.returncode, out, err, time.monotonic() - begin)

    def __call__(self, *args: object, **env: str) -> Done:
        """Runs a command to its end."""
        return self.finish(self.start(*args, **env))

    def bundles(self) -> list[Path]:
        """The bundles of the results folder, oldest first."""
        return sorted(path.parent for path in self.results.glob("*/manifest.json"))

    def processes(self) -> list[str]:
        """Command lines of the processes that work below this folder, workers and cells of this tool among them."""
        found = []
        for process in Path("/proc").glob("[0-9]*"):
            try:
                environment = (process / "environ").read_bytes() + (process / "cmdline").read_bytes()
                if str(self.tmp).encode() in environment:
                    found.append((process / "cmdline").read_text().replace("\0", " "))
            except OSError:
                continue
        return found


def rows(bundle: Path) -> dict[str, dict[str, Any]]:
    """The last row of every id in a bundle; every line must be strict JSON."""
    return {row["row"]: row for row in map(strict_json, (bundle / "rows.jsonl").read_text().splitlines())}


def manifest(bundle: Path) -> dict[str, Any]:
    """The manifest of a bundle, which must be strict JSON."""
    found: dict[str, Any] = strict_json((bundle / "manifest.json").read_text())
    return found


def strict_json(text: str) -> Any:
    """A JSON text as the standard knows it: without NaN and Infinity."""

    def refuse(token: str) -> None:
        raise AssertionError(f"{token} is not JSON")

    return json.loads(text, parse_constant=refuse)


@pytest.fixture(scope="session")
def smoke_fixtures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder `fixtures` that `repro fixtures` leaves for L1_36 and L1_82 at the smoke size on the CPU."""
    tool = Tool(tmp_path_factory.mktemp("smoke"))
    done = tool("fixtures", *CPU, "--problem", "L1_36", "--problem", "L1_82")
    assert done.code == 0, done.err
    return tool.results / "fixtures"


@pytest.fixture
def tool(tmp_path: Path) -> Tool:
    """The command line in an empty folder."""
    return Tool(tmp_path)


@pytest.fixture
def judge_tool(tool: Tool, smoke_fixtures: Path) -> Tool:
    """The command line with a copy of the smoke fixtures in its results folder."""
    shutil.copytree(smoke_fixtures, tool.results / "fixtures")
    return tool
