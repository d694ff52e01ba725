"""Runs an agent and its gateway as child processes. This isolates nothing and is for machines without an engine.

Every result states it.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from repro import config
from repro.engines import resources
from repro.engines.agent import (
    AGENT_JSON,
    ALLOWANCE_S,
    GATEWAY_JSON,
    GRACE_S,
    JOURNAL,
    LOG_BYTES,
    METER,
    READY,
    READY_S,
    RECORDING,
    SCRIPT,
    SOLUTIONS,
    TRANSCRIPT,
    AgentJob,
    AgentOutcome,
    Basket,
    refused,
    secret_line,
    storable,
    wanted,
)
from repro.engines.base import Progress, no_folder, temporary_folder
from repro.engines.resources import Lease
from repro.errors import EngineError
from repro.system import jsonio
from repro.system.procfs import descendants, kill

POLL_S = 0.2
NOTICE = (
    "--engine local: the agent runs as this user without a container, and can reach the network and all of your files"
)


def _harvest(folder: Path) -> Basket:
    """Return the files that an agent left. One that cannot be read is noted as cut."""
    basket = Basket()
    # unlike rglob, walk goes on after a folder that it may not enter
    for file in sorted(Path(where) / name for where, _, names in os.walk(folder) for name in names):
        name = str(file.relative_to(folder))
        if not wanted(name):
            continue
        try:
            if not file.is_file() or file.is_symlink():
                continue
            if not storable(name):
                basket.drop(name)
                continue
            with file.open("rb") as stream:
                basket.put(name, stream.read)
        except OSError:
            basket.drop(name)
    return basket


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@dataclass
class Room:
    """Runs one agent's job as processes below a temporary folder."""

    lease: Lease
    stopping: threading.Event

    def run(self, job: AgentJob, secrets: dict[str, str], progress: Progress) -> AgentOutcome:
        """Run a job to its end and read its files. Raises EngineError if a folder cannot be made."""
        begin, outcome = time.monotonic(), AgentOutcome(job.id, isolation={"isolation": "processes"})
        with temporary_folder("repro-agent-") as root:
            self._run(root, job, secrets, outcome)
        outcome.wall_s = round(time.monotonic() - begin, 3)
        return outcome

    def _run(self, root: Path, job: AgentJob, secrets: dict[str, str], outcome: AgentOutcome) -> None:
        """Run a job below a folder. Its files are read whatever happened."""
        own, gateway_folder, folder, home = (root / name for name in ("s", "gw", "job", "home"))
        try:
            for each in (own, gateway_folder / "journal", folder / SOLUTIONS, folder / TRANSCRIPT, home):
                each.mkdir(parents=True)
            told = self._write(job, own / "gw.sock", gateway_folder, folder)
        except OSError as error:
            raise no_folder(error) from error
        gateway = agent = None
        try:
            gateway = start("gateway", gateway_folder, config.job_env({"TMPDIR": str(own)}), stdin=subprocess.PIPE)
            try:
                greet(gateway, gateway_folder, secrets, self.stopping)
            except EngineError as error:
                outcome.cause, outcome.ending, outcome.gateway_ending = "infrastructure", str(error), str(error)
                return
            environment = config.agent_env(home, {"CUDA_VISIBLE_DEVICES": self.lease.gpu or ""})
            with resources.confined(self.lease.cpus):
                agent = start("agent", folder, environment, stdin=subprocess.DEVNULL)
            self._watch(agent, gateway, job, outcome, gateway_folder, folder)
        finally:
            for child in (agent, gateway):
                if child is not None:
                    end(child)
            basket = _harvest(folder)
            outcome.agent_files, outcome.cut = basket.files | {AGENT_JSON: told}, basket.cut
            outcome.gateway_files = _gateway_files(gateway_folder, secrets)

    def _write(self, job: AgentJob, address: Path, gateway: Path, folder: Path) -> bytes:
        """Fill both folders; return the configuration of the agent's session."""
        paths = {"socket": str(address), "journal": str(gateway / "journal")}
        jsonio.write(gateway / GATEWAY_JSON, job.gateway | paths)
        if job.script:
            (gateway / SCRIPT).write_bytes(job.script)
        told = jsonio.render(job.agent | {"socket": str(address), "relay_port": _free_port()})
        (folder / AGENT_JSON).write_bytes(told)
        for name, content in job.files.items():
            file = folder / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(content)
        return told

    def _watch(
        self, agent: subprocess.Popen[bytes], gateway: subprocess.Popen[bytes], job: AgentJob,
        outcome: AgentOutcome, gateway_folder: Path, folder: Path,
    ) -> None:  # fmt: skip
        late = time.monotonic() + job.wall_s + ALLOWANCE_S
        kill_at: float | None = None
        while agent.poll() is None:
            now, reason, cause = time.monotonic(), "", ""
            if self.stopping.is_set():
                reason, cause = "the run was stopped", "stopped"
            elif now > late:
                reason, cause = f"it ran {job.wall_s:.0f} s and did not end by itself", "timeout"
            elif gateway.poll() is not None:
                reason = f"the gateway ended with exit code {gateway.returncode}{_tail(gateway_folder)}"
                outcome.gateway_ending, cause = reason, "infrastructure"
            if reason and kill_at is None:
                outcome.cause, outcome.ending, kill_at = cause, reason, now + GRACE_S
                agent.terminate()
            elif kill_at is not None and now > kill_at:
                end(agent)
            time.sleep(POLL_S)
        if not outcome.cause and agent.returncode:
            outcome.ending = f"the agent's process ended with exit code {agent.returncode}{_tail(folder)}"


