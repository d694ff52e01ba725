"""`repro gateway FOLDER`: serves one job on its unix socket until SIGTERM."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import socket
import stat
import sys
from collections.abc import Iterator
from pathlib import Path

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from repro.errors import ReproError, UsageError
from repro.gateway import config as configuration
from repro.gateway import upstreams
from repro.gateway.app import App
from repro.gateway.budgets import Budgets
from repro.gateway.config import Config
from repro.gateway.journal import Journal
from repro.gateway.messages import Messages
from repro.gateway.meter import Meter
from repro.gateway.redact import Redactor

READY = "ready"
# Docker kills 10 s after SIGTERM, and the journal must be complete before.
GRACE_S = 3
CONNECTIONS, KEEP_ALIVE_S = 256, 120
LONGEST_SOCKET = 107


class _Formatter(logging.Formatter):
    """Formats log lines without keys."""

    def __init__(self, redactor: Redactor) -> None:
        super().__init__("%(name)s: %(message)s")
        self._redactor = redactor

    def format(self, record: logging.LogRecord) -> str:
        return self._redactor.text(super().format(record))


class _Bounded(H11Protocol):
    """HTTP on one connection.

    Beyond CONNECTIONS, requests are answered with a request to retry. Beyond twice as many, connections are closed at
    once, since idle ones use memory too.
    """

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        if len(self.connections) >= 2 * CONNECTIONS:
            self.hung_up = True
            transport.abort()
            return
        super().connection_made(transport)

    def connection_lost(self, exc: Exception | None) -> None:
        if not getattr(self, "hung_up", False):
            super().connection_lost(exc)


class _Server(uvicorn.Server):
    """Leaves signals to the gateway, which ends with exit code 0 on SIGTERM, and prints when it listens."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if not self.should_exit:
            print(READY, flush=True)


def _claim(path: Path) -> None:
    """Remove an old socket that is not in use. Raises UsageError."""
    if len(os.fsencode(path)) > LONGEST_SOCKET:
        raise UsageError(f"the socket's path is longer than {LONGEST_SOCKET} bytes", str(path), "Use a shorter folder.")
    path.parent.mkdir(parents=True, exist_ok=True)
    if not path.exists():
        return
    if not stat.S_ISSOCK(path.stat().st_mode):
        raise UsageError(f"{path} is not a socket", "another file is in its place", "Remove it.")
    with socket.socket(socket.AF_UNIX) as probe:
        try:
            probe.connect(str(path))
        except OSError:
            path.unlink()
            return
    raise UsageError(f"{path} is in use", "another gateway listens there", "End it first.")


async def _serve(config: Config, keys: dict[str, str], redactor: Redactor) -> None:
    about = {"job": config.job, "arm": config.arm, "model": config.model, "upstream": config.upstream.kind}
    upstream = upstreams.choose(config, keys)
    meter = Meter(config.journal / "meter.json", config.rates, config.prices["as_of"], about)
    journal = Journal(config.journal, redactor)
    budgets = Budgets(config.budgets, meter)
    messages = Messages(config, upstream, meter, budgets, journal, redactor)
    async with contextlib.AsyncExitStack() as stack:
        stack.callback(journal.close)
        stack.push_async_callback(upstream.aclose)
        mcp = None
        if config.knowledge.kind != "none":
            # These imports take half a second, which the arm without knowledge saves.
            from repro.gateway import knowledge
            from repro.gateway import mcp as served

            base = await stack.enter_async_context(knowledge.started(config, keys, redactor))
            mcp = served.Mcp(config, base, meter, budgets, journal)
            await stack.enter_async_context(mcp.running())
        app = App(messages, mcp, budgets, journal)
        server = _Server(
            uvicorn.Config(
                app, uds=str(config.socket), lifespan="off", ws="none", http=_Bounded, loop="asyncio", log_config=None,
                access_log=False, limit_concurrency=CONNECTIONS, timeout_keep_alive=KEEP_ALIVE_S, server_header=False,
                timeout_graceful_shutdown=GRACE_S,
            )
        )  # fmt: skip
        loop, ending = asyncio.get_running_loop(), set[asyncio.Task[None]]()

        def end() -> None:
            server.should_exit = True
            ending.add(loop.create_task(messages.aclose()))

        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, end)
        journal.write("start", about | {"budgets": config.budgets, "knowledge": config.knowledge.kind})
        meter.save()
        try:
            await server.serve()
        finally:
            await messages.aclose()
            journal.write("stop", {"stopped": meter.stopped})
            meter.save()
            config.socket.unlink(missing_ok=True)
    if not server.started:
        raise UsageError(f"{config.socket} cannot be listened on", "", "Check the folder's permissions.")


def _first(group: BaseExceptionGroup[BaseException]) -> ReproError | None:
    """Return the expected failure within a task group's exceptions, or None."""
    for error in group.exceptions:
        if isinstance(error, ReproError):
            return error
        if isinstance(error, BaseExceptionGroup) and (found := _first(error)):
            return found
    return None


def serve(folder: Path) -> int:
    """Serve the job of a folder until SIGTERM or SIGINT. Return 0 if it ended cleanly, 2 if it failed.

    Keys come as one line of JSON on standard input. Raises UsageError and PrerequisiteError before it listens.
    """
    os.umask(0o022)
    # Until the server handles signals: process 1 of a container ignores SIGTERM by default.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    config = configuration.read(folder)
    keys = configuration.secrets(sys.stdin.buffer)
    configuration.needed(config, keys)
    redactor = Redactor(list(keys.values()))
    handler = logging.StreamHandler()
    handler.setFormatter(_Formatter(redactor))
    logging.basicConfig(handlers=[handler], level=logging.WARNING, force=True)
    _claim(config.socket)
    try:
        asyncio.run(_serve(config, keys, redactor))
    except BaseExceptionGroup as group:
        if (told := _first(group)) is None:
            print(f"repro: the gateway failed: {redactor.text(repr(group))}", file=sys.stderr)
            return 2
        raise told from None
    except ReproError:
        raise
    except Exception as error:  # a traceback's source lines hold no key, but its message might
        print(f"repro: the gateway failed: {redactor.text(f'{type(error).__name__}: {error}')}", file=sys.stderr)
        return 2
    return 0
