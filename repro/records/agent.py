"""An agent: how a study configured it, and the record of each of its sittings."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from repro.records.base import Amount, Record, Text, Time
from repro.system.jsonio import Json

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

    agent: Text
    """`sdk` or `claude-code`."""
    model: str
    """The model."""
    arms: list[str]
    """Arms, the first of which the others are compared with."""
    kb: str
    """The knowledge base of the arm with_kb."""
    mode: str
    """`problem`: one sitting a problem; `suite`: all problems in one sitting."""
    repeats: int = Field(ge=1)
    """How often each problem and arm is run."""
    upstream: str
    """Where requests go: `anthropic`, `bedrock` or `replay`."""
    region: str
    """Region of Bedrock."""
    budgets: dict[str, Amount | None]
    """Bounds of one sitting; null is no limit."""
    optimize: bool = False
    """Whether the agents of every arm may use `repro optimize`."""
    prices: Json = {}
    """The row of the price table for the model."""
    script_sha256: str = ""
    """Hash of a replay's scripts."""
    scripted: bool
    """Whether replies or actions come from a file instead of a model."""
    knowledge: dict[str, str]
    """Arm -> its knowledge base."""
    order_of_cells: list[str]
    """Ids of all sittings in the order in which they start."""
    balance: dict[str, float]
    """Arm -> its mean place in that order, from 0 to 1."""


class AgentAttempt(Record):
    """One attempt at a sitting."""

    attempt: int = Field(ge=1)
    """Its number."""
    started: Time
    """When it began, UTC."""
    wall_s: float
    """Seconds that it took."""
    waited_s: float
    """Seconds waited before it."""
    status: Ending
    """How it ended."""
    klass: FailureClass = Field(alias="class")
    """Which side caused the end."""
    detail: str
    """The same in words."""
    turns: int
    """Replies of the model."""
    usd: float | None
    """Its cost; null where a price is not known."""
    tokens: dict[str, int]
    """Class of tokens -> how many."""


class KnowledgeUse(Record):
    """Calls of knowledge tools as the host counted them."""

    calls: int = 0
    """Calls."""
    hits: int = 0
    """Pages that they returned."""
    errors: int = 0
    """Calls that failed."""
    denied: int = 0
    """Calls beyond the budget."""


class MeterRecord(Record):
    """What the host counted of a sitting. Nothing that the agent wrote is in it."""

    turns: int = 0
    """Replies of the model."""
    tokens: dict[str, int] = {}
    """Class of tokens -> how many."""
    usd: float | None = None
    """Their cost; null where a price is not known."""
    kb: KnowledgeUse = KnowledgeUse()
    """Calls of knowledge tools."""
    models: dict[str, int] = {}
    """Model that a reply named -> how many replies."""


class AgentRecord(Record):
    """agents/…/job.json: one sitting of an agent with all of its attempts."""

    schema_version: Literal[1]
    """Layout of this record."""
    job: Text
    """Id of the sitting: problem or `suite`, arm and repeat."""
    arm: str
    """Its arm."""
    problems: list[str]
    """Ids of its problems."""
    repeat: int
    """Number of the repeat, from 0."""
    agent: str
    """Which agent."""
    model: str
    """The model."""
    knowledge: str
    """Its knowledge base."""
    scripted: bool
    """Whether replies or actions come from a file instead of a model."""
    finished: bool
    """Whether the end counts: the agent itself caused it, good or bad."""
    status: Ending
    """How the last attempt ended."""
    klass: FailureClass = Field(alias="class")
    """Which side caused the end."""
    detail: str
    """The same in words."""
    attempts: list[AgentAttempt]
    """Every attempt, oldest first."""
    folder: str
    """Folder of the last attempt in the bundle."""
    solutions: dict[str, str]
    """File name of a solution -> its place in the bundle."""
    meter: MeterRecord
    """What the host counted in the last attempt."""
    consulted: dict[str, KnowledgeUse]
    """Knowledge tool -> its calls."""
    agent_version: str
    """Version of the agent's program, where it has one."""
    tools: list[str]
    """The knowledge tools that the model was shown."""
    isolation: Json
    """How it was contained."""
    cut: list[str]
    """Files that were cut off, and where."""
