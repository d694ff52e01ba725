"""The design of an agent study: arms, knowledge, budgets, and the order in which jobs start."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field

from repro.records.agent import AgentConfig
from repro.system.groups import grouped
from repro.system.jsonio import Json

AGENTS = ("sdk", "claude-code")
ARMS = ("baseline", "with_kb", "placebo")
KNOWLEDGE = ("local", "leeroopedia", "placebo")
MODES = ("problem", "suite")
UPSTREAMS = ("anthropic", "bedrock", "replay")
SUITE = "suite"


@dataclass(frozen=True)
class Budgets:
    """Budgets of one job; None is no limit. wall_s: seconds. tokens: without reads from the prompt cache."""

    wall_s: float | None = 2400.0
    turns: int | None = 100
    tokens: int | None = 2_000_000
    usd: float | None = 5.0
    kb_calls: int | None = 100


@dataclass(frozen=True)
class Pace:
    """How a study is run, without effect on its results. jobs: sittings at once. retries: further attempts after a
    failure that the agent did not cause. wait_s: before the first of them. run_usd: the money of the whole run, None
    for no limit."""

    jobs: int = 1
    retries: int = 2
    wait_s: float = 10.0
    run_usd: float | None = None


# Budgets of one problem, and of all ten in one session within the published 40 minutes.
DEFAULTS = {"problem": Budgets(), "suite": Budgets(turns=400, tokens=10_000_000, usd=20.0, kb_calls=400)}


@dataclass(frozen=True)
class Unit:
    """One session of an agent: an arm, the ids of its problems and a repeat."""

    arm: str
    problems: tuple[str, ...]
    repeat: int
    name: str

    @property
    def id(self) -> str:
        """Return `L1_36/with_kb/0`, or `suite/with_kb/0`."""
        return f"{self.name}/{self.arm}/{self.repeat}"

    @property
    def folder(self) -> str:
        """Return its folder in the bundle."""
        return f"agents/{self.id}"


@dataclass(frozen=True)
class Design:
    """A study, without the machine that it runs on.

    kb: the knowledge base of the arm with_kb: one of KNOWLEDGE, or the address of an MCP server. upstream: one of
    UPSTREAMS. model: a name, or `provider/name` for a provider of Inspect. optimize: whether agents have
    `repro optimize`, which every arm has or none. scripts: a replay's scripts by unit id; a resume compares only their
    hash, `script_sha256`.
    """

    agent: str
    model: str
    arms: tuple[str, ...] = ("baseline", "with_kb")
    kb: str = "local"
    mode: str = "problem"
    repeats: int = 1
    upstream: str = "anthropic"
    region: str = ""
    budgets: Budgets = field(default_factory=Budgets)
    optimize: bool = False
    prices: Json = field(default_factory=dict)
    script_sha256: str = ""
    scripts: dict[str, bytes] = field(default_factory=dict, repr=False, compare=False)

    def knowledge(self, arm: str) -> str:
        """Return the knowledge base of an arm: none, local, placebo, leeroopedia or an address."""
        return {"baseline": "none", "placebo": "placebo"}.get(arm, self.kb)

    @property
    def scripted(self) -> bool:
        """Return whether replies come from a file instead of a model."""
        return self.upstream == "replay"

    def label(self, arm: str) -> str:
        """Return the description of an arm for tables."""
        knowledge = self.knowledge(arm)
        tools = "no knowledge base" if knowledge == "none" else f"knowledge base: {knowledge}"
        if self.scripted:
            return f"scripted replies, not an agent's result; {tools}"
        return f"agent {self.agent}, model {self.model}, {tools}"

    def to_json(self) -> Json:
        """Return the facts that two runs must share for one to continue the other."""
        plain = {name: value for name, value in asdict(self).items() if name != "scripts"}
        return plain | {"arms": list(self.arms), "scripted": self.scripted,
                        "knowledge": {arm: self.knowledge(arm) for arm in self.arms}}  # fmt: skip


def config(design: Design, order: list[Unit]) -> AgentConfig:
    """Return what a manifest says of the study's agents."""
    told = {"order_of_cells": [unit.id for unit in order], "balance": balance(order)}
    return AgentConfig.written(design.to_json() | told)


def units(design: Design, problems: list[str]) -> list[Unit]:
    """Return every session in the order in which they start.

    Within a problem the arms alternate, in reversed order from repeat to repeat and from problem to problem, so that
    each arm comes first equally often and its jobs are spread over the whole study.
    """
    groups = [(SUITE, tuple(problems))] if design.mode == "suite" else [(each, (each,)) for each in problems]
    sittings = []
    for repeat in range(design.repeats):
        for at, (name, inside) in enumerate(groups):
            arms = reversed(design.arms) if (repeat + at) % 2 else design.arms
            sittings += [Unit(arm, inside, repeat, name) for arm in arms]
    return sittings


def balance(order: list[Unit]) -> dict[str, float]:
    """Return the mean place of each arm in the order, from 0 to 1. Equal means: time cannot favour an arm."""
    places = grouped((unit.arm, at / max(1, len(order) - 1)) for at, unit in enumerate(order))
    return {arm: round(sum(found) / len(found), 4) for arm, found in places.items()}
