"""An agent: how a study configured it, and the record of each of its sittings."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from repro.records.base import Amount, Record, Text, Time

FailureClass = Literal["agent", "provider", "infrastructure", "interrupted"]
Ending = Literal[
    "completed",
    "budget",
    "refused",
    "gave_up",
    "agent_error",
    "timeout",
    "provider_error",
    "infra_error",
    "interrupted",
]


class AgentConfig(Record):
    """`parameters.study` of a manifest: what the agents of a study are, equal in every run that continues another."""

    agent: Text = Field(description="`sdk` or `claude-code`.")
    model: str = Field(description="The model.")
    arms: list[str] = Field(description="Arms, the first of which the others are compared with.")
    kb: str = Field(description="The knowledge base of the arm with_kb.")
    mode: str = Field(description="`problem`: one sitting a problem; `suite`: all problems in one sitting.")
    repeats: int = Field(ge=1, description="How often each problem and arm is run.")
    upstream: str = Field(description="Where requests go: `anthropic`, `bedrock` or `replay`.")
    region: str = Field(description="Region of Bedrock.")
    budgets: dict[str, Amount | None] = Field(description="Bounds of one sitting; null is no limit.")
    optimize: bool = Field(False, description="Whether the agents of every arm may use `repro optimize`.")
    prices: dict[str, Any] = Field(default_factory=dict, description="The row of the price table for the model.")
    script_sha256: str = Field("", description="Hash of a replay's scripts.")
    scripted: bool = Field(description="Whether replies or actions come from a file instead of a model.")
    knowledge: dict[str, str] = Field(description="Arm -> its knowledge base.")
    order_of_cells: list[str] = Field(description="Ids of all sittings in the order in which they start.")
    balance: dict[str, float] = Field(description="Arm -> its mean place in that order, from 0 to 1.")


class AgentAttempt(Record):
    """One attempt at a sitting."""

    attempt: int = Field(ge=1, description="Its number.")
    started: Time = Field(description="When it began, UTC.")
    wall_s: float = Field(description="Seconds that it took.")
    waited_s: float = Field(description="Seconds waited before it.")
    status: Ending = Field(description="How it ended.")
    klass: FailureClass = Field(alias="class", description="Which side caused the end.")
    detail: str = Field(description="The same in words.")
    turns: int = Field(description="Replies of the model.")
    usd: float | None = Field(description="Its cost; null where a price is not known.")
    tokens: dict[str, int] = Field(description="Class of tokens -> how many.")


class KnowledgeUse(Record):
    """Calls of knowledge tools as the host counted them."""

    calls: int = Field(0, description="Calls.")
    hits: int = Field(0, description="Pages that they returned.")
    errors: int = Field(0, description="Calls that failed.")
    denied: int = Field(0, description="Calls beyond the budget.")


class MeterRecord(Record):
    """What the host counted of a sitting. Nothing that the agent wrote is in it."""

    turns: int = Field(0, description="Replies of the model.")
    tokens: dict[str, int] = Field(default_factory=dict, description="Class of tokens -> how many.")
    usd: float | None = Field(None, description="Their cost; null where a price is not known.")
    kb: KnowledgeUse = Field(default_factory=KnowledgeUse, description="Calls of knowledge tools.")
    models: dict[str, int] = Field(default_factory=dict, description="Model that a reply named -> how many replies.")


class AgentRecord(Record):
    """agents/…/job.json: one sitting of an agent with all of its attempts."""

    schema_version: Literal[1] = Field(description="Layout of this record.")
    job: Text = Field(description="Id of the sitting: problem or `suite`, arm and repeat.")
    arm: str = Field(description="Its arm.")
    problems: list[str] = Field(description="Ids of its problems.")
    repeat: int = Field(description="Number of the repeat, from 0.")
    agent: str = Field(description="Which agent.")
    model: str = Field(description="The model.")
    knowledge: str = Field(description="Its knowledge base.")
    scripted: bool = Field(description="Whether replies or actions come from a file instead of a model.")
    finished: bool = Field(description="Whether the end counts: the agent itself caused it, good or bad.")
    status: Ending = Field(description="How the last attempt ended.")
    klass: FailureClass = Field(alias="class", description="Which side caused the end.")
    detail: str = Field(description="The same in words.")
    attempts: list[AgentAttempt] = Field(description="Every attempt, oldest first.")
    folder: str = Field(description="Folder of the last attempt in the bundle.")
    solutions: dict[str, str] = Field(description="File name of a solution -> its place in the bundle.")
    meter: MeterRecord = Field(description="What the host counted in the last attempt.")
    consulted: dict[str, KnowledgeUse] = Field(description="Knowledge tool -> its calls.")
    agent_version: str = Field(description="Version of the agent's program, where it has one.")
    tools: list[str] = Field(description="The knowledge tools that the model was shown.")
    isolation: dict[str, Any] = Field(description="How it was contained.")
    cut: list[str] = Field(description="Files that were cut off, and where.")
