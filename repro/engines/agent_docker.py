"""Runs an agent in a container without a network, and its gateway in another. They share one socket on a volume.

There are three volumes: the gateway's folder (configuration, journal), the socket's (read-only for the agent) and the
agent's folder. Keys are sent to the gateway's attached standard input, so that no file, environment variable or inspect
shows them.
"""

from __future__ import annotations

import contextlib
import tarfile
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any

import docker
from docker.errors import APIError, NotFound
from docker.types import DeviceRequest, LogConfig, Mount, Ulimit

from repro import config as settings
from repro.engines.agent import (
    AGENT_JSON,
    ALLOWANCE_S,
    EVENTS,
    GATEWAY_JSON,
    GRACE_S,
    JOB_BYTES,
    JOURNAL,
    LOG_BYTES,
    METER,
    OUTCOME,
    READY,
    READY_S,
    RECORDING,
    SCRIPT,
    SOLUTIONS,
    TRANSCRIPT,
    AgentJob,
    AgentOutcome,
    Basket,
    pack,
    printable,
    refused,
    secret_line,
    storable,
    wanted,
)
from repro.engines.base import Progress
from repro.engines.docker_errors import quietly
from repro.engines.resources import Lease
from repro.errors import EngineError
from repro.system import jsonio

GATEWAY_FOLDER, SOCKET_FOLDER, AGENT_FOLDER = "/gateway", "/gateway-sock", "/job"
SOCKET = f"{SOCKET_FOLDER}/gw.sock"
# Shipped solutions, tests and pages: an agent's container has empty folders in their place.
MASKED = ("artifacts", "tests", "repro/knowledge")
MASK = "ro,noexec,nosuid,nodev,size=4k,mode=0555"
TMPFS = "rw,exec,nosuid,nodev,size=16g,mode=1777"
GATEWAY_TMPFS = "rw,noexec,nosuid,nodev,size=64m,mode=1777"
AGENT_PIDS, GATEWAY_PIDS = 1024, 128
GATEWAY_MEMORY = 768 << 20
# Weight when processors are scarce; every other container has 1024. A busy agent cannot slow its gateway or the judge
# of another job.
AGENT_CPU_SHARES = 128
AGENT_SHM = 1 << 30
MEMORY_SHARE = 0.9
# Most bytes of one file on the engine's disk, since volumes have no quota.
FILE_LIMIT = 8 << 30
# Most bytes of one archive from the engine, with headers and padding.
ARCHIVE_BYTES = JOB_BYTES + (8 << 20)
# The bit by which Go marks a folder in a file mode.
GO_FOLDER = 1 << 31
LOGS = {"max-size": "8m", "max-file": "2"}
POLL_S = 0.5


