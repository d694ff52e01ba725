"""A gateway as its own process on a real socket, for tests: its configuration, its client, and what it leaves."""

from __future__ import annotations

import contextlib
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anthropic
import httpx2

ROOT = Path(__file__).resolve().parent.parent
MODEL = "claude-opus-5"
KEY = "sk-ant-planted/key+0123456789=="
KB_TOOLS = (
    "search_knowledge build_plan review_plan verify_code_math diagnose_failure propose_hypothesis "
    "query_hyperparameter_priors get_page"
).split()
BASH = {"type": "bash_20250124", "name": "bash"}
HI = [{"role": "user", "content": "hello"}]
QUICK = {"attempts": 2, "base_s": 0.02, "longest_s": 0.1, "total_s": 20}


def custom(name: str, **more: Any) -> dict[str, Any]:
    """A tool that the client runs."""
    return {"name": name, "description": "a tool", "input_schema": {"type": "object"}, **more}


KB = [custom(f"mcp__kb__{name}") for name in KB_TOOLS]


def says(text: str, **more: Any) -> dict[str, Any]:
    """A line of a script: the model answers with a text."""
    return {"content": [{"type": "text", "text": text}], **more}


class Job:
    """One gateway: started when entered, ended with SIGTERM when left."""

    def __init__(
        self,
        lines: list[dict[str, Any]] | None = None,
        *,
        keys: dict[str, str] | None = None,
        env: dict[str, str] | None = None,
        **told: Any,
    ) -> None:
        # a socket's path may have 107 bytes, fewer than pytest's folders
        self.folder = Path(tempfile.mkdtemp(prefix="gw-", dir="/tmp"))
        self.socket = self.folder / "sock" / "gw.sock"
        self.journal_dir = self.folder / "journal"
        self.keys, self.env = keys or {}, env or {}
        config = {
            "schema_version": 1, "job": "c1", "arm": "baseline", "model": MODEL, "socket": "sock/gw.sock",
            "journal": "journal", "upstream": {"kind": "replay", "script": "replay.jsonl"},
            "knowledge": {"kind": "none"}, "budgets": {}, "retry": QUICK,
        } | told  # fmt: skip
        (self.folder / "gateway.json").write_text(json.dumps(config))
        self.script(lines or [says("hello")])
        self.process: subprocess.Popen[str] | None = None
        self.out = self.err = ""

    def script(self, lines: list[dict[str, Any]]) -> None:
        """What the replay answers."""
        (self.folder / "replay.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))

    def start(self) -> subprocess.Popen[str]:
        """Starts the process and sends the keys."""
        clean = {
            k: v for k, v in os.environ.items() if "KEY" not in k and "TOKEN" not in k and "proxy" not in k.lower()
        }
        self.process = subprocess.Popen(
            [sys.executable, "-W", "error", "-m", "repro.gateway", str(self.folder)], cwd=ROOT, text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=clean | self.env,
        )  # fmt: skip
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(self.keys) + "\n")
        self.process.stdin.flush()
        return self.process

    def __enter__(self) -> Job:
        process = self.start()
        assert process.stdout is not None
        ready = select.select([process.stdout], [], [], 60)[0]
        line = process.stdout.readline() if ready else ""
        if line != "ready\n":
            process.kill()
            self.out, self.err = process.communicate()
            raise AssertionError(f"the gateway did not start: {line}{self.err}")
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self.end()
        finally:
            shutil.rmtree(self.folder, ignore_errors=True)

    def end(self, number: int = signal.SIGTERM) -> int:
        """Ends the process; its exit code. What it printed is in out and err."""
        assert self.process is not None
        if self.process.poll() is None:
            self.process.send_signal(number)
            self.out, self.err = self.process.communicate(timeout=30)
        return self.process.returncode

    @contextlib.contextmanager
    def client(self, **more: Any) -> Iterator[anthropic.Anthropic]:
        """The SDK over the socket; without retries of its own unless told otherwise."""
        transport = httpx2.HTTPTransport(uds=str(self.socket))
        with (
            httpx2.Client(transport=transport, timeout=60) as http,
            anthropic.Anthropic(
                api_key="repro-c1", base_url="http://gateway", http_client=http, **{"max_retries": 0} | more
            ) as client,
        ):
            yield client

    def http(self) -> httpx2.Client:
        """Plain HTTP over the socket."""
        transport = httpx2.HTTPTransport(uds=str(self.socket))
        return httpx2.Client(transport=transport, base_url="http://gateway", timeout=60)

    def post(self, path: str = "/v1/messages", by: httpx2.Client | None = None, **body: Any) -> httpx2.Response:
        """One request with a body like an agent's, changed as told; a field told as None is left out. by: a client that
        is there already."""
        whole = {"model": MODEL, "max_tokens": 100, "messages": HI} | body
        with contextlib.nullcontext(by) if by is not None else self.http() as http:
            return http.post(path, json={k: v for k, v in whole.items() if v is not None})

    def lines(self, kind: str = "") -> list[dict[str, Any]]:
        """The journal."""
        text = (self.journal_dir / "journal.jsonl").read_text()
        found = [json.loads(line) for line in text.splitlines()]
        return [line for line in found if kind in ("", line["kind"])]

    def meter(self) -> dict[str, Any]:
        """meter.json."""
        found: dict[str, Any] = json.loads((self.journal_dir / "meter.json").read_text())
        return found

    def settled(self, **wanted: Any) -> dict[str, Any]:
        """The meter, as soon as it holds these values: it is written after an answer's last byte."""
        end = time.monotonic() + 20
        while not wanted.items() <= (meter := self.meter()).items():
            assert time.monotonic() < end, meter
            time.sleep(0.02)
        return meter


@contextlib.contextmanager
def chained(lines: list[dict[str, Any]], *, key: str = KEY, **told: Any) -> Iterator[tuple[Job, str]]:
    """A gateway in replay mode behind a loopback port, as the provider of another one; yields the job and the URL."""
    relay = Path(__file__).with_name("gateway_provider.py")
    script = Path(tempfile.mkdtemp(prefix="gw-")) / "script.json"
    script.write_text(json.dumps(lines))
    process = subprocess.Popen([sys.executable, str(relay), str(script)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    port = int(process.stdout.readline())
    url = f"http://127.0.0.1:{port}"
    upstream = {"kind": "anthropic", "base_url": url} | told.pop("upstream", {})
    try:
        with Job(keys=told.pop("keys", {"ANTHROPIC_API_KEY": key}), upstream=upstream, **told) as job:
            yield job, url
    finally:
        process.kill()
        process.communicate()
        shutil.rmtree(script.parent)
