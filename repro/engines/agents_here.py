"""Agents on the engines of this machine."""

from __future__ import annotations

import subprocess
import sys
import threading
from typing import Any

from repro import config
from repro.engines import resources
from repro.engines.agent import AgentJob, AgentOutcome
from repro.engines.agents import Agents, Progress
from repro.engines.resources import Lease
from repro.errors import EngineError
from repro.system.procfs import owner


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
        from repro.engines import agent_docker, docker_errors

        labels = {docker_errors.LABEL_RUN: self.run_id, docker_errors.LABEL_OWNER: owner()}
        with resources.hold(self.gpus, progress, self.stopping) as lease:
            room = agent_docker.Room(
                self.client, self.image.id, f"repro-{self.run_id}", labels, self.memory, lease, self.stopping
            )
            with docker_errors.guard():
                return room.run(job, secrets, progress)

    def look(self, program: str) -> str:
        from repro.engines.docker_errors import LABEL_OWNER, LABEL_ROLE, LABEL_RUN, guard

        labels = {LABEL_RUN: self.run_id, LABEL_OWNER: owner(), LABEL_ROLE: "job"}
        options = {
            "network_mode": "none",
            "read_only": True,
            "cap_drop": ["ALL"],
            "remove": True,
            "security_opt": ["no-new-privileges"],
            "labels": labels,
        }
        with guard():
            out: bytes = self.client.containers.run(self.image.id, ["-c", program], entrypoint=["python"], **options)
        return out.decode()