@dataclass
class Room:
    """Runs agents' jobs on one Docker engine."""

    client: docker.DockerClient
    image: str
    prefix: str
    labels: dict[str, str]
    memory: int
    lease: Lease
    stopping: threading.Event

    def run(self, job: AgentJob, secrets: dict[str, str], progress: Progress) -> AgentOutcome:
        """Run a job to its end and read its files. Raises EngineError if a container cannot be made."""
        name = f"{self.prefix}-{uuid.uuid4().hex[:8]}"
        begin, outcome = time.monotonic(), AgentOutcome(job.id)
        with contextlib.ExitStack() as stack:
            volumes = {role: self._volume(stack, f"{name}-{role}") for role in ("gw", "sock", "work")}
            gateway = self._container(stack, self._gateway(name, volumes, job))
            gateway.put_archive(GATEWAY_FOLDER, pack(_gateway_files(job), ["journal"]))
            try:
                _start(gateway, secrets)
                self._await(gateway)
            except EngineError as error:
                outcome.cause, outcome.ending, outcome.gateway_ending = "infrastructure", str(error), str(error)
                outcome.gateway_files = _read_gateway(gateway, secrets, outcome.cut)
                return outcome
            agent = self._container(stack, self._agent(name, volumes, job))
            told = jsonio.render(job.agent | {"socket": SOCKET})
            agent.put_archive(AGENT_FOLDER, pack({AGENT_JSON: told, **job.files}, ["work", SOLUTIONS, TRANSCRIPT]))
            outcome.isolation = _isolation(agent, gateway)
            agent.start()
            self._watch(agent, gateway, job, outcome, progress)
            basket = Basket()
            for part in (OUTCOME, SOLUTIONS, EVENTS, TRANSCRIPT):
                _collect(agent, part, basket)
            outcome.agent_files, outcome.cut = basket.files | {AGENT_JSON: told}, basket.cut
            quietly(lambda: gateway.stop(timeout=10))
            outcome.gateway_files = _read_gateway(gateway, secrets, outcome.cut)
        outcome.wall_s = round(time.monotonic() - begin, 3)
        return outcome

    def _volume(self, stack: contextlib.ExitStack, name: str) -> str:
        volume = self.client.volumes.create(name, labels=self.labels)
        stack.callback(quietly, lambda: volume.remove(force=True))
        return name

    def _container(self, stack: contextlib.ExitStack, options: dict[str, Any]) -> Any:
        container = self.client.containers.create(**options)
        stack.callback(quietly, lambda: container.remove(force=True, v=True))
        return container

    def _shared(self, role: str) -> dict[str, Any]:
        return {
            "image": self.image,
            "labels": self.labels | {f"{settings.LABEL}.role": role},
            "user": f"{settings.CONTAINER_UID}:{settings.CONTAINER_UID}",
            "read_only": True,
            "cap_drop": ["ALL"],
            "security_opt": ["no-new-privileges"],
            "ulimits": [
                Ulimit(name="core", soft=0, hard=0),
                Ulimit(name="fsize", soft=FILE_LIMIT, hard=FILE_LIMIT),
            ],
            "log_config": LogConfig(type=LogConfig.types.JSON, config=LOGS),
            "ipc_mode": "private",
            "detach": True,
        }

    def _gateway(self, name: str, volumes: dict[str, str], job: AgentJob) -> dict[str, Any]:
        return self._shared("gateway") | {
            "name": f"{name}-gateway",
            "init": True,
            "command": ["gateway", GATEWAY_FOLDER],
            "network_mode": "bridge" if job.online else "none",
            "stdin_open": True,
            "tmpfs": {"/tmp": GATEWAY_TMPFS},  # noqa: S108
            "mounts": [Mount(GATEWAY_FOLDER, volumes["gw"]), Mount(SOCKET_FOLDER, volumes["sock"])],
            "pids_limit": GATEWAY_PIDS,
            "mem_limit": GATEWAY_MEMORY,
            "memswap_limit": GATEWAY_MEMORY,
        }

    def _agent(self, name: str, volumes: dict[str, str], job: AgentJob) -> dict[str, Any]:
        memory = int(self.memory * MEMORY_SHARE * job.share) or None
        masks = {f"/opt/repro/{folder}": MASK for folder in MASKED}
        gpu = self.lease.gpu
        requests_ = [DeviceRequest(device_ids=[gpu], capabilities=[["gpu"]])] if gpu is not None else []
        return self._shared("agent") | {
            "name": f"{name}-agent",
            "init": False,  # the session is process 1, which processes inside the container cannot kill
            "command": ["agent", AGENT_FOLDER],
            "network_mode": "none",
            "tmpfs": {"/tmp": TMPFS} | masks,  # noqa: S108
            "mounts": [Mount(AGENT_FOLDER, volumes["work"]), Mount(SOCKET_FOLDER, volumes["sock"], read_only=True)],
            "pids_limit": AGENT_PIDS,
            "cpu_shares": AGENT_CPU_SHARES,
            "cpuset_cpus": self.lease.cpuset,
            "mem_limit": memory,
            "memswap_limit": memory,
            "shm_size": AGENT_SHM,
            "device_requests": requests_,
        }

    def _await(self, gateway: Any) -> None:
        """Wait until the gateway listens.

        Raises EngineError if it ends or stays silent, PrerequisiteError if something is missing that a second attempt
        would not find either.
        """
        late = time.monotonic() + READY_S
        while time.monotonic() < late and not self.stopping.is_set():
            if READY in gateway.logs(stdout=True, stderr=False, tail=20).decode(errors="replace").split():
                return
            state = _state(gateway)
            if not state.get("Running"):
                raise refused(state.get("ExitCode"), _tail(gateway))
            time.sleep(POLL_S / 2)
        raise EngineError("the gateway did not start", f"it was silent for {READY_S:.0f} s{_tail(gateway)}")

    def _watch(self, agent: Any, gateway: Any, job: AgentJob, outcome: AgentOutcome, progress: Progress) -> None:
        """Follow both containers until the agent's has ended. Every path out of here makes sure that it ends."""
        late, since = time.monotonic() + job.wall_s + ALLOWANCE_S, time.time()
        kill_at: float | None = None
        while True:
            state = _state(agent)
            if not state.get("Running") and state.get("Status") != "created":
                break
            now = time.monotonic()
            reason = ""
            if self.stopping.is_set():
                reason, cause = "the run was stopped", "stopped"
            elif now > late:
                reason, cause = f"it ran {job.wall_s:.0f} s and did not end by itself", "timeout"
            elif not (told := _state(gateway)).get("Running"):
                if told.get("OOMKilled"):  # its memory holds only the agent's requests
                    reason, cause = "the agent's requests filled the gateway's memory", "memory"
                else:
                    reason = f"the gateway ended with exit code {told.get('ExitCode')}{_tail(gateway)}"
                    outcome.gateway_ending, cause = reason, "infrastructure"
            if reason and kill_at is None:
                outcome.cause, outcome.ending, kill_at = cause, reason, now + GRACE_S
                quietly(lambda: agent.kill("SIGTERM"))
            elif kill_at is not None and now > kill_at:
                quietly(agent.kill)
            if line := agent.logs(stdout=True, stderr=False, tail=1).decode(errors="replace").strip():
                progress(printable(line))
            time.sleep(POLL_S)
        if outcome.cause:
            return
        if self._killed(agent, since):
            outcome.cause, outcome.ending = "infrastructure", "the agent's container was killed from outside"
        elif state.get("OOMKilled") and state.get("ExitCode"):
            outcome.cause, outcome.ending = "memory", "the agent's container ran out of memory"
        elif state.get("Status") == "gone":
            outcome.cause, outcome.ending = "infrastructure", "the agent's container is gone"
        elif state.get("ExitCode"):
            outcome.ending = f"the agent's container ended with exit code {state['ExitCode']}{_tail(agent)}"

    def _killed(self, container: Any, since: float) -> bool:
        """Return whether the engine was asked to signal a container. Signals inside the container are no such event."""
        until = time.time() + 1
        filters = {"container": container.id, "event": "kill"}
        return any(True for _ in self.client.events(since=int(since), until=int(until), filters=filters))


