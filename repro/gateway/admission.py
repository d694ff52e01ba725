"""Admission of requests: how many, and how many bytes, the gateway holds at once. Further requests wait."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

LARGEST_BODY, LARGEST_CALL = 32 * 1024 * 1024, 4 * 1024 * 1024
SLOTS, BYTES, WAITING = 8, 64 * 1024 * 1024, 64


class Full(Exception):  # noqa: N818 (a signal within the gateway, never shown)
    """The queue is full."""


class Room:
    """Slots and bytes. A request takes its share before its body is read and returns it after the answer."""

    def __init__(self, slots: int = SLOTS, total: int = BYTES, waiting: int = WAITING) -> None:
        self._slots, self._bytes, self._waiting = slots, total, waiting
        self._free = asyncio.Condition()

    async def take(self, size: int) -> None:
        """Wait for a slot and `size` bytes. Raises Full."""
        if self._waiting <= 0:
            raise Full
        self._waiting -= 1
        try:
            async with self._free:
                await self._free.wait_for(lambda: self._slots > 0 and self._bytes >= size)
                self._slots -= 1
                self._bytes -= size
        finally:
            self._waiting += 1

    async def give(self, size: int) -> None:
        """Return the share."""
        async with self._free:
            self._slots += 1
            self._bytes += size
            self._free.notify_all()

    @contextlib.asynccontextmanager
    async def held(self, size: int) -> AsyncIterator[None]:
        """Hold a share while the block lasts. Raises Full."""
        await self.take(size)
        try:
            yield
        finally:
            await asyncio.shield(self.give(size))
