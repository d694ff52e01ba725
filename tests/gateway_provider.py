"""A provider of messages on a loopback port, for tests of the real way out: `python gateway_provider.py STEPS`.

STEPS is a JSON list, one step a request, the last one repeated: {"content", "usage"} is a message, as JSON or events as
asked for; {"status", "headers", "error"} an error; "cut" breaks the connection after N events (0: before the
headers); "pause_s" waits between events; "events" are sent in place of its own. GET / tells the requests seen:
path, headers and body. It prints its port.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from repro.gateway import sse  # noqa: E402

STEPS: list[dict[str, Any]] = json.loads(Path(sys.argv[1]).read_text())
SEEN: list[dict[str, Any]] = []
LOCK = threading.Lock()


class Provider(BaseHTTPRequestHandler):
    """One connection."""

    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: object) -> None:
        """Says nothing."""

    def do_GET(self) -> None:
        self._json(200, {"seen": SEEN}, {})

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        with LOCK:
            step = STEPS[min(len(SEEN), len(STEPS) - 1)]
            SEEN.append({"path": self.path, "headers": {k.lower(): v for k, v in self.headers.items()}, "body": body})
        if step.get("cut") == 0:
            self.close_connection = True
            return
        if "status" in step:
            error = {"type": "error", "error": {"type": "x", "message": step.get("error", "no")}}
            self._json(step["status"], error, step.get("headers", {}))
            return
        if "count_tokens" in self.path:
            self._json(200, {"input_tokens": 7}, {})
            return
        message = {
            "id": "msg_1", "type": "message", "role": "assistant", "model": body["model"], "content": step["content"],
            "stop_reason": step.get("stop_reason", "end_turn"), "stop_sequence": None,
            "usage": {"input_tokens": 10, "output_tokens": 5} | step.get("usage", {}),
        }  # fmt: skip
        if body.get("stream"):
            self._events(message, step)
        else:
            self._json(200, message, {"request-id": "req_1"}, cut="cut" in step)

    def _events(self, message: dict[str, Any], step: dict[str, Any]) -> None:
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("transfer-encoding", "chunked")
        self.end_headers()
        events = list(sse.events(message))
        if "events" in step:
            events = [sse.render(event.pop("type"), **event) for event in step["events"]]
        for index, event in enumerate(events):
            if index == step.get("cut"):
                self.close_connection = True
                return
            self.wfile.write(b"%x\r\n%s\r\n" % (len(event), event))
            self.wfile.flush()
            time.sleep(step.get("pause_s", 0))
        self.wfile.write(b"0\r\n\r\n")

    def _json(self, status: int, body: dict[str, Any], headers: dict[str, str], *, cut: bool = False) -> None:
        text = json.dumps(body).encode()
        self.send_response(status)
        for name, value in {"content-type": "application/json", "content-length": str(len(text)), **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(text[: len(text) // 2] if cut else text)
        if cut:
            self.close_connection = True


if __name__ == "__main__":
    server = ThreadingHTTPServer(("127.0.0.1", 0), Provider)
    print(server.server_port, flush=True)
    server.serve_forever()
