"""Inspect's sandbox `repro`: a sealed container where the engine is Docker, else processes of this user in a folder.

One sitting has one of them. Both hold the same files below `root`: the problems, limits and notes that an agent gets,
its working folder, and the command `repro`.
"""

from __future__ import annotations

import contextlib
import os
import signal
import uuid
from pathlib import Path
from typing import Any

import anyio
from anyio.to_thread import run_sync
from inspect_ai.util import ExecResult, SandboxEnvironment, sandboxenv, subprocess
from inspect_ai.util._sandbox._cli import SANDBOX_CLI
from inspect_ai.util._sandbox.local import LocalSandboxEnvironment

from repro import config
from repro.engines import resources, submission
from repro.engines.base import Engine
from repro.engines.submission import Basket
from repro.errors import EngineError
from repro.system.jsonio import Json

SOLUTIONS = "files/solutions"
MARK = "REPRO_SITTING"
_engines: list[tuple[Engine, float]] = []


def use(engine: Engine, share: float) -> None:
    """Make the sandboxes of this process run on an engine. share: of the machine's memory, for each of them."""
    _engines[:] = [(engine, share)]


def variables(root: str, device: str, path: str) -> dict[str, str]:
    """Return the environment of an agent's programs, which holds no key and does not name the arm."""
    home = f"{root}/home"
    return {
        "PATH": f"{root}/bin:{path}", "HOME": home, "USER": "repro", "TMPDIR": "/tmp",  # noqa: S108
        "PYTHONDONTWRITEBYTECODE": "1", "PYTHONUNBUFFERED": "1",
        "TRITON_CACHE_DIR": f"{home}/triton", "TORCHINDUCTOR_CACHE_DIR": f"{home}/inductor",
        "REPRO_RESULTS": f"{root}/results", "REPRO_STATE": f"{home}/state",
    } | ({"TRITON_INTERPRET": "1"} if device == "cpu" else {})  # fmt: skip


@sandboxenv(name="repro")
class Contained(SandboxEnvironment):
    """A sealed container. Inspect starts each sample's sandbox by this class, whichever kind the engine has."""

    root = "/job"

    @classmethod
    async def sample_init(cls, task_name: str, config: Any, metadata: dict[str, str]) -> dict[str, SandboxEnvironment]:
        """Start the sandbox of one sample. Raises EngineError."""
        engine, share = _engines[0]
        room: Contained | Plain = Contained(engine, share) if engine.contained else Plain(engine)
        try:
            await room.start()
        except BaseException:
            with anyio.CancelScope(shield=True):
                await room.close()
            raise
        return {"default": room}

    @classmethod
    async def sample_cleanup(
        cls, task_name: str, config: Any, environments: dict[str, SandboxEnvironment], interrupted: bool
    ) -> None:
        """End and remove the sandboxes of one sample."""
        with anyio.CancelScope(shield=True):
            for room in environments.values():
                if isinstance(room, Contained | Plain):
                    await room.close()

    def __init__(self, engine: Engine, share: float) -> None:
        super().__init__()
        from repro.engines.sealed import Sealed

        path = "/opt/venv/bin:/usr/local/bin:/usr/bin:/bin"
        self.sealed = Sealed(engine, variables(self.root, engine.device, path), share)  # type: ignore[arg-type]
        self._facts: Json = {}

    async def start(self) -> None:
        """Start the container. Raises EngineError, also if it has a network."""
        await run_sync(self.sealed.open, abandon_on_cancel=False)
        self._facts = await run_sync(self.sealed.isolation)
        await run_sync(self.sealed.exec, ["mkdir", "-p", f"{self.root}/{SOLUTIONS}"])
        up = await self.exec(["/bin/sh", "-c", "grep -l '[13579bdf]$' /sys/class/net/*/flags || true"])
        interfaces = [line.split("/")[4] for line in up.stdout.split()]
        self._facts["interfaces_up"] = [name for name in interfaces if name != "lo"]
        if self._facts["interfaces_up"]:
            raise EngineError("an agent's container has a network", ", ".join(self._facts["interfaces_up"]))

    def isolation(self) -> Json:
        """Return how it is contained, as evidence."""
        return self._facts

    async def exec(
        self, cmd: list[str], input: str | bytes | None = None, cwd: str | None = None,
        env: dict[str, str] | None = None, user: str | None = None, timeout: int | None = None,
        timeout_retry: bool = True, concurrency: bool = True,
    ) -> ExecResult[str]:  # fmt: skip
        """Run a command as the container's one user; Inspect asks for root at first, which is that user here."""
        data = input.encode() if isinstance(input, str) else input

        def run() -> Any:
            folder = os.path.join(self.root, "files", cwd or "")
            return self.sealed.exec(cmd, data, folder=folder, environment=env, limit_s=timeout)

        done = await run_sync(run, abandon_on_cancel=True)
        if timeout is not None and done.code == 124:
            raise TimeoutError(f"the command ran longer than {timeout} s")
        out, err = done.stdout.decode(errors="replace"), done.stderr.decode(errors="replace")
        return ExecResult(done.code == 0, done.code, out, err)

    async def write_file(self, file: str, contents: str | bytes) -> None:
        data = contents.encode() if isinstance(contents, str) else contents
        await run_sync(self.sealed.write, os.path.join("files", file), data)

    async def read_file(self, file: str, text: bool = True) -> str | bytes:
        content = await run_sync(self.sealed.read, os.path.join("files", file))
        return content.decode() if text else content

    async def finish(self) -> Basket:
        """End everything that runs in it; return the solutions that it holds."""
        await run_sync(self.sealed.end)
        return await run_sync(self.sealed.collect, SOLUTIONS)

    async def close(self) -> None:
        """Remove the container, and give its GPU back."""
        await run_sync(self.sealed.close)


