"""The tools of our own agent: their descriptions for the model, and their calls, which are logged."""

from __future__ import annotations

import time
from typing import Any

from repro.agents.deadline import Deadline
from repro.agents.events import Record
from repro.agents.task import Task
from repro.agents.tools_bash import Bash
from repro.agents.tools_editor import Editor
from repro.agents.tools_knowledge import PREFIX, Knowledge
from repro.agents.tools_result import MOST_CHARACTERS, Result

BASH, EDITOR = "bash", "str_replace_based_edit_tool"


class Toolbox:
    """bash, the text editor, and the knowledge tools if this arm has them."""

    def __init__(
        self, task: Task, env: dict[str, str], deadline: Deadline, record: Record, knowledge: Knowledge | None
    ) -> None:
        self.record, self.deadline, self.knowledge = record, deadline, knowledge
        self.bash = Bash(task.work, env, task.folder / "outputs", deadline, task.options.bash_s)
        self.editor = Editor(task.work)

    def schemas(self) -> list[dict[str, Any]]:
        """Return the tools in the form of the Messages API; knowledge tools keep their own schemas unchanged."""
        own: list[dict[str, Any]] = [
            {"type": "bash_20250124", "name": BASH},
            {"type": "text_editor_20250728", "name": EDITOR, "max_characters": MOST_CHARACTERS},
        ]
        return own + (self.knowledge.schemas() if self.knowledge else [])

    def call(self, name: str, given: Any, call_id: str = "") -> Result:
        """Run one call. Errors are reported to the model. Raises Stopped."""
        self.record.called(name)
        self.record.add("tool_use", id=call_id, name=name, input=given)
        begin = time.monotonic()
        result = self._run(name, given if isinstance(given, dict) else {})
        wall_s = round(time.monotonic() - begin, 3)
        if name.startswith(PREFIX):
            self.record.add("kb", id=call_id, name=name, input=given, wall_s=wall_s, is_error=result.is_error,
                            soft_error=result.soft_error, characters=len(result.text))  # fmt: skip
        self.record.add("tool_result", id=call_id, name=name, text=result.text, is_error=result.is_error, wall_s=wall_s)
        return result

    def _run(self, name: str, given: dict[str, Any]) -> Result:
        if name == BASH:
            if given.get("restart"):
                return self.bash.restart()
            command = given.get("command")
            if not isinstance(command, str):
                return Result("bash needs `command`, a text, or `restart`: true", is_error=True)
            return self.bash.run(command)
        if name == EDITOR:
            return self.editor.run(given)
        if self.knowledge is not None and name in self.knowledge.names():
            timeout_s = self.deadline.remaining_s(self.knowledge.timeout_s)
            return self.knowledge.call(name, given, timeout_s)
        return Result(f"there is no tool {name!r}", is_error=True)

    def close(self) -> None:
        """End the shell and everything that it started."""
        self.bash.close()
