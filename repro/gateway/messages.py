"""Handles one message request, from the agent's body to the journal's line."""

from __future__ import annotations

import asyncio
import json
import math
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any, NoReturn

from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from repro.gateway import policy, sse
from repro.gateway.budgets import Budgets
from repro.gateway.config import Config
from repro.gateway.journal import Journal
from repro.gateway.meter import Meter
from repro.gateway.redact import Redactor
from repro.gateway.refusal import FINAL, Refusal, error_body
from repro.gateway.upstreams.base import Call, Upstream, UpstreamLost
from repro.gateway.upstreams.record import Record
from repro.gateway.upstreams.retry import LARGEST_REPLY, Opened, patient

ENDING = error_body("api_error", "gateway: it is shutting down [upstream:interrupted]")
# Statuses by which a provider rejects the request itself, which the agent wrote. An account without money is different.
CALLERS = (400, 404, 405, 413, 415, 422)
NO_MONEY = '"message":"yourcreditbalance'
RETURNED = ("request-id", "retry-after", "anthropic-ratelimit-unified-reset")


def answer(status: int, body: dict[str, Any], headers: dict[str, str] | None = None) -> Response:
    """Return a JSON response."""
    return Response(json.dumps(body), status, headers, "application/json")


@dataclass
class Exchange:
    """One request under way, with its journal entry."""

    id: str
    path: str
    body: dict[str, Any]
    entry: dict[str, Any] = field(default_factory=dict)
    answer: sse.Assembler = field(default_factory=sse.Assembler)
    began: float = field(default_factory=time.monotonic)
    counting: bool = False


