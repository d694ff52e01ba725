"""The agent `replay`: carries out the tool calls of a recording, without a model."""

from __future__ import annotations

from repro.agents.deadline import Deadline
from repro.agents.events import Ending, Record, recorded_calls
from repro.agents.task import Task
from repro.agents.tools import Toolbox
from repro.agents.tools_knowledge import Knowledge
from repro.errors import UsageError


class Replay:
    """Runs events.jsonl of an earlier run, or a replay script, from the task's folder."""

    def __init__(
        self, task: Task, env: dict[str, str], deadline: Deadline, record: Record, knowledge: Knowledge | None
    ) -> None:
        self.record, self.deadline = record, deadline
        self.tools = Toolbox(task, env, deadline, record, knowledge)
        file = task.folder / task.script
        try:
            self.calls = recorded_calls(file.read_text())
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise UsageError(f"{file} is not a recording", f"{type(error).__name__}: {error}") from error
        record.agent_version = "replay"

    def run(self) -> Ending:
        """Make every call in order; a failed one does not stop the next. Raises Stopped."""
        try:
            for number, (name, given) in enumerate(self.calls):
                self.deadline.check()
                self.tools.call(name, given, f"replay_{number}")
                self.record.turns += 1
        finally:
            self.tools.close()
        return Ending("completed", f"{len(self.calls)} recorded calls")
