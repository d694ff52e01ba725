"""Calls of a language model: a gateway of the run's own holds the key, counts every call and enforces the budgets.

Its folder, `gateway/` in the run's folder, keeps every request with its answer. A resumed run continues its meter.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from repro import config
from repro.agents.deadline import Deadline
from repro.agents.events import Record
from repro.agents.relay import Relay
from repro.artifacts.layout import BLOCK
from repro.engines import agent_local
from repro.engines.agent import GATEWAY_JSON, METER
from repro.errors import UsageError
from repro.system import jsonio

FOLDER = "gateway"
MOST_TOKENS = 32_000
# How often a reply that cannot be read is asked for again, with the fault named.
AGAIN = 1
UPSTREAMS = ("anthropic", "bedrock")
KEYS = {"anthropic": "ANTHROPIC_API_KEY", "bedrock": "AWS_BEARER_TOKEN_BEDROCK"}
UNREADABLE = "Your reply could not be used: {why}. Reply again, in the form that was asked for."
T = TypeVar("T")


class _Reply(BaseModel):
    model_config = ConfigDict(extra="ignore")


class Evidence(_Reply):
    """A number that supports a cause."""

    metric: str
    value: float | None = None
    interpretation: str = ""


class Cause(_Reply):
    """Why a kernel is slow."""

    cause: str
    evidence: list[Evidence] = []


class Fix(_Reply):
    """What to change."""

    fix: str = Field(min_length=1)
    rationale: str = ""


class Direction(_Reply):
    """One direction of an analysis, in the form of the published strategies."""

    category: str
    summary: str = Field(min_length=1)
    reasoning: str = ""
    root_causes: list[Cause] = []
    recommended_fixes: list[Fix] = Field(min_length=1)

    @property
    def fix(self) -> str:
        """Return the first fix."""
        return self.recommended_fixes[0].fix


class Reflexion(_Reply):
    """What a judged candidate teaches, in the form of the published reflexions."""

    was_diagnosis_correct: bool
    was_fix_effective: bool
    expected_outcome: str = ""
    actual_outcome: str = ""
    reasoning: str = ""
    lessons: list[str]
    avoid_patterns: list[str] = []
    try_patterns: list[str] = []


DIRECTIONS = TypeAdapter(list[Direction])
REFLEXION = TypeAdapter(Reflexion)


class Unreadable(ValueError):
    """A reply is not of the form that was asked for."""


class NoAnswer(Exception):  # noqa: N818 (it ends one question, and is no failure of the run)
    """A question got no usable answer. final: no further one will get any."""

    def __init__(self, outcome: str, why: str, *, final: bool) -> None:
        super().__init__(f"{outcome}: {why}")
        self.final = final


def parsed(text: str, form: TypeAdapter[T]) -> T:
    """Return the JSON of a reply, bare or in a fence. Raises Unreadable."""
    blocks = [*(block.group(1) for block in BLOCK.finditer(text)), text]
    why = "it holds no JSON"
    for block in blocks:
        begin = min((at for mark in "[{" if (at := block.find(mark)) >= 0), default=-1)
        if begin < 0:
            continue
        try:
            value, _ = json.JSONDecoder().raw_decode(block[begin:])
            return form.validate_python(value)
        except ValidationError as error:
            first = error.errors()[0]
            why = f"{'.'.join(map(str, first['loc'])) or 'the value'}: {first['msg']}"
        except ValueError as error:
            why = f"the JSON is malformed: {error}"
    raise Unreadable(why)


def kernel_of(text: str) -> str:
    """Return the one block of code of a reply. Raises Unreadable."""
    blocks = [block.group(1) for block in BLOCK.finditer(text)]
    if len(blocks) != 1:
        raise Unreadable(f"it holds {len(blocks)} blocks of code, and not one")
    return blocks[0]


@dataclass(frozen=True)
class Upstream:
    """Where a gateway sends requests. kind: anthropic, bedrock or replay; script: of a replay."""

    kind: str
    script: Path | None = None
    base_url: str = ""

    @classmethod
    def of(cls, spec: str, base_url: str = "") -> Upstream:
        """Return the upstream of `anthropic`, `bedrock` or `replay:PATH`. Raises UsageError."""
        if spec.startswith("replay:"):
            script = Path(spec.removeprefix("replay:"))
            if not script.is_file():
                raise UsageError(f"no such script: {script}", "--upstream replay:PATH names a file")
            return cls("replay", script)
        if spec not in UPSTREAMS:
            raise UsageError(f"no upstream {spec!r}", f"there are {', '.join(UPSTREAMS)} and replay:PATH")
        return cls(spec, None, base_url)

    def secrets(self) -> dict[str, str]:
        """Return the key of the provider by its name; a script needs none."""
        name = KEYS.get(self.kind)
        return {name: config.secret(name)} if name else {}


class _Log(Record):
    """Collects the attempts of one call instead of writing them to a file."""

    def __init__(self) -> None:
        self.lines: list[dict[str, Any]] = []

    def add(self, kind: str, **fields: Any) -> None:
        """Keep one line."""
        self.lines.append(fields)


@dataclass
class Calls:
    """The model of one run. It starts its gateway at the first question.

    run: folder of the run. usd, tokens: budgets, None without a limit. lines: a record of each call since `take`.
    """

    run: Path
    model: str
    upstream: Upstream
    usd: float | None = None
    tokens: int | None = None
    retry: dict[str, Any] = field(default_factory=dict)
    lines: list[dict[str, Any]] = field(default_factory=list)
    _process: subprocess.Popen[bytes] | None = None
    _sockets: Path | None = None
    _relay: Relay | None = None

    @property
    def spent(self) -> dict[str, float]:
        """Return the money and the tokens that the gateway has counted."""
        file = self.run / FOLDER / METER
        meter = json.loads(file.read_text()) if file.exists() else {}
        tokens = sum(n for kind, n in meter.get("tokens", {}).items() if kind != "cache_read")
        return {"usd": round(meter.get("usd") or 0.0, 6), "tokens": float(tokens)}

    def take(self) -> list[dict[str, Any]]:
        """Return the calls since the last time."""
        found, self.lines = self.lines, []
        return found

    def ask(self, purpose: str, prompt: str, read: Callable[[str], T]) -> tuple[T, str]:
        """Ask; return (what `read` makes of the reply, the reply). Every call becomes a line. Raises NoAnswer.

        A reply that cannot be read, is empty or was cut off is asked for AGAIN times, with the fault named.
        """
        messages: list[dict[str, Any]] = [{"role": "user", "content": prompt}]
        for left in range(AGAIN, -1, -1):
            line, text, stop = self._call(purpose, messages)
            try:
                if stop == "refusal":
                    line["outcome"], line["detail"] = "refused", text[:300] or "the model refused"
                    raise NoAnswer("refused", line["detail"], final=False)
                if not text.strip():
                    line["outcome"] = "empty"
                    raise Unreadable("it is empty")
                if stop == "max_tokens":
                    line["outcome"] = "truncated"
                    raise Unreadable(f"it was cut off at {MOST_TOKENS} tokens, so be brief")
                line["outcome"] = "malformed"
                value = read(text)
                line["outcome"] = "ok"
                return value, text
            except Unreadable as error:
                line["detail"] = str(error)
                if not left:
                    raise NoAnswer(line["outcome"], str(error), final=False) from None
                said = text if text.strip() else "(nothing)"
                messages += [{"role": "assistant", "content": said.rstrip()},
                             {"role": "user", "content": UNREADABLE.format(why=error)}]  # fmt: skip
        raise AssertionError("unreachable")

    def _call(self, purpose: str, messages: list[dict[str, Any]]) -> tuple[dict[str, Any], str, str]:
        """Make one call; return its line, the text and the stop reason. Raises NoAnswer."""
        from repro.agents.sdk_provider import ContextFull, Failed, Provider

        request = {"model": self.model, "max_tokens": MOST_TOKENS, "messages": messages}
        line: dict[str, Any] = {"purpose": purpose, "request_sha256": canonical(request), "model": self.model}
        self.lines.append(line)
        log = _Log()
        provider = Provider(self._url(), Deadline(None), log)
        begin = time.monotonic()
        try:
            message = provider.ask(request)
        except Failed as failed:
            ending = failed.ending
            line |= {"outcome": ending.status, "detail": ending.detail, "attempts": log.lines}
            raise NoAnswer(ending.status, ending.detail, final=True) from None
        except ContextFull as error:
            line |= {"outcome": "too_long", "detail": str(error), "attempts": log.lines}
            raise NoAnswer("too_long", "the request is too long for the model", final=False) from None
        finally:
            provider.client.close()
            line["wall_s"] = round(time.monotonic() - begin, 3)
        text = "".join(block.get("text", "") for block in message["content"] if block["type"] == "text")
        line |= {"model_seen": message.get("model", ""), "stop_reason": message["stop_reason"], "reply": text,
                 "usage": message.get("usage") or {}, "attempts": log.lines}  # fmt: skip
        return line, text, message["stop_reason"]

    def gateway(self, budgets: dict[str, Any]) -> dict[str, Any]:
        """Return a gateway's configuration, without its paths."""
        upstream = {"kind": self.upstream.kind, "base_url": self.upstream.base_url}
        if self.upstream.kind == "bedrock":
            upstream["region"] = config.region()
        return {"schema_version": 1, "job": "optimize", "arm": "baseline", "model": self.model, "upstream": upstream,
                "budgets": budgets}  # fmt: skip

    def _url(self) -> str:
        """Return the address of the gateway; start it if it does not run. Raises EngineError, PrerequisiteError."""
        if self._relay is not None and self._process is not None and self._process.poll() is None:
            return self._relay.url
        self.close()
        folder = self.run / FOLDER
        folder.mkdir(parents=True, exist_ok=True)
        self._sockets = Path(tempfile.mkdtemp(prefix="repro-gw-"))  # a socket's path may have 107 bytes
        told = self.gateway({"usd": self.usd, "tokens": self.tokens}) | {
            "socket": str(self._sockets / "gw.sock"), "journal": str(folder.resolve()), "retry": self.retry,
        }  # fmt: skip
        if self.upstream.script is not None:
            told["upstream"]["script"] = str(self.upstream.script.resolve())
        jsonio.write(self._sockets / GATEWAY_JSON, told)
        self._process = agent_local.start("gateway", self._sockets, config.job_env({}), stdin=subprocess.PIPE)
        agent_local.greet(self._process, self._sockets, self.upstream.secrets(), threading.Event())
        self._relay = Relay(0, str(self._sockets / "gw.sock"))
        self._relay.start()
        return self._relay.url

    def close(self) -> None:
        """End the gateway, and remove its socket."""
        if self._relay is not None:
            self._relay.close()
        if self._process is not None:
            agent_local.end(self._process)
        if self._sockets is not None:
            shutil.rmtree(self._sockets, ignore_errors=True)
        self._relay = self._process = self._sockets = None


def canonical(request: dict[str, Any]) -> str:
    """Return the SHA-256 of a request in one spelling: its keys in order, without white space."""
    text = json.dumps(request, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()
