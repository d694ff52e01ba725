"""A provider that answers from a script, for tests, demonstrations and work without a key."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

from repro.gateway import sse
from repro.gateway.refusal import Refusal, error_body
from repro.gateway.upstreams import script
from repro.gateway.upstreams.base import Call, Reply, UpstreamLost

BYTES_A_TOKEN = 4
KINDS = {429: "rate_limit_error", 529: "overloaded_error", 401: "authentication_error", 400: "invalid_request_error"}


def estimate(value: Any) -> int:
    """Return an estimate of the tokens of a text: a quarter of its bytes."""
    return max(1, len(json.dumps(value).encode()) // BYTES_A_TOKEN)


def _plain(status: int, body: dict[str, Any], headers: dict[str, str] | None = None) -> Reply:
    async def chunks() -> AsyncIterator[bytes]:
        yield json.dumps(body).encode()

    return Reply(status, {"content-type": "application/json"} | (headers or {}), chunks())


def _refused(refusal: Refusal) -> Reply:
    return _plain(refusal.status, refusal.body(), {"x-should-retry": "false"})


class Replay:
    """One script. Its failures are used up as they occur; a gateway that starts again starts them again.

    mode: `script` selects answers by turn; `strict` also requires the messages of the recording.
    """

    def __init__(self, path: Path, mode: str) -> None:
        self._answers, self._mode = script.load(path), mode
        self._sent = 0

    async def aclose(self) -> None:
        """Do nothing: there is nothing to release."""

    async def send(self, call: Call) -> Reply:
        """See Upstream.send."""
        if call.path != "/v1/messages":
            return _plain(200, {"input_tokens": estimate([call.body.get(n) for n in ("system", "tools", "messages")])})
        found = self._find(call.body)
        if isinstance(found, Refusal):
            return _refused(found)
        cut: int | None = None
        for fault in found.faults:
            if fault.times <= 0 or cut is not None:
                continue
            fault.times -= 1
            if fault.kind == "delay_s":
                await asyncio.sleep(float(fault.value))
            elif fault.kind == "disconnect_after":
                cut = int(fault.value)
            else:
                return self._failed(fault.value)
        if not found.content and cut is None:
            return _refused(Refusal("replay_ended", f"the script ends before turn {found.turn}"))
        return self._answer(found, call, cut)

    def _failed(self, error: dict[str, Any]) -> Reply:
        status, after = int(error["status"]), error.get("retry_after")
        kind = error.get("type") or KINDS.get(status, "api_error" if status >= 500 else "invalid_request_error")
        headers = {} if after is None else {"retry-after": str(after)}
        return _plain(status, error_body(kind, error.get("message") or f"scripted error {status}"), headers)

    def _find(self, body: dict[str, Any]) -> script.Answer | Refusal:
        at = script.turn(body)
        lines = [answer for answer in self._answers if answer.turn == at]
        if not lines:
            return Refusal("replay_ended", f"the script has no answer for turn {at}")
        last = json.dumps(body["messages"][-1], ensure_ascii=False) if body.get("messages") else ""
        fitting = [a for a in lines if json.dumps(a.match.get("contains", ""), ensure_ascii=False)[1:-1] in last]
        if not fitting:
            wanted = " | ".join(str(answer.match.get("contains")) for answer in lines)
            return Refusal("replay_mismatch", f"turn {at}: the last message does not contain: {wanted}")
        if self._mode == "strict":
            got = script.key(body)
            equal = [answer for answer in fitting if answer.match.get("sha256") == got["sha256"]]
            if not equal:
                detail = f"turn {at} differs from the recording:\n{script.difference(fitting[0].match, got)}"
                return Refusal("replay_mismatch", detail)
            fitting = equal
        return fitting[0]

    def _answer(self, answer: script.Answer, call: Call, cut: int | None) -> Reply:
        self._sent += 1
        content = [
            block | {"id": block.get("id") or f"toolu_replay_{answer.line}_{index}"}
            if block.get("type") == "tool_use" else block
            for index, block in enumerate(answer.content)
        ]  # fmt: skip
        usage = {
            "input_tokens": estimate(call.body.get("messages")), "cache_creation_input_tokens": 0,
            "cache_read_input_tokens": 0, "output_tokens": estimate(content),
        } | answer.usage  # fmt: skip
        message = {
            "id": f"msg_replay_{self._sent:04d}", "type": "message", "role": "assistant", "model": call.body["model"],
            "content": content, "stop_reason": answer.stop_reason, "stop_sequence": None, "usage": usage,
        }  # fmt: skip
        if call.streams:
            return Reply(200, {"content-type": "text/event-stream"}, _streamed(sse.events(message), cut))
        if cut is not None:
            return Reply(200, {"content-type": "application/json"}, _streamed(iter([b"{"]), 1))
        return _plain(200, message)


async def _streamed(events: Iterator[bytes], cut: int | None) -> AsyncIterator[bytes]:
    for index, event in enumerate(events):
        if index == cut:
            break
        yield event
        await asyncio.sleep(0)
    if cut is not None:
        raise UpstreamLost("disconnect", "scripted")
