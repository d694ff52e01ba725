"""The configuration of a gateway: gateway.json, which holds no secret, and one line of keys on its standard input."""

from __future__ import annotations

import json
import select
from pathlib import Path
from typing import Annotated, Any, BinaryIO, Literal, Self, cast

from pydantic import AfterValidator, Field, ValidationError, ValidationInfo, model_validator

from repro.errors import PrerequisiteError, UsageError
from repro.gateway import prices
from repro.gateway.budgets import NAMES
from repro.records.base import Record, Text, faults

FILE = "gateway.json"
SECRETS = ("ANTHROPIC_API_KEY", "AWS_BEARER_TOKEN_BEDROCK", "LEEROOPEDIA_API_KEY")
SECRETS_WAIT_S, SECRETS_BYTES = 60.0, 65536
# Name and version of the published knowledge server's package, and its tools in order.
REMOTE = ("leeroopedia-mcp", "0.1.9")
KB_TOOLS = (
    "search_knowledge", "build_plan", "review_plan", "verify_code_math", "diagnose_failure", "propose_hypothesis",
    "query_hyperparameter_priors", "get_page",
)  # fmt: skip


def _below(path: Path, info: ValidationInfo) -> Path:
    return cast(Path, info.context) / path


def _every(limits: dict[str, float | None]) -> dict[str, float | None]:
    if unknown := sorted(set(limits) - set(NAMES)):
        raise ValueError(f"no budget is called {', '.join(unknown)}; there are {', '.join(NAMES)}")
    return dict.fromkeys(NAMES) | limits


def _priced(table: dict[str, Any]) -> dict[str, Any]:
    return prices.checked(table, FILE) if table else prices.load()


Below = Annotated[Path, AfterValidator(_below), Field(strict=False)]
Limit = Annotated[float, Field(ge=0)] | None


class Retry(Record):
    """How often and how long a provider is retried before the agent receives a byte, s."""

    attempts: int = 8
    base_s: float = 0.5
    longest_s: float = 60.0
    total_s: float = 300.0


class UpstreamSpec(Record):
    """Where requests go. script, mode: of a replay. record: write a script of the replies."""

    kind: Literal["anthropic", "bedrock", "replay"]
    base_url: str = ""
    region: str = "us-east-1"
    script: Below = Field("replay.jsonl", validate_default=True)
    mode: Literal["script", "strict"] = "script"
    record: bool = False


class KnowledgeSpec(Record):
    """The knowledge base behind /mcp. url: of the remote server, "" for its default. timeout_s: of a call."""

    kind: Literal["none", "local", "placebo", "leeroopedia"] = "none"
    url: str = ""
    timeout_s: float | None = None

    @property
    def call_s(self) -> float:
        """Return the limit of one call, s."""
        # the remote server works up to 300 s on one call
        return self.timeout_s or (330.0 if self.kind == "leeroopedia" else 20.0)


class Config(Record):
    """The contents of gateway.json, whose paths are relative to its folder. max_tokens: most tokens of one reply."""

    schema_version: Literal[1]
    job: Text
    arm: Literal["baseline", "with_kb", "placebo"]
    model: Text
    socket: Below
    journal: Below
    upstream: UpstreamSpec
    knowledge: KnowledgeSpec = KnowledgeSpec()
    budgets: Annotated[dict[str, Limit], AfterValidator(_every), Field(validate_default=True)] = {}
    prices: Annotated[dict[str, Any], AfterValidator(_priced), Field(validate_default=True)] = {}
    expect_tools: tuple[str, ...] | None = None
    max_tokens: int = Field(64000, ge=1)
    retry: Retry = Retry()

    @model_validator(mode="after")
    def _knowledge_of_the_arm(self) -> Self:
        if (self.arm == "baseline") != (self.knowledge.kind == "none"):
            raise ValueError(f"the arm {self.arm} cannot have knowledge {self.knowledge.kind!r}")
        return self

    @property
    def shown_tools(self) -> tuple[str, ...]:
        """Return the names of the tools that the model must be shown."""
        known = () if self.knowledge.kind == "none" else KB_TOOLS
        return known if self.expect_tools is None else self.expect_tools

    @property
    def rates(self) -> dict[str, float] | None:
        """Return USD for a million tokens by class, or None for a model without a known price."""
        return prices.rates(self.prices, self.model)


def read(folder: Path) -> Config:
    """Return the configuration of a folder. Raises UsageError."""
    path = folder / FILE
    try:
        return Config.model_validate_json(path.read_text(), extra="forbid", context=folder)
    except OSError as error:
        raise UsageError(f"{path} cannot be read", str(error), "`repro gateway` takes the folder of one job.") from None
    except ValidationError as error:
        remedy = "The study writes this file; its fields are described in repro/gateway/config.py."
        raise UsageError(f"{path} is wrong", "; ".join(faults(error)), remedy) from None


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
