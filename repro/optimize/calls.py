"""Calls of a language model by Inspect: any provider, its retries, what a call costs, and the budgets of the run.

The journal keeps every reply. `model.json` in the run's folder holds what was spent, and a resumed run continues it.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from repro.artifacts.layout import BLOCK
from repro.studies.agent import prices
from repro.system import foreign, jsonio
from repro.system.digest import sha256
from repro.system.jsonio import Json

if TYPE_CHECKING:
    from inspect_ai.model import Model

METER = "model.json"
MOST_TOKENS = 32_000
# How often a reply that cannot be read is asked for again, with the fault named.
AGAIN = 1
UNREADABLE = "Your reply could not be used: {why}. Reply again, in the form that was asked for."
T = TypeVar("T")


class _Reply(BaseModel):
    """What is read of a reply in the form of the published files; the rest is kept as it came."""

    model_config = ConfigDict(extra="allow")


class Fix(_Reply):
    """What to change."""

    fix: str = Field(min_length=1)


class Direction(_Reply):
    """One direction of an analysis."""

    category: str
    summary: str = Field(min_length=1)
    reasoning: str = ""
    recommended_fixes: list[Fix] = Field(min_length=1)

    @property
    def fix(self) -> str:
        """Return the first fix."""
        return self.recommended_fixes[0].fix


class Reflexion(_Reply):
    """What a judged candidate teaches."""

    was_diagnosis_correct: bool
    was_fix_effective: bool
    lessons: list[str]


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


@dataclass
class Calls:
    """The model of one run, opened at the first question.

    run: folder of the run. upstream: see Design. script: of a replay. usd: the budget, None without a limit. lines: a
    record of each call since `take`.
    """

    run: Path
    model: str
    upstream: str
    script: Path | None = None
    usd: float | None = None
    lines: list[Json] = field(default_factory=list)
    _opened: Model | None = None

    def __post_init__(self) -> None:
        self._rates = prices.of_model(self.model)

    @property
    def spent(self) -> dict[str, float]:
        """Return the money and the tokens of every call of the run, reads from the prompt cache left out."""
        file = self.run / METER
        known: dict[str, float] = json.loads(file.read_text()) if file.exists() else {"usd": 0.0, "tokens": 0.0}
        return known

    def take(self) -> list[Json]:
        """Return the calls since the last time."""
        found, self.lines = self.lines, []
        return found

    def ask(self, purpose: str, prompt: str, read: Callable[[str], T]) -> tuple[T, str]:
        """Ask; return (what `read` makes of the reply, the reply). Every call becomes a line. Raises NoAnswer.

        A reply that cannot be read, is empty or was cut off is asked for AGAIN times, with the fault named.
        """
        messages = [{"role": "user", "content": prompt}]
        for left in range(AGAIN, -1, -1):
            line, text, stop = self._call(purpose, messages)
            try:
                if stop == "content_filter":
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

    def _call(self, purpose: str, messages: list[dict[str, str]]) -> tuple[Json, str, str]:
        """Make one call; return its line, the text and the stop reason. Raises NoAnswer."""
        from repro.agents import models
        from repro.agents.replay import Script

        request = {"model": self.model, "max_tokens": MOST_TOKENS, "messages": messages}
        line: Json = {"purpose": purpose, "request_sha256": canonical(request), "model": self.model}
        self.lines.append(line)
        spent = self.spent
        if self.usd is not None and spent["usd"] >= self.usd:
            line |= {"outcome": "budget", "detail": f"the budget of {self.usd:g} usd is used up"}
            raise NoAnswer("budget", line["detail"], final=True)
        if self._opened is None:
            self._opened = models.opened(self.upstream, self.model, self._rates)
        script = Script.read(foreign.read(self.script)) if self.script is not None else None
        begin = time.monotonic()
        reply = models.ask(self._opened, messages, script)
        line["wall_s"] = round(time.monotonic() - begin, 3)
        if reply.error:
            line |= {"outcome": "provider_error", "detail": reply.error}
            raise NoAnswer("provider_error", reply.error, final=True)
        usd = models.price(self._rates, reply.tokens) or 0.0
        fresh = sum(count for kind, count in reply.tokens.items() if kind != "cache_read")
        jsonio.write(self.run / METER, {"usd": round(spent["usd"] + usd, 6), "tokens": spent["tokens"] + float(fresh)})
        line |= {"model_seen": reply.model, "stop_reason": reply.stop, "reply": reply.text, "usage": reply.tokens}
        return line, reply.text, reply.stop


def canonical(request: Json) -> str:
    """Return the SHA-256 of a request in one spelling: its keys in order, without white space."""
    return sha256(json.dumps(request, sort_keys=True, separators=(",", ":"), ensure_ascii=False))