class Plain(LocalSandboxEnvironment):
    """Processes of this user below a temporary folder. It isolates nothing but the environment."""

    def __init__(self, engine: Any) -> None:
        super().__init__()
        self.engine, self._held = engine, contextlib.ExitStack()
        self.root = f"{self.directory.name}/job"
        self._mark = uuid.uuid4().hex
        self.environment: dict[str, str] = {}

    async def start(self) -> None:
        """Take a GPU, if the engine has any, and make the folders."""
        Path(self.root, SOLUTIONS).mkdir(parents=True)
        lease = await run_sync(lambda: self._held.enter_context(resources.hold(self.engine.gpus, lambda _: None)))
        allowed = config.agent_env()
        own = variables(self.root, self.engine.device, allowed.get("PATH", os.defpath))
        self.environment = allowed | own | {"CUDA_VISIBLE_DEVICES": lease.gpu or "", MARK: self._mark}

    def isolation(self) -> Json:
        """Return how it is contained."""
        return {"isolation": "processes"}

    async def exec(
        self, cmd: list[str], input: str | bytes | None = None, cwd: str | None = None,
        env: dict[str, str] | None = None, user: str | None = None, timeout: int | None = None,
        timeout_retry: bool = True, concurrency: bool = True,
    ) -> ExecResult[str]:  # fmt: skip
        """Run a command with an environment that holds nothing of this process's own."""
        chosen = self.environment | (env or {})
        if cmd and cmd[0] == SANDBOX_CLI:
            chosen[self._SANDBOX_TOOLS_DIR_ENV] = str(self._sandbox_tools_dir)
        words = ["/usr/bin/env", "-i", *(f"{name}={value}" for name, value in chosen.items()), *cmd]
        return await subprocess(
            words, input=input, cwd=self._resolve_file(cwd or ""), timeout=timeout, concurrency=concurrency
        )

    def _resolve_file(self, file: str) -> str:
        return os.path.join(self.root, "files", file)

    async def finish(self) -> Basket:
        """End everything that runs in it; return the solutions that it holds."""
        while pids := self._started():
            for pid in pids:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            await anyio.sleep(0.05)
        return submission.collect(Path(self.root, SOLUTIONS))

    def _started(self) -> list[int]:
        """Return the living processes whose environment carries this sandbox's mark."""
        mark, found = f"{MARK}={self._mark}".encode(), []
        for place in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                if mark in (place / "environ").read_bytes():
                    found.append(int(place.name))
        return found

    async def close(self) -> None:
        """End what is left, and remove the folder."""
        await self.finish()
        self._held.close()
        self.directory.cleanup()