def greet(gateway: subprocess.Popen[bytes], folder: Path, secrets: dict[str, str], stopping: threading.Event) -> None:
    """Send a gateway its keys and wait until it listens.

    Raises EngineError or PrerequisiteError if it ends before, EngineError if it stays silent.
    """
    assert gateway.stdin is not None
    try:
        gateway.stdin.write(secret_line(secrets))
        gateway.stdin.close()
    except BrokenPipeError:
        raise refused(gateway.wait(), _tail(folder)) from None
    late = time.monotonic() + READY_S
    while time.monotonic() < late and not stopping.is_set():
        if READY in (folder / "stdout").read_text(errors="replace").split():
            return
        if gateway.poll() is not None:
            raise refused(gateway.returncode, _tail(folder))
        time.sleep(POLL_S)
    raise EngineError("the gateway did not start", f"it was silent for {READY_S:.0f} s")


def start(verb: str, folder: Path, env: dict[str, str], *, stdin: int) -> subprocess.Popen[bytes]:
    """Start `repro VERB FOLDER`; its output goes to files in the folder."""
    command = [*config.COMMAND, verb, str(folder)]
    out, err = _log(folder, "stdout"), _log(folder, "stderr")
    with out, err:
        return subprocess.Popen(
            command, stdin=stdin, stdout=out, stderr=err, env=env, cwd=folder, start_new_session=True
        )


def _log(folder: Path, name: str) -> IO[bytes]:
    return (folder / name).open("wb")


def _tail(folder: Path) -> str:
    lines = (folder / "stderr").read_text(errors="replace").strip().splitlines()
    return f": {lines[-1][:400]}" if lines else ""


def end(child: subprocess.Popen[bytes]) -> None:
    """End a child, first by SIGTERM, and kill every process that it started."""
    started = descendants(child.pid) if child.poll() is None else []
    if child.poll() is None:
        child.terminate()
        try:
            child.wait(timeout=5)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()
    kill(started)
    try:
        os.killpg(child.pid, signal.SIGKILL)
    except ProcessLookupError:
        return


def _gateway_files(folder: Path, secrets: dict[str, str]) -> dict[str, bytes]:
    places = {name: folder / "journal" / name for name in (JOURNAL, METER, RECORDING)}
    places |= {GATEWAY_JSON: folder / GATEWAY_JSON, "gateway.log": folder / "stderr"}
    found = {}
    for name, file in places.items():
        if file.exists():
            found[name] = file.read_bytes()[-LOG_BYTES:] if name == "gateway.log" else file.read_bytes()
    for value in filter(None, secrets.values()):
        found = {name: content.replace(value.encode(), b"[redacted]") for name, content in found.items()}
    return found
