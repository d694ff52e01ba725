"""Jobs in hardened containers of the one image, through the Docker SDK; `DOCKER_HOST=ssh://...` works too.

Nothing is mounted from the host: a job's folder is a named volume, filled and read as an archive. The container has
no network, a read-only root, no new privileges, and bounded processes and memory. It starts as root with one right, to
change users: the launcher then makes a judge and workers, each with a user of its own (judge/processes/launcher.py).
"""

from __future__ import annotations

import contextlib
import io
import os
import shutil
import socket
import subprocess
import tarfile
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import docker
import requests
import urllib3
from docker.constants import MINIMUM_DOCKER_API_VERSION
from docker.errors import APIError, ContainerError, DockerException, ImageNotFound, NotFound
from docker.transport import UnixHTTPAdapter
from docker.types import DeviceRequest, Mount

from repro import config
from repro.engines import resources
from repro.engines.base import Engine, Progress, Slots, inbox, known_gpus
from repro.engines.resources import Lease
from repro.engines.session import Process
from repro.errors import EngineError, EngineGone, PrerequisiteError
from repro.records.job import OUTCOMES, Job
from repro.system import jsonio
from repro.system.digest import tree_digest
from repro.system.procfs import alive, owner, place

LABEL_RUN, LABEL_OWNER = f"{config.LABEL}.run", f"{config.LABEL}.owner"
LABEL_ROLE, LABEL_GPU = f"{config.LABEL}.role", f"{config.LABEL}.gpu"

_JOB_FOLDER = "/job"
# A volume outlives jobs: the judge's compiled baselines. In the image the folder is its user's alone.
_STATE_FOLDER, _STATE_VOLUME = "/state", f"{config.LABEL}-baselines"
_PIDS_LIMIT = 4096
TMPFS = "rw,exec,nosuid,nodev,size=16g,mode=1777"
_SHM_BYTES = 1 << 30
# Share of the engine's memory that jobs may use, in equal parts for those that run at once. Beyond its part, the kernel
# ends the largest process of a container.
MEMORY_SHARE = 0.9
_CONNECT_TIMEOUT_S, _REQUEST_TIMEOUT_S = 10, 600
_GONE = (
    requests.exceptions.ConnectionError,
    requests.exceptions.ReadTimeout,
    requests.exceptions.ChunkedEncodingError,
    urllib3.exceptions.HTTPError,  # raised when a followed stream breaks
    ConnectionError,
)


@contextlib.contextmanager
def guard() -> Iterator[None]:
    """Turn the SDK's exceptions into ours: the engine no longer answers, or it refuses."""
    try:
        yield
    except _GONE as error:
        raise EngineGone("the Docker engine went away in the middle of a job", type(error).__name__,
                         "Start it again and repeat the command with --resume.") from error  # fmt: skip
    except ContainerError as error:
        raise EngineError("the image's Python failed", str(error.stderr)[-300:]) from error
    except APIError as error:
        text = str(error.explanation or error)
        if "could not select device driver" in text:
            raise PrerequisiteError("the Docker engine cannot hand out a GPU", text,
                                    "Install the NVIDIA Container Toolkit.") from error  # fmt: skip
        raise EngineError("the Docker engine refused a job", text) from error


def quietly(call: Callable[..., Any], **options: Any) -> None:
    """Call, and ignore errors: the object may be gone already, and a lost engine is reported elsewhere."""
    with contextlib.suppress(DockerException, OSError, urllib3.exceptions.HTTPError):
        call(**options)


def connect() -> docker.DockerClient:
    """Return a client of the engine that the environment names. Raise PrerequisiteError where no engine answers."""
    try:
        # With a version, the constructor sends no request; the SDK would lose a client whose first request fails.
        first = docker.from_env(timeout=_CONNECT_TIMEOUT_S, version=MINIMUM_DOCKER_API_VERSION)
        with contextlib.closing(first):
            # The SDK leaves a socket open that it cannot connect, so the engine's is connected here first, and closed.
            adapter = first.api.get_adapter(first.api.base_url)
            if isinstance(adapter, UnixHTTPAdapter):
                with socket.socket(socket.AF_UNIX) as probe:
                    probe.settimeout(_CONNECT_TIMEOUT_S)
                    probe.connect(adapter.socket_path)
            version = first.version(api_version=False).get("ApiVersion")
        return docker.from_env(timeout=_REQUEST_TIMEOUT_S, version=version)
    except (DockerException, OSError, urllib3.exceptions.HTTPError) as error:
        where = config.docker_host() or "the default socket"
        reason = "it does not answer" if isinstance(error, DockerException | OSError) else str(error)
        raise PrerequisiteError(f"no Docker engine at {where}", reason, "Start one, or use --engine local.") from None


