"""What the agents' study asks of an engine beside jobs: an agent's run, and a look at what is installed there."""

from __future__ import annotations

from collections.abc import Callable

from repro.engines.agent import AgentJob, AgentOutcome
from repro.errors import PrerequisiteError

Progress = Callable[[str], None]


class Agents:
    """The two methods, for engines that run no agent."""

    name: str

    def run_agent(self, job: AgentJob, secrets: dict[str, str], progress: Progress) -> AgentOutcome:
        """Run one agent beside its gateway, with a GPU of its own if this engine has any.

        secrets: keys, which only the gateway's standard input receives. Raises EngineError if the engine refuses,
        EngineGone if it no longer answers.
        """
        raise PrerequisiteError(f"no agent runs on the engine {self.name}", "", "Use --engine local or docker.")

    def look(self, program: str) -> str:
        """Run a short Python program (standard library alone) where agents and gateways run; return its output.

        Raises EngineError if it fails.
        """
        raise PrerequisiteError(f"no agent runs on the engine {self.name}", "", "Use --engine local or docker.")
