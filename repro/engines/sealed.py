"""One sealed container for an agent: no network, no capability, a read-only root, a user of its own, bounded memory.

Commands run in it by the engine's own exec, and its files travel over the same channel, so that nothing of the host is
mounted. Its folder is a volume: what the agent left there is read after the container was killed.
"""

from __future__ import annotations

import contextlib
import shlex
import tarfile
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Any

from docker.errors import NotFound
from docker.types import LogConfig, Ulimit
from docker.utils.socket import frames_iter

from repro import config
from repro.engines import resources
from repro.engines.docker import MEMORY_SHARE, TMPFS, DockerEngine, guard, quietly
from repro.engines.submission import MOST_BYTES, Basket

FOLDER = "/job"
#: Folders of the image that an agent must not read, each covered by an empty one.
MASKED = ("artifacts", "tests", "repro/knowledge")
MASK = "ro,noexec,nosuid,nodev,size=4k"
PIDS = 1024
#: Weight when processors are scarce; every other container has 1024, so a busy agent cannot slow a judge.
CPU_SHARES = 128
#: Most bytes of one file on the engine's disk, since volumes have no quota.
FILE_LIMIT = 8 << 30
#: Process 1, which nothing in the container can kill: it reaps what loses its parent.
FIRST = ["/bin/bash", "-c", "trap '' TERM INT HUP; while :; do sleep 3600 & wait $!; done"]
LOGS = {"max-size": "8m", "max-file": "2"}
#: Most bytes that are kept of each output of a command; the beginning of a longer one is dropped.
OUTPUT_BYTES = 10 << 20
#: Most bytes of one archive from the engine, with headers and padding.
ARCHIVE_BYTES = MOST_BYTES + (8 << 20)
#: Exit code of `timeout` when it has ended its command, and of one that it had to kill.
ENDED, KILLED = 124, 137
#: The bit by which Go marks a folder in a file mode.
GO_FOLDER = 1 << 31


@dataclass
class Result:
    """How a command ended. code: its exit code; 124 if it ran past its limit."""

    code: int
    stdout: bytes
    stderr: bytes


