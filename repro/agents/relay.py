"""The relay: bytes between 127.0.0.1 and the gateway's socket, which is the only way out of an agent's container.

It runs in a thread of the session's process. Where that is the first process of a container, no other process there can
kill it.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import threading
from collections.abc import Coroutine
from typing import Any

from repro.errors import PrerequisiteError

# Beyond this many connections a new one waits for an old one to end.
MOST_CONNECTIONS = 256
CHUNK_BYTES = 64 << 10
START_TIMEOUT_S = 10.0
CONNECT_TIMEOUT_S = 10.0
TURNS_OF_THE_LOOP = 5
UNREACHABLE = "gateway_unreachable"


def _refusal() -> bytes:
    """The whole HTTP answer of a relay whose gateway does not take the connection."""
    error = {"type": UNREACHABLE, "message": "the gateway's socket takes no connection"}
    body = json.dumps({"type": "error", "error": error}).encode()
    head = f"HTTP/1.1 502 Bad Gateway\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n"
    return head.encode() + b"connection: close\r\n\r\n" + body


class Relay:
    """Listens while it is open. port: 0 for any free one; then `port` says which."""

    def __init__(self, port: int, socket: str) -> None:
        self.port, self.socket = port, socket
        self.connections = self.most_at_once = 0
        self._loop = asyncio.new_event_loop()
        self._ready = threading.Event()
        self._failure: OSError | None = None
        self._thread = threading.Thread(target=self._run, name="relay", daemon=True)

    @property
    def url(self) -> str:
        """The address that an agent's programs are given."""
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        """Returns when it listens. Raises PrerequisiteError where the port is taken."""
        self._thread.start()
        self._ready.wait(START_TIMEOUT_S)
        if self._failure is not None or not self._ready.is_set():
            why = self._failure.strerror if self._failure else "no answer from its thread"
            raise PrerequisiteError(f"the relay cannot listen on port {self.port}", str(why))

    def close(self) -> None:
        """Ends every connection."""
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._stop.set)
            self._thread.join(START_TIMEOUT_S)

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_until_complete(self._serve())
        finally:
            self._loop.close()

    async def _serve(self) -> None:
        self._stop = asyncio.Event()
        self._room = asyncio.Semaphore(MOST_CONNECTIONS)
        self._open: dict[asyncio.Task[None], asyncio.StreamWriter] = {}
        try:
            server = await asyncio.start_server(self._accept, "127.0.0.1", self.port, limit=CHUNK_BYTES, backlog=512)
        except OSError as error:
            self._failure = error
            self._ready.set()
            return
        self.port = server.sockets[0].getsockname()[1]
        self._ready.set()
        await self._stop.wait()
        server.close()
        for _ in range(TURNS_OF_THE_LOOP):  # what was accepted a moment ago becomes a connection first
            await asyncio.sleep(0)
        for task, writer in self._open.items():
            task.cancel()
            writer.transport.abort()  # a task that has not begun would not close it
        await asyncio.gather(*self._open, return_exceptions=True)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = self._loop.create_task(self._connection(reader, writer))
        self._open[task] = writer
        task.add_done_callback(self._open.pop)

    async def _connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            async with self._room:
                self.most_at_once = max(self.most_at_once, MOST_CONNECTIONS - self._room._value)
                try:
                    opening = asyncio.open_unix_connection(self.socket, limit=CHUNK_BYTES)
                    inner = await asyncio.wait_for(opening, CONNECT_TIMEOUT_S)
                except (OSError, TimeoutError):
                    await _refuse(reader, writer)
                    return
                await _both(_pump(reader, inner[1]), _pump(inner[0], writer), inner[1], writer)
        finally:
            writer.close()


async def _both(
    there: Coroutine[Any, Any, None], back: Coroutine[Any, Any, None], *writers: asyncio.StreamWriter
) -> None:
    """Runs both directions until each has ended; one that breaks ends the other, one that merely ends does not."""
    try:
        async with asyncio.TaskGroup() as group:
            group.create_task(there)
            group.create_task(back)
    except* OSError:
        pass  # either end hung up: both are closed below
    finally:
        for writer in writers:
            writer.close()


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Copies until the end and passes the end on; `drain` waits for a slow receiver, so that memory stays bounded."""
    while chunk := await reader.read(CHUNK_BYTES):
        writer.write(chunk)
        await writer.drain()
    if writer.can_write_eof():
        writer.write_eof()


async def _refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Answers for a gateway that is not there."""
    with contextlib.suppress(OSError, TimeoutError):
        await asyncio.wait_for(reader.read(CHUNK_BYTES), 1.0)
        writer.write(_refusal())
        await writer.drain()
        writer.write_eof()
        # closing with unread bytes would reset the connection before the answer is read
        while await asyncio.wait_for(reader.read(CHUNK_BYTES), 1.0):
            pass