def _gateway_files(job: AgentJob) -> dict[str, bytes]:
    paths = {"socket": SOCKET, "journal": f"{GATEWAY_FOLDER}/journal"}
    return {GATEWAY_JSON: jsonio.render(job.gateway | paths)} | ({SCRIPT: job.script} if job.script else {})


def _start(gateway: Any, secrets: dict[str, str]) -> None:
    """Start a gateway and send its keys to its attached standard input."""
    api = gateway.client.api
    stream = api.attach_socket(gateway.id, params={"stdin": 1, "stream": 1})
    try:
        gateway.start()
        raw = getattr(stream, "_sock", stream)
        (raw.sendall if hasattr(raw, "sendall") else raw.send)(secret_line(secrets))
    finally:
        # the response holds the connection; closing the stream is not enough
        getattr(stream, "_response", stream).close()


def _state(container: Any) -> dict[str, Any]:
    """Return the engine's state of a container; a removed one counts as not running."""
    try:
        state: dict[str, Any] = container.client.api.inspect_container(container.id)["State"]
        return state
    except NotFound:
        return {"Status": "gone", "Running": False, "ExitCode": None}


def _tail(container: Any) -> str:
    """Return the last line that a container wrote to stderr, as the end of a sentence."""
    try:
        text = container.logs(stdout=False, stderr=True, tail=1).decode(errors="replace").strip()
    except NotFound:
        return ""
    return f": {text[:400]}" if text else ""