@dataclass
class Sealed:
    """The container of one sitting. share: the fraction of the engine's memory that it may use."""

    engine: DockerEngine
    environment: dict[str, str]
    share: float = 1.0
    _held: contextlib.ExitStack = field(default_factory=contextlib.ExitStack)
    _container: Any = None

    def open(self) -> None:
        """Create and start the container, with a GPU of its own if the engine has any. Raises EngineError."""
        with contextlib.ExitStack() as stack, guard():
            lease = stack.enter_context(resources.hold(self.engine.gpus, lambda _: None, self.engine.stopping))
            made = self.engine.container("agent", FOLDER, lease, **self._options())
            self._container = stack.enter_context(made)
            self._container.start()
            self._held = stack.pop_all()

    def close(self) -> None:
        """Remove the container and its volume, and give its GPU back."""
        self._held.close()

    def end(self) -> None:
        """Kill everything in the container; its folder can still be read."""
        quietly(self._container.kill)

    def _options(self) -> dict[str, Any]:
        """Return what the container of an agent has beyond any other."""
        memory = int(self.engine.memory * MEMORY_SHARE * self.share) or None
        return {
            "entrypoint": FIRST,
            "command": [],
            "environment": self.environment,
            "user": f"{config.CONTAINER_UID}:{config.CONTAINER_UID}",
            "working_dir": FOLDER,
            "tmpfs": {"/tmp": TMPFS, "/var/tmp": TMPFS} | {f"/opt/repro/{folder}": MASK for folder in MASKED},  # noqa: S108
            "pids_limit": PIDS,
            "cpu_shares": CPU_SHARES,
            "mem_limit": memory,
            "memswap_limit": memory,
            "ulimits": [Ulimit(name="core", soft=0, hard=0), Ulimit(name="fsize", soft=FILE_LIMIT, hard=FILE_LIMIT)],
            "log_config": LogConfig(type=LogConfig.types.JSON, config=LOGS),
            "init": False,
            "detach": True,
        }

    def isolation(self) -> dict[str, Any]:
        """Return the engine's description of the container, as evidence; it holds no secret."""
        with guard():
            self._container.reload()
        host, made = self._container.attrs["HostConfig"], self._container.attrs["Config"]
        return {
            "isolation": "containers", "network": host["NetworkMode"], "user": made["User"],
            "read_only": host["ReadonlyRootfs"], "cap_drop": host["CapDrop"], "security_opt": host["SecurityOpt"],
            "pids_limit": host["PidsLimit"], "memory_bytes": host["Memory"],
            "masked": sorted(set(host.get("Tmpfs") or {}) - {"/tmp", "/var/tmp"}),  # noqa: S108
            "mounts": [mount["Target"] for mount in host["Mounts"]],
        }  # fmt: skip

    # -- commands and files

    def exec(
        self, words: list[str], data: bytes | None = None, *, folder: str = FOLDER,
        environment: dict[str, str] | None = None, limit_s: float | None = None,
    ) -> Result:  # fmt: skip
        """Run a command as the agent's user and wait for it. data: its standard input. Raises EngineError."""
        if limit_s is not None:
            words = ["/usr/bin/timeout", "--kill-after=5", f"{limit_s:g}", *words]
        if data is not None:  # by length, because not every connection to an engine can be closed in one direction
            pipe = f'/usr/bin/head -c {len(data)} | "$@"'
            words = ["/bin/bash", "-c", pipe, "bash", *words]
        api = self.engine.client.api
        begin = time.monotonic()
        with guard():
            made = api.exec_create(
                self._container.id, words, stdin=data is not None, workdir=folder, environment=environment or {}
            )
            stream = api.exec_start(made["Id"], socket=True)
            outputs = {1: bytearray(), 2: bytearray()}
            try:
                if data is not None:
                    _send(stream, data)
                for number, part in frames_iter(stream, tty=False):
                    outputs[number] += part
                    if len(outputs[number]) > 2 * OUTPUT_BYTES:
                        del outputs[number][:-OUTPUT_BYTES]
            finally:
                getattr(stream, "_response", stream).close()  # it holds the connection
            code = api.exec_inspect(made["Id"])["ExitCode"]
        late = limit_s is not None and code == KILLED and time.monotonic() - begin >= limit_s
        out, err = (bytes(output[-OUTPUT_BYTES:]) for output in outputs.values())
        return Result(ENDED if late else code if code is not None else KILLED, out, err)

    def write(self, path: str, content: bytes) -> None:
        """Write a file and the folders above it. Raises IsADirectoryError, PermissionError."""
        where = str(PurePosixPath(FOLDER, path))
        above = shlex.quote(str(PurePosixPath(where).parent))
        command = f"test ! -d {shlex.quote(where)} || exit 21; mkdir -p {above} && cat > {shlex.quote(where)}"
        result = self.exec(["/bin/sh", "-c", command], content)
        if result.code == 21:
            raise IsADirectoryError(where)
        if result.code:
            raise PermissionError(f"{where}: {result.stderr.decode(errors='replace').strip()}")

    def read(self, path: str) -> bytes:
        """Return a file. Raises FileNotFoundError, IsADirectoryError, PermissionError."""
        where = str(PurePosixPath(FOLDER, path))
        command = f'f={shlex.quote(where)}; test -e "$f" || exit 20; test ! -d "$f" || exit 21; exec cat "$f"'
        result = self.exec(["/bin/sh", "-c", command])
        kinds = {0: None, 20: FileNotFoundError, 21: IsADirectoryError}
        if kind := kinds.get(result.code, PermissionError):
            raise kind(where)
        return result.stdout

    def collect(self, folder: str) -> Basket:
        """Return the plain files of one folder below FOLDER, within the bounds of a basket."""
        basket = Basket()
        with guard():
            for parent in (*reversed(PurePosixPath(folder).parents[:-1]), PurePosixPath(folder)):
                if not self._is_folder(f"{FOLDER}/{parent}"):
                    basket.drop(folder)
                    return basket
            for member, archive in self._members(f"{FOLDER}/{folder}", basket.cut):
                name = str(PurePosixPath(member.name).relative_to(PurePosixPath(folder).name))
                stream = archive.extractfile(member) if member.isreg() else None
                if stream is not None:
                    basket.put(name, stream.read)
                elif not member.isdir() or name != ".":
                    basket.drop(name)
        return basket

    def _is_folder(self, path: str) -> bool:
        """Return whether a path is a real folder. Through a link the agent would choose what the engine reads."""
        try:
            parts, facts = self._container.get_archive(path)
        except NotFound:
            return False
        parts.close()
        return bool(facts["mode"] & GO_FOLDER) and not facts.get("linkTarget")

    def _members(self, path: str, cut: list[str]) -> Iterator[tuple[tarfile.TarInfo, tarfile.TarFile]]:
        """Yield what the archive of a folder holds, up to ARCHIVE_BYTES. cut: receives the path if it has more."""
        parts, _ = self._container.get_archive(path)
        with tempfile.TemporaryFile() as spool:
            for part in parts:
                spool.write(part)
                if spool.tell() > ARCHIVE_BYTES:
                    cut.append(f"{path}: there is more")
                    break
            parts.close()
            spool.seek(0)
            with contextlib.suppress(tarfile.TarError, EOFError), tarfile.open(fileobj=spool) as archive:
                for member in archive:
                    yield member, archive


def _send(stream: Any, data: bytes) -> None:
    raw = getattr(stream, "_sock", stream)
    (raw.sendall if hasattr(raw, "sendall") else raw.write)(data)
