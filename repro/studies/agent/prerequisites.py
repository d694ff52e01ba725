"""Prerequisites of a study that an image may lack, checked before anything starts: the CLI, the published server."""

from __future__ import annotations

import json

from repro.engines.base import Engine
from repro.errors import PrerequisiteError
from repro.gateway.config import REMOTE
from repro.studies.agent.design import Design

# Runs in the Python of agents and gateways; standard library alone.
LOOK = """
import importlib.metadata, json, shutil
found = {d.metadata["Name"]: d.version for d in importlib.metadata.distributions() if d.metadata["Name"]}
print(json.dumps({"programs": {name: shutil.which(name) for name in ("claude",)},
                  "version": {k: v for k, v in found.items() if k.lower().replace("_", "-") == "leeroopedia-mcp"}}))
"""


def check(plan: Design, engine: Engine) -> None:
    """Raise PrerequisiteError for anything missing where the study's agents and gateways will run."""
    cli = plan.agent == "claude-code"
    server = "leeroopedia" in {plan.knowledge(arm) for arm in plan.arms}
    if not cli and not server:
        return
    seen = json.loads(engine.look(LOOK))
    if cli and not seen["programs"]["claude"]:
        raise PrerequisiteError(
            "Claude Code is not installed where agents run", f"no `claude` in the PATH of the engine {engine.name}",
            "Build the image with it: make image CLAUDE_CODE=ADDRESS (docs/agent-study.md), or choose --agent sdk.",
        )  # fmt: skip
    name, version = REMOTE
    found = next(iter(seen["version"].values()), "none")
    if server and found != version:
        raise PrerequisiteError(
            f"the knowledge base leeroopedia needs {name}=={version}", f"found {found}",
            "Build the image with it: make image KB=leeroopedia (docs/agent-study.md), or choose --kb local.",
        )  # fmt: skip
