"""The configuration of a gateway: gateway.json, which holds no secret, and one line of keys on its standard input."""

from __future__ import annotations

import json
import select
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

from repro.errors import PrerequisiteError, UsageError
from repro.gateway import prices
from repro.gateway.budgets import NAMES

FILE = "gateway.json"
SCHEMA_VERSION = 1
ARMS = ("baseline", "with_kb", "placebo")
UPSTREAMS = ("anthropic", "bedrock", "replay")
KNOWLEDGE = ("none", "local", "placebo", "leeroopedia")
SECRETS = ("ANTHROPIC_API_KEY", "AWS_BEARER_TOKEN_BEDROCK", "LEEROOPEDIA_API_KEY")
SECRETS_WAIT_S, SECRETS_BYTES = 60.0, 65536
# Name and version of the published knowledge server's package, and its tools in order.
REMOTE = ("leeroopedia-mcp", "0.1.9")
KB_TOOLS = (
    "search_knowledge", "build_plan", "review_plan", "verify_code_math", "diagnose_failure", "propose_hypothesis",
    "query_hyperparameter_priors", "get_page",
)  # fmt: skip


@dataclass(frozen=True)
class Retry:
    """How often and how long a provider is retried before the agent receives a byte, s."""

    attempts: int = 8
    base_s: float = 0.5
    longest_s: float = 60.0
    total_s: float = 300.0


@dataclass(frozen=True)
class UpstreamSpec:
    """Where requests go. script, mode: of a replay. record: write a script of the replies."""

    kind: str
    base_url: str = ""
    region: str = "us-east-1"
    script: Path = Path("replay.jsonl")
    mode: str = "script"
    record: bool = False


@dataclass(frozen=True)
class KnowledgeSpec:
    """The knowledge base behind /mcp. url: of the remote server, "" for its default. timeout_s: of a call."""

    kind: str = "none"
    url: str = ""
    timeout_s: float = 0.0


@dataclass(frozen=True)
class Config:
    """The checked contents of gateway.json. max_tokens: most tokens of one reply."""

    job: str
    arm: str
    model: str
    socket: Path
    journal: Path
    upstream: UpstreamSpec
    knowledge: KnowledgeSpec
    budgets: dict[str, float | None]
    prices: dict[str, Any]
    expect_tools: tuple[str, ...]
    max_tokens: int = 64000
    retry: Retry = field(default_factory=Retry)

    @property
    def rates(self) -> dict[str, float] | None:
        """Return USD for a million tokens by class, or None for a model without a known price."""
        return prices.rates(self.prices, self.model)


def _wrong(why: str) -> UsageError:
    return UsageError(f"{FILE} is wrong", why, "The study writes this file; its fields are described in repro/gateway.")


def _part(told: dict[str, Any], name: str, known: tuple[str, ...]) -> dict[str, Any]:
    part = told.get(name) or {}
    if not isinstance(part, dict):
        raise _wrong(f"{name} is not an object")
    if unknown := sorted(set(part) - set(known)):
        raise _wrong(f"{name} has unknown fields: {', '.join(unknown)}")
    return part


def _one_of(value: Any, names: tuple[str, ...], what: str) -> str:
    if value not in names:
        raise _wrong(f"{what} is {value!r}, not one of {', '.join(names)}")
    return str(value)


def _limit(name: str, value: Any) -> float | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not value >= 0:
        raise _wrong(f"the budget {name} is {value!r}; it must be a number from 0 on, or null")
    return float(value) if name in ("wall_s", "usd") else int(value)


KNOWN = (
    "schema_version", "job", "arm", "model", "socket", "journal", "upstream", "knowledge", "budgets", "prices",
    "expect_tools", "max_tokens", "retry",
)  # fmt: skip


