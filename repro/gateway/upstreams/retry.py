"""Retries of a provider, as long as the agent has not received a byte."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from repro.gateway.config import Retry
from repro.gateway.sse import Splitter
from repro.gateway.upstreams.base import Call, Reply, Upstream, UpstreamLost

STATUSES = (408, 409, 429)
LARGEST_REPLY = 64 * 1024 * 1024


@dataclass
class Opened:
    """An answer of which the first bytes have arrived: all of it in `first`, unless it streams.

    attempts: the failures before it. reply: None if the provider was lost in every attempt, and `lost` says why.
    """

    first: bytes = b""
    reply: Reply | None = None
    lost: UpstreamLost | None = None
    attempts: list[dict[str, Any]] = field(default_factory=list)

    @property
    def streams(self) -> bool:
        """Return whether more bytes follow."""
        return self.reply is not None and "text/event-stream" in self.reply.headers.get("content-type", "")


def wait_s(headers: dict[str, str], attempt: int, retry: Retry) -> float:
    """Return how long to wait before the next attempt, s.

    It is the time that the provider asks for, else twice as long each time, with jitter so that jobs do not retry
    together.
    """
    for name, unit in (("retry-after-ms", 1e-3), ("retry-after", 1.0)):
        try:
            told = float(headers.get(name, "")) * unit
        except ValueError:
            continue
        if 0 <= told < float("inf"):
            return told
    longest = min(retry.base_s * 2.0**attempt, retry.longest_s)
    return longest * (1 - 0.25 * random.random())  # noqa: S311 (not used for secrets)


def _again(reply: Reply) -> bool:
    told = reply.headers.get("x-should-retry")
    return told == "true" if told in ("true", "false") else reply.status in STATUSES or reply.status >= 500


async def _open(upstream: Upstream, call: Call) -> Opened:
    """Make one attempt, up to its first event or its whole body. Raises UpstreamLost."""
    reply = await upstream.send(call)
    opened = Opened(reply=reply)
    splitter, parts, size = Splitter(), [], 0
    try:
        async for chunk in reply.chunks:
            parts.append(chunk)
            size += len(chunk)
            if size > LARGEST_REPLY:
                raise UpstreamLost("too_large", f"over {LARGEST_REPLY} bytes")
            if opened.streams and splitter.feed(chunk):
                break
        else:
            if opened.streams:
                raise UpstreamLost("disconnect", "the stream ended before its first event")
    except BaseException:
        await reply.close()
        raise
    opened.first = b"".join(parts)
    if not opened.streams:
        await reply.close()
    return opened


async def patient(
    upstream: Upstream, call: Call, retry: Retry, *, note: Callable[[str], None], left_s: Callable[[], float]
) -> Opened:
    """Return an answer, after as many attempts as `retry` allows. Never raises for the provider's faults.

    note: receives the meter's code of every failed attempt. left_s: returns the time that the job has left, s.
    """
    began, opened = time.monotonic(), Opened()
    attempts: list[dict[str, Any]] = []
    for attempt in range(retry.attempts + 1):
        headers: dict[str, str] = {}
        failure: dict[str, Any]
        try:
            opened = await _open(upstream, call)
        except UpstreamLost as lost:
            opened, failure, again = Opened(lost=lost), {"error": lost.code, "why": lost.why}, True
            note(lost.code)
        else:
            assert opened.reply is not None
            if opened.reply.status < 300:
                break
            headers, again, failure = opened.reply.headers, _again(opened.reply), {"status": opened.reply.status}
            note(str(opened.reply.status))
        attempts.append(failure)
        pause = wait_s(headers, attempt, retry)
        late = time.monotonic() - began + pause > min(retry.total_s, left_s())
        if not again or attempt == retry.attempts or late:
            break
        failure["waited_s"] = round(pause, 3)
        await asyncio.sleep(pause)
    opened.attempts = attempts
    return opened