def _isolation(agent: Any, gateway: Any) -> dict[str, Any]:
    """Return the engine's description of both containers, as evidence; it holds no secret."""
    found: dict[str, Any] = {"isolation": "containers"}
    for role, container in (("agent", agent), ("gateway", gateway)):
        container.reload()
        host, config = container.attrs["HostConfig"], container.attrs["Config"]
        found[role] = {
            "network": host["NetworkMode"],
            "user": config["User"],
            "read_only": host["ReadonlyRootfs"],
            "cap_drop": host["CapDrop"],
            "security_opt": host["SecurityOpt"],
            "pids_limit": host["PidsLimit"],
            "cpu_shares": host["CpuShares"],
            "memory_bytes": host["Memory"],
            "masked": sorted(set(host.get("Tmpfs") or {}) - {"/tmp"}),  # noqa: S108
            "mounts": [{"target": m["Target"], "read_only": bool(m.get("ReadOnly"))} for m in host["Mounts"]],
        }
    return found


def _members(container: Any, path: str, cut: list[str]) -> Iterator[tuple[str, Callable[[int], bytes]]]:
    """Yield (name below the folder above `path`, reader) of every plain file at `path` in the container.

    An agent may leave files of any size, so the archive is read up to ARCHIVE_BYTES. cut: receives the path if there is
    more.
    """
    try:
        parts, _ = container.get_archive(path)
    except (NotFound, APIError):
        return
    above = PurePosixPath(path).parent
    with tempfile.TemporaryFile() as spool:
        try:
            for part in parts:
                spool.write(part)
                if spool.tell() > ARCHIVE_BYTES:
                    cut.append(f"{path.removeprefix(AGENT_FOLDER + '/')}: there is more")
                    break
        finally:
            parts.close()
        spool.seek(0)
        try:
            with tarfile.open(fileobj=spool) as archive:
                for member in archive:
                    stream = archive.extractfile(member) if member.isreg() else None
                    if stream is not None:
                        yield str(above / member.name), stream.read
        except (tarfile.TarError, EOFError):  # the archive was cut off above
            return


def _is_folder(container: Any, path: str) -> bool:
    """Return whether a path is a real folder. Through a link the agent would choose what the engine reads."""
    try:
        parts, facts = container.get_archive(path)
    except (NotFound, APIError):
        return False
    parts.close()
    return bool(facts["mode"] & GO_FOLDER) and not facts.get("linkTarget")


def _collect(agent: Any, part: str, basket: Basket) -> None:
    parents = [str(parent) for parent in PurePosixPath(part).parents if str(parent) != "."]
    if not all(_is_folder(agent, f"{AGENT_FOLDER}/{parent}") for parent in parents):
        basket.drop(part)
        return
    for path, read in _members(agent, f"{AGENT_FOLDER}/{part}", basket.cut):
        name = str(PurePosixPath(path).relative_to(AGENT_FOLDER))
        if not wanted(name):
            continue
        if storable(name):
            basket.put(name, read)
        else:
            basket.drop(name)


def _read_gateway(gateway: Any, secrets: dict[str, str], cut: list[str]) -> dict[str, bytes]:
    """Return journal, meter, configuration and log of a gateway, with the values of `secrets` removed.

    cut: receives the names of files that were cut.
    """
    basket = Basket(cut=cut)
    for name in (f"journal/{METER}", f"journal/{JOURNAL}", f"journal/{RECORDING}", GATEWAY_JSON):
        for path, read in _members(gateway, f"{GATEWAY_FOLDER}/{name}", cut):
            basket.put(PurePosixPath(path).name, read)
    try:
        basket.files["gateway.log"] = gateway.logs(tail=200)[-LOG_BYTES:]
    except NotFound:
        basket.files["gateway.log"] = b""
    for value in filter(None, secrets.values()):
        basket.files = {n: content.replace(value.encode(), b"[redacted]") for n, content in basket.files.items()}
    return basket.files
