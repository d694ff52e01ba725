"""What the agents' study asks of an engine beside jobs: an agent's run, and a look at what is installed there."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable
from typing import Any

from repro import config
from repro.engines import resources
from repro.engines.agent import AgentJob, AgentOutcome
from repro.engines.resources import Lease
from repro.errors import EngineError, PrerequisiteError
from repro.system.procfs import owner

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


class LocalAgents(Agents):
    """Agents as processes."""

    gpus: list[Lease]
    stopping: threading.Event

    def run_agent(self, job: AgentJob, secrets: dict[str, str], progress: Progress) -> AgentOutcome:
        from repro.engines import agent_local

        with resources.hold(self.gpus, progress, self.stopping) as lease:
            return agent_local.Room(lease, self.stopping).run(job, secrets, progress)

    def look(self, program: str) -> str:
        command = [sys.executable, "-P", "-c", program]
        done = subprocess.run(command, capture_output=True, text=True, env=config.job_env({}), check=False)
        if done.returncode:
            raise EngineError("the environment's Python failed", done.stderr[-300:])
        return done.stdout


class ContainedAgents(Agents):
    """Agents in containers."""

    client: Any
    image: Any
    run_id: str
    memory: int
    gpus: list[Lease]
    stopping: threading.Event

    def run_agent(self, job: AgentJob, secrets: dict[str, str], progress: Progress) -> AgentOutcome:
        from repro.engines import agent_docker, docker

        labels = {docker.LABEL_RUN: self.run_id, docker.LABEL_OWNER: owner()}
        with resources.hold(self.gpus, progress, self.stopping) as lease:
            room = agent_docker.Room(
                self.client, self.image.id, f"repro-{self.run_id}", labels, self.memory, lease, self.stopping
            )
            with docker.guard():
                return room.run(job, secrets, progress)

    def look(self, program: str) -> str:
        from docker.errors import ContainerError

        from repro.engines import docker

        labels = {docker.LABEL_RUN: self.run_id, docker.LABEL_OWNER: owner(), docker.LABEL_ROLE: "job"}
        options = {
            "network_mode": "none",
            "read_only": True,
            "cap_drop": ["ALL"],
            "remove": True,
            "security_opt": ["no-new-privileges"],
            "labels": labels,
        }
        try:
            with docker.guard():
                out: bytes = self.client.containers.run(
                    self.image.id, ["-c", program], entrypoint=["python"], **options
                )
        except ContainerError as error:
            raise EngineError("the image's Python failed", str(error.stderr)[-300:]) from error
        return out.decode()