def read(folder: Path) -> Config:
    """Return the configuration of a folder. Raises UsageError."""
    path = folder / FILE
    try:
        told = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise UsageError(f"{path} cannot be read", str(error), "`repro gateway` takes the folder of one job.") from None
    if not isinstance(told, dict) or told.get("schema_version") != SCHEMA_VERSION:
        raise _wrong(f"schema_version is not {SCHEMA_VERSION}")
    if unknown := sorted(set(told) - set(KNOWN)):
        raise _wrong(f"unknown fields: {', '.join(unknown)}")
    for name in ("job", "model", "socket", "journal"):
        if not isinstance(told.get(name), str) or not told[name]:
            raise _wrong(f"{name} is missing")
    limits = _part(told, "budgets", NAMES)
    return Config(
        job=told["job"],
        arm=_one_of(told.get("arm"), ARMS, "arm"),
        model=told["model"],
        socket=folder / told["socket"],
        journal=folder / told["journal"],
        upstream=_upstream(told, folder),
        knowledge=(knowledge := _knowledge(told)),
        budgets={name: _limit(name, limits.get(name)) for name in NAMES},
        prices=prices.checked(told["prices"], FILE) if told.get("prices") else prices.load(),
        expect_tools=_expected(told, knowledge),
        max_tokens=int(_limit("max_tokens", told.get("max_tokens")) or Config.max_tokens),
        retry=Retry(**_part(told, "retry", ("attempts", "base_s", "longest_s", "total_s"))),
    )


def _upstream(told: dict[str, Any], folder: Path) -> UpstreamSpec:
    part = _part(told, "upstream", ("kind", "base_url", "region", "script", "mode", "record"))
    return UpstreamSpec(
        kind=_one_of(part.get("kind"), UPSTREAMS, "upstream.kind"),
        base_url=part.get("base_url") or "",
        region=part.get("region") or UpstreamSpec.region,
        script=folder / (part.get("script") or UpstreamSpec.script),
        mode=_one_of(part.get("mode") or "script", ("script", "strict"), "upstream.mode"),
        record=bool(part.get("record")),
    )


def _knowledge(told: dict[str, Any]) -> KnowledgeSpec:
    part = _part(told, "knowledge", ("kind", "url", "timeout_s"))
    kind = _one_of(part.get("kind") or "none", KNOWLEDGE, "knowledge.kind")
    if (told["arm"] == "baseline") != (kind == "none"):
        raise _wrong(f"the arm {told['arm']} cannot have knowledge {kind!r}")
    # the remote server works up to 300 s on one call
    timeout_s = float(part.get("timeout_s") or (330 if kind == "leeroopedia" else 20))
    return KnowledgeSpec(kind, part.get("url") or "", timeout_s)


def _expected(told: dict[str, Any], knowledge: KnowledgeSpec) -> tuple[str, ...]:
    names = told.get("expect_tools")
    if names is None:
        return () if knowledge.kind == "none" else KB_TOOLS
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise _wrong("expect_tools is not a list of names")
    return tuple(names)


def secrets(stream: BinaryIO, wait_s: float = SECRETS_WAIT_S) -> dict[str, str]:
    """Return the keys from the first line of a stream. Raises UsageError, which never quotes the line."""
    remedy = f"Send one line of JSON, {{}} or some of {', '.join(SECRETS)}."
    if not select.select([stream], [], [], wait_s)[0]:
        raise UsageError("no keys came on standard input", f"nothing for {wait_s:g} s", remedy)
    try:
        told = json.loads(stream.readline(SECRETS_BYTES) or b"{}")
    except ValueError:
        told = None
    if not isinstance(told, dict) or not all(isinstance(value, str) for value in told.values()):
        raise UsageError(
            "the keys on standard input cannot be read", "the line is not a JSON object of strings", remedy
        )
    if unknown := sorted(set(told) - set(SECRETS)):
        raise UsageError("standard input names unknown keys", f"{len(unknown)} of them", remedy)
    return {name: value.strip() for name, value in told.items() if value.strip()}


def needed(config: Config, keys: dict[str, str]) -> None:
    """Check that a job's keys and prices exist, before money is spent. Raises PrerequisiteError."""
    wanted = {"anthropic": "ANTHROPIC_API_KEY", "bedrock": "AWS_BEARER_TOKEN_BEDROCK"}.get(config.upstream.kind)
    if wanted and wanted not in keys:
        raise PrerequisiteError(
            f"the upstream {config.upstream.kind} needs {wanted}", "no such key came on standard input",
            "Set it where the study runs.",
        )  # fmt: skip
    if config.knowledge.kind == "leeroopedia" and "LEEROOPEDIA_API_KEY" not in keys:
        raise PrerequisiteError(
            "the knowledge base leeroopedia needs LEEROOPEDIA_API_KEY", "no such key came on standard input",
            "Set it where the study runs, or choose --kb local.",
        )  # fmt: skip
    if config.budgets["usd"] is not None and config.rates is None:
        raise PrerequisiteError(
            f"no money budget can be kept for {config.model}", "its price is not in the table",
            "Give a table with --prices FILE, or set no money budget.",
        )  # fmt: skip