class Streamed(StreamingResponse):
    """Events as they arrive. It ends after its pump, so that a request keeps its room until the provider has ended."""

    def __init__(self, exchange: Exchange, queue: asyncio.Queue[bytes | None], pump: asyncio.Task[None]) -> None:
        self._exchange, self._pump = exchange, pump

        async def events() -> AsyncIterator[bytes]:
            while (event := await queue.get()) is not None:
                yield event

        super().__init__(events(), exchange.entry["status"], {"cache-control": "no-cache"}, "text/event-stream")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the events. If the agent disconnects before the end, the journal says so."""
        try:
            await super().__call__(scope, receive, send)
        finally:
            if not self._pump.done():
                self._exchange.entry["agent_gone"] = True
                await asyncio.wait([self._pump])


class Messages:
    """Passes requests through policy, budgets, provider, meter and journal.

    A streamed answer is read to its end even if the agent has disconnected: the provider bills it, so it must be
    metered.
    """

    def __init__(
        self, config: Config, upstream: Upstream, meter: Meter, budgets: Budgets, journal: Journal, redactor: Redactor
    ) -> None:
        self._config, self._upstream, self._redactor = config, upstream, redactor
        self._meter, self._budgets, self._journal = meter, budgets, journal
        self._policy = policy.Policy(config)
        self._record = Record(config.journal, redactor) if config.upstream.record else None
        self._pumps: set[asyncio.Task[None]] = set()
        self._waiting: set[asyncio.Task[Opened]] = set()
        self._answered, self._ending = asyncio.Event(), False

    def refuse(self, refusal: Refusal, entry: dict[str, Any], shown: Any = None) -> Response:
        """Count, journal and answer a refusal. shown: the part of the request that the journal keeps."""
        self._meter.denied[refusal.code] += 1
        entry = entry | {
            "status": refusal.status, "decision": "denied", "code": refusal.code, "detail": refusal.detail,
        }  # fmt: skip
        if shown is not None:
            text = json.dumps(shown, default=str)
            entry["excerpt"] = text[:2000]
        self._journal.write("request", entry)
        self._meter.save()
        return answer(refusal.status, refusal.body(), FINAL)

    async def handle(self, entry: dict[str, Any], raw: bytes, headers: dict[str, str], *, beta: bool) -> Response:
        """Answer one request whose body has been read. entry: its path and id."""
        path: str = entry["path"]
        counting = path != "/v1/messages"
        body = _parse(raw)
        if isinstance(body, Refusal):
            return self.refuse(body, entry, raw[:2000].decode(errors="replace"))
        refusal = self._policy.refusal(body, counting=counting) or self._budgets.refusal()
        if refusal:
            return self.refuse(refusal, entry, body)
        passed, dropped = policy.headers(headers)
        changes = [*self._policy.edit(body), *(f"beta {name} left out" for name in dropped)]
        if changes:
            entry["changes"] = changes
        exchange = Exchange(entry["id"], path, body, entry, counting=counting)
        if not counting and (refusal := await self._turn(exchange.id, len(raw), body["max_tokens"])):
            return self.refuse(refusal, entry, body)
        return await self._forward(exchange, Call(path, body, passed, beta))

    async def _turn(self, request: str, size: int, most: int) -> Refusal | None:
        """Wait while requests under way may use up the budgets, so that at most one reply exceeds them."""
        while self._budgets.under_way and not self._budgets.fits(size, most):
            self._answered.clear()
            await self._answered.wait()
            if self._ending:
                return Refusal("ending", "it is shutting down", 503, "api_error")
            if refusal := self._budgets.refusal():
                return refusal
        self._budgets.reserve(request, size, most)
        return None

    async def _forward(self, exchange: Exchange, call: Call) -> Response:
        self._meter.requests += 1
        self._journal.write("open", {"path": exchange.path, "id": exchange.id})
        handed_on = False
        try:
            opened = await self._opened(call)
            exchange.entry["attempts"] = opened.attempts
            self._meter.retries += sum(1 for attempt in opened.attempts if "waited_s" in attempt)
            exchange.entry["first_byte_s"] = round(time.monotonic() - exchange.began, 4)
            if opened.streams:
                handed_on = True
                return self._streamed(exchange, opened)
            return self._whole(exchange, opened)
        except asyncio.CancelledError:  # the gateway is shutting down
            exchange.entry |= {"status": 503, "error": "interrupted"}
            return answer(503, ENDING, FINAL)
        finally:
            if not handed_on:
                self._settle(exchange)

    async def _opened(self, call: Call) -> Opened:
        """Return the provider's answer. Raises CancelledError if the gateway shuts down first."""
        waiting = asyncio.create_task(
            patient(
                self._upstream, call, self._config.retry, note=self._failed, left_s=lambda: self._budgets.wall_left_s
            )
        )
        self._waiting.add(waiting)
        waiting.add_done_callback(self._waiting.discard)
        return await waiting

    def _failed(self, code: str) -> None:
        self._meter.errors[code] += 1

    def _whole(self, exchange: Exchange, opened: Opened) -> Response:
        """Answer in one piece, or with the provider's last error."""
        if opened.reply is None:
            lost = opened.lost or UpstreamLost("connect")
            exchange.entry |= {"status": 502, "error": lost.code}
            return answer(502, error_body("api_error", self._redactor.text(lost.told)), FINAL)
        status = opened.reply.status
        exchange.entry["status"] = status
        content = self._redactor.data(opened.first)
        told = _parse(content)
        headers = {name: self._redactor.text(opened.reply.headers[name])
                   for name in RETURNED if name in opened.reply.headers}  # fmt: skip
        if status >= 300:
            exchange.entry |= {"error": str(status), "reply": content[:2000].decode(errors="replace")}
            headers |= FINAL
        elif isinstance(told, dict) and not exchange.counting:
            exchange.answer.whole(told)
        elif isinstance(told, dict):
            exchange.entry["input_tokens"] = told.get("input_tokens")
        return Response(content, status, headers, "application/json")

    def _streamed(self, exchange: Exchange, opened: Opened) -> Response:
        """Answer with events, passed on as they arrive."""
        assert opened.reply is not None
        exchange.entry["status"] = opened.reply.status
        queue: asyncio.Queue[bytes | None] = asyncio.Queue()
        pump = asyncio.create_task(self._pump(exchange, opened, queue))
        self._pumps.add(pump)
        pump.add_done_callback(self._pumps.discard)

        return Streamed(exchange, queue, pump)

    async def _pump(self, exchange: Exchange, opened: Opened, queue: asyncio.Queue[bytes | None]) -> None:
        """Read a stream to its end, also after the agent disconnected."""
        assert opened.reply is not None
        splitter, size = sse.Splitter(), 0

        def take(chunk: bytes) -> None:
            for event in splitter.feed(chunk):
                exchange.answer.feed(sse.parse(event))
                queue.put_nowait(self._redactor.data(event))

        try:
            take(opened.first)
            async for chunk in opened.reply.chunks:
                size += len(chunk)
                if size > LARGEST_REPLY:
                    raise UpstreamLost("too_large", f"over {LARGEST_REPLY} bytes")
                take(chunk)
            if not exchange.answer.complete and not exchange.answer.error:
                raise UpstreamLost("disconnect", "the stream ended before its message")
        except UpstreamLost as lost:
            self._failed(lost.code)
            exchange.entry["error"] = lost.code
            error = error_body("api_error", self._redactor.text(lost.told))["error"]
            queue.put_nowait(sse.render("error", error=error))
        except asyncio.CancelledError:  # the gateway is shutting down
            exchange.entry["error"] = "interrupted"
            queue.put_nowait(sse.render("error", error=ENDING["error"]))
        finally:
            if exchange.answer.error:
                self._failed(exchange.answer.error)
                exchange.entry["error"] = exchange.answer.error
            self._settle(exchange)
            queue.put_nowait(None)
            await opened.reply.close()

    def _settle(self, exchange: Exchange) -> None:
        """Count and journal an exchange, however it ended."""
        entry, told = exchange.entry, exchange.answer
        if not exchange.counting:
            self._budgets.release(exchange.id)
            self._answered.set()
            self._meter.turns += told.complete
            self._meter.failing = "" if told.complete else self._blamed(entry)
        if told.usage:
            entry["tokens"] = self._meter.add(told.usage, told.model)
        if told.content or told.usage:
            entry["response"] = told.record()
        entry |= {"decision": "allowed", "latency_s": round(time.monotonic() - exchange.began, 4)}
        self._budgets.settle()
        self._journal.write("request", entry, None if exchange.counting else exchange.body)
        if self._record and told.complete:
            self._record.add(exchange.body, told)
        self._meter.save()

    def _blamed(self, entry: dict[str, Any]) -> str:
        """Return the provider's failure in an exchange without a message; "" if the request caused it."""
        reply = "".join(str(entry.get("reply", "")).lower().split(" "))
        own = entry.get("error") == "interrupted" or (entry.get("status") in CALLERS and NO_MONEY not in reply)
        return "" if own else str(entry.get("error") or entry.get("status") or "lost")

    async def aclose(self) -> None:
        """End the requests under way; every exchange gets its journal line."""
        self._ending = True
        self._answered.set()
        tasks: list[asyncio.Task[Any]] = [*self._pumps, *self._waiting]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def _finite(text: str) -> float:
    if not math.isfinite(value := float(text)):
        _no_constant(text)
    return value


def _parse(raw: bytes) -> Any:
    """Parse a body as JSON in UTF-8. The provider receives it rewritten from this value, so that both read the same."""
    try:
        return json.loads(raw.decode(), parse_constant=_no_constant, parse_float=_finite)
    except (ValueError, RecursionError) as error:
        return Refusal("body_invalid", f"the body is not JSON: {type(error).__name__}")
