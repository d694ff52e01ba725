"""The relay: copies bytes between 127.0.0.1 and the gateway's socket, the only connection out of an agent's container.

It runs in a thread of the session's process. If that is process 1 of a container, no other process there can kill it.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import threading
from collections.abc import Coroutine
from typing import Any

from repro.errors import PrerequisiteError

# At this many connections a new one waits until an old one ends.
MOST_CONNECTIONS = 256
CHUNK_BYTES = 64 << 10
START_TIMEOUT_S = 10.0
CONNECT_TIMEOUT_S = 10.0
TURNS_OF_THE_LOOP = 5
UNREACHABLE = "gateway_unreachable"


def _refusal() -> bytes:
    """Return the HTTP reply of a relay that cannot connect to its gateway."""
    error = {"type": UNREACHABLE, "message": "the gateway's socket accepts no connection"}
    body = json.dumps({"type": "error", "error": error}).encode()
    head = f"HTTP/1.1 502 Bad Gateway\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n"
    return head.encode() + b"connection: close\r\n\r\n" + body


class Relay:
    """Listens from `start` to `close`. port: 0 for any free one; `port` then has its number."""

    def __init__(self, port: int, socket: str) -> None:
        self.port, self.socket = port, socket
        self.connections = self.most_at_once = 0
        self._loop = asyncio.new_event_loop()
        self._ready = threading.Event()
        self._failure: OSError | None = None
        self._thread = threading.Thread(target=self._run, name="relay", daemon=True)

    @property
    def url(self) -> str:
        """Return the address for the agent's programs."""
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        """Start listening. Raises PrerequisiteError if the port is taken."""
        self._thread.start()
        self._ready.wait(START_TIMEOUT_S)
        if self._failure is not None or not self._ready.is_set():
            why = self._failure.strerror if self._failure else "no answer from its thread"
            raise PrerequisiteError(f"the relay cannot listen on port {self.port}", str(why))

    def close(self) -> None:
        """End every connection."""
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
        for _ in range(TURNS_OF_THE_LOOP):  # connections that were just accepted are registered first
            await asyncio.sleep(0)
        for task, writer in self._open.items():
            task.cancel()
            writer.transport.abort()  # a task that has not started would not close it
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
    """Run both directions until each has ended. An error in one ends the other; a normal end does not."""
    try:
        async with asyncio.TaskGroup() as group:
            group.create_task(there)
            group.create_task(back)
    except* OSError:
        pass  # one side hung up: both are closed below
    finally:
        for writer in writers:
            writer.close()


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Copy until the end, and pass the end on. `drain` waits for a slow receiver, so that memory stays bounded."""
    while chunk := await reader.read(CHUNK_BYTES):
        writer.write(chunk)
        await writer.drain()
    if writer.can_write_eof():
        writer.write_eof()


async def _refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Reply in place of a gateway that cannot be reached."""
    with contextlib.suppress(OSError, TimeoutError):
        await asyncio.wait_for(reader.read(CHUNK_BYTES), 1.0)
        writer.write(_refusal())
        await writer.drain()
        writer.write_eof()
        # Closing with unread bytes would reset the connection before the reply is read.
        while await asyncio.wait_for(reader.read(CHUNK_BYTES), 1.0):
            pass