def find_image(client: docker.DockerClient) -> Any:
    """Return the image that jobs run in, or None if the engine has none of that name."""
    try:
        return client.images.get(config.image())
    except ImageNotFound:
        return None


def stale(image: Any) -> str:
    """Return how an image's code, by the label that `make image` sets, differs from this; empty if it does not."""
    here = tree_digest(config.PACKAGE)[:12]
    held = (image.labels or {}).get("repro.code", "unknown")
    return "" if held == here else f"{config.image()} holds other code of repro ({held}) than this checkout ({here})"


def _without_host(name: str) -> str:
    """Return the name of an image without its registry, since a private registry's address reveals where it is from."""
    first, slash, rest = name.partition("/")
    return rest if slash and (set(first) & set(".:") or first == "localhost") else name


def toolkit_version() -> str:
    """Return the first line of `nvidia-ctk --version`; empty if it is not installed or the engine is remote."""
    program = shutil.which("nvidia-ctk")
    if program is None or config.docker_host().startswith(("ssh://", "tcp://")):
        return ""
    try:
        done = subprocess.run([program, "--version"], capture_output=True, text=True, timeout=10, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip().split("\n")[0]


class DockerEngine(Engine):
    """Runs jobs in containers, one container for the jobs that are submitted together."""

    name = "docker"
    contained = True

    def __init__(self, *, gpus: str, device: str) -> None:
        self.client = connect()
        info = self.client.info()
        self.image = find_image(self.client)
        if self.image is None:
            raise PrerequisiteError(f"the engine has no image {config.image()!r}", "", "Build it with `make image`.")
        self.notice = stale(self.image)
        self._version = str(info.get("ServerVersion", "?"))
        self.memory = int(info.get("MemTotal", 0))
        runtimes = info.get("Runtimes") or {}
        self._runtime = "nvidia" if "nvidia" in runtimes else str(info.get("DefaultRuntime", "runc"))
        able = "nvidia" in runtimes or bool(info.get("CDISpecDirs")) or bool(resources.visible())
        self.device = "cpu" if device == "cpu" or gpus == "none" or not able else "cuda"
        if device == "cuda" and self.device != "cuda":
            raise PrerequisiteError(
                "the Docker engine offers no GPU",
                "neither a runtime called nvidia nor a GPU on this host was found",
                "Install the NVIDIA Container Toolkit, or use --device cpu --size smoke.",
            )
        self._cpus = int(info.get("NCPU", 1))
        self.gpus = self._leases(gpus)
        # A run that uses one of several GPUs, as each job does through Ray, leaves the other runs their memory.
        self._shares = max(len(self.gpus and resources.visible()), self.capacity().at_once())
        self.description = {
            "engine": "docker",
            "isolation": "containers",
            "version": self._version,
            "runtime": self._runtime,
            "image_id": self.image.id,
            "repo_digests": [_without_host(name) for name in self.image.attrs.get("RepoDigests") or []],
        }
        self._facts = self._container_facts()
        self.run_id = uuid.uuid4().hex[:12]
        self.stopping = threading.Event()

    def _leases(self, gpus: str) -> list[Lease]:
        """Return the GPUs for jobs. Their processors are set apart only if the engine runs on this machine."""
        if self.device != "cuda":
            return []
        chosen = resources.select(gpus) or ["0"]
        return resources.leases(chosen) if self._cpus == os.cpu_count() else [Lease(gpu) for gpu in chosen]

    def _container_facts(self) -> dict[str, str]:
        """Return facts that a container cannot see of itself, without unknown ones."""
        labels = self.image.labels or {}
        facts = {
            "engine": "docker",
            "repo_digests": " ".join(self.description["repo_digests"]),
            "base_digest": labels.get("org.opencontainers.image.base.digest"),
            "toolkit": toolkit_version(),
        }
        return {name: str(value) for name, value in facts.items() if value}

    def capacity(self) -> Slots:
        return Slots(known_gpus(self.gpus), self._cpus, self.memory)

    def _clear(self, lease: Lease) -> None:
        """Remove containers that still use the GPU of a lease, because the process that held it has died."""
        if lease.gpu is None:
            return
        filters = {"label": [LABEL_RUN, f"{LABEL_GPU}={lease.gpu}"]}
        for container in _containers(self.client, filters):
            of = container.labels.get(LABEL_OWNER, "")
            if of.startswith(f"{place()}-") and not alive(of):
                _removes(container.remove, force=True, v=True)

    def look(self, program: str) -> str:
        labels = {LABEL_RUN: self.run_id, LABEL_OWNER: owner(), LABEL_ROLE: "job"}
        options = {"network_mode": "none", "read_only": True, "cap_drop": ["ALL"], "remove": True,
                   "security_opt": ["no-new-privileges"], "labels": labels}  # fmt: skip
        with guard():
            out: bytes = self.client.containers.run(self.image.id, ["-c", program], entrypoint=["python"], **options)
        return out.decode()

    def close(self, *, now: bool = False) -> None:
        self.stopping.set()
        quietly(self._end, now=now)

    def _end(self, *, now: bool) -> None:
        """Kill the jobs of this run. now: remove all of its containers and volumes."""
        mine = {"label": f"{LABEL_RUN}={self.run_id}"}
        for container in _containers(self.client, mine):
            if now:
                quietly(container.remove, force=True, v=True)
            elif container.labels.get(LABEL_ROLE) == "job":
                quietly(container.kill)
        for volume in self.client.volumes.list(filters=mine) if now else ():
            quietly(volume.remove, force=True)

    @contextlib.contextmanager
    def _process(self, verb: str, jobs: list[Job], progress: Progress) -> Iterator[Process]:
        avoid = max(job.avoid for job in jobs)
        with resources.hold(self.gpus, progress, self.stopping, avoid) as lease, guard():
            self._clear(lease)
            # its standard input ends with this process, and so does the session
            serves = verb == "session"
            options = self._options() | {"command": [verb, _JOB_FOLDER], "detach": not serves, "stdin_open": serves}
            with self.container("job", _JOB_FOLDER, lease, **options) as container:
                container.put_archive(_JOB_FOLDER, _archive(inbox(jobs)))
                with _Serving(container) if serves else contextlib.nullcontext(_Contained(container)) as process:
                    container.start()
                    if self.stopping.is_set():  # `close` may have looked for containers before this one ran
                        quietly(container.kill)
                    yield process

    @contextlib.contextmanager
    def container(self, role: str, folder: str, lease: Lease, **options: Any) -> Iterator[Any]:
        """Create a container that may do nothing which `options` does not give it, with a volume at `folder`; remove
        both in the end. It has the GPU and the processors of the lease, and no network."""
        name = f"repro-{self.run_id}-{uuid.uuid4().hex[:8]}"
        labels = {LABEL_RUN: self.run_id, LABEL_OWNER: owner()}
        gpus = [DeviceRequest(device_ids=[lease.gpu], capabilities=[["gpu"]])] if lease.gpu is not None else []
        volume, kept = self.client.volumes.create(name, labels=labels), options.pop("mounts", [])
        container = None
        try:
            container = self.client.containers.create(
                self.image.id, name=name, labels=labels | {LABEL_ROLE: role, LABEL_GPU: lease.gpu or ""},
                network_mode="none", read_only=True, cap_drop=["ALL"], security_opt=["no-new-privileges"],
                mounts=[Mount(folder, name, type="volume"), *kept], cpuset_cpus=lease.cpuset, shm_size=_SHM_BYTES,
                ipc_mode="private", device_requests=gpus, **options,
            )  # fmt: skip
            yield container
        finally:
            if container is not None:
                quietly(container.remove, force=True, v=True)
            quietly(volume.remove, force=True)

    def _options(self) -> dict[str, Any]:
        """Return what the container of a job has beyond any other."""
        return {
            "environment": {
                "REPRO_IMAGE_ID": self.image.id,
                "REPRO_ENGINE_VERSION": self._version,
                "REPRO_RUNTIME": self._runtime,
                "REPRO_CONTAINER": jsonio.dumps(self._facts),
                "REPRO_SAMPLE_MS": config.sample_text(),
                "REPRO_STATE": _STATE_FOLDER,
            },
            # root with only the rights to change users, which the job drops for the judge and the workers
            "user": "0:0",
            "cap_add": ["SETUID", "SETGID"],
            "tmpfs": {"/tmp": TMPFS},  # noqa: S108
            "pids_limit": _PIDS_LIMIT,
            "mem_limit": int(self.memory * MEMORY_SHARE / self._shares) or None,
            "init": True,
            # no process owns this volume, so that `collect_garbage` removes it
            "mounts": [Mount(_STATE_FOLDER, _STATE_VOLUME, type="volume", labels={LABEL_RUN: "", LABEL_OWNER: ""})],
        }


class _Contained:
    """The process of a job, in its container."""

    def __init__(self, container: Any) -> None:
        self.container = container

    def lines(self) -> Iterator[str]:
        pending = b""
        with guard():
            for data in self.container.logs(stream=True, follow=True, stdout=True, stderr=False):
                *lines, pending = (pending + data).split(b"\n")
                yield from (line.decode(errors="replace") for line in lines)

    def send(self, line: str) -> None:
        raise OSError("a job takes no requests")

    def kill(self) -> None:
        quietly(self.container.kill)

    def outcomes(self) -> str:
        try:
            parts, _ = self.container.get_archive(f"{_JOB_FOLDER}/{OUTCOMES}")
        except NotFound:
            return ""
        with tarfile.open(fileobj=io.BytesIO(b"".join(parts))) as archive:
            member = archive.extractfile(archive.getmembers()[0])
            return member.read().decode(errors="replace") if member is not None else ""

    def ending(self) -> str:
        with guard():
            code = int(self.container.wait()["StatusCode"])
            if code == 0:
                return ""
            self.container.reload()
            if self.container.attrs["State"].get("OOMKilled"):
                return "the container ran out of memory"
            tail = self.container.logs(stdout=False, stderr=True, tail=1).decode(errors="replace").strip()
        return f"the container ended with exit code {code}" + (f": {tail}" if tail else "")


class _Serving(_Contained):
    """The process of a session, in its container."""

    def __init__(self, container: Any) -> None:
        super().__init__(container)
        self.socket = container.attach_socket(params={"stdin": 1, "stream": 1})
        self.output = super().lines()

    def __enter__(self) -> _Serving:
        return self

    def __exit__(self, *error: object) -> None:
        self.kill()  # if it has not ended
        with contextlib.suppress(EngineError):
            for _ in self.output:  # to its end, which closes the connection
                pass
        quietly(getattr(self.socket, "_response", self.socket).close)  # with which the SDK keeps the connection

    def lines(self) -> Iterator[str]:
        return self.output

    def send(self, line: str) -> None:
        getattr(self.socket, "_sock", self.socket).sendall(line.encode())


def _archive(files: dict[str, bytes]) -> bytes:
    """Return a tar archive of files that belong to the container's user."""
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w") as archive:
        for name, content in files.items():
            info = tarfile.TarInfo(name)
            info.size, info.mode, info.mtime = len(content), 0o444, int(time.time())
            info.uid = info.gid = config.CONTAINER_UID
            archive.addfile(info, io.BytesIO(content))
    return stream.getvalue()


def _containers(client: docker.DockerClient, filters: object) -> list[Any]:
    """Return containers, ended ones too."""
    found: list[Any] = client.containers.list(all=True, filters=filters, ignore_removed=True)
    return found


def _removes(call: Callable[..., Any], **options: Any) -> bool:
    """Return whether this call removed its object; False if another process is removing it at the same time."""
    try:
        call(**options)
    except APIError as error:
        if error.status_code not in (404, 409):
            raise
        return False
    return True


def collect_garbage() -> list[str]:
    """Remove containers and volumes of runs whose process has ended, and the volume of compiled baselines.

    A running container of another machine stays. Return the names of what was removed. Raises PrerequisiteError if no
    engine answers.
    """
    client = connect()
    removed = []
    filters = {"label": LABEL_RUN}
    for container in _containers(client, filters):
        of = container.labels.get(LABEL_OWNER, "")
        # an engine may serve several machines and containers, and none can tell whether another's process lives
        foreign = container.status == "running" and not of.startswith(f"{place()}-")
        if not (foreign or alive(of)) and _removes(container.remove, force=True, v=True):
            removed.append(f"container {container.name}")
    for volume in client.volumes.list(filters=filters):
        dead = not alive((volume.attrs.get("Labels") or {}).get(LABEL_OWNER, ""))
        if dead and _removes(volume.remove, force=True):
            removed.append(f"volume {volume.name}")
    return removed
