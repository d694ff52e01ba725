"""The eight tools: their list, the checks of arguments, and the dispatch of calls."""

from __future__ import annotations

import tomllib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from repro.knowledge import advise, examine, retrieve
from repro.knowledge.answer import Answer
from repro.knowledge.corpus import Library, library

FILE = Path(__file__).with_name("tools.toml")
MAX_ARGUMENT_CHARS = 1_000_000
HANDLERS: dict[str, Callable[..., Answer]] = {
    "search_knowledge": retrieve.search_knowledge,
    "build_plan": advise.build_plan,
    "review_plan": examine.review_plan,
    "verify_code_math": examine.verify_code_math,
    "diagnose_failure": examine.diagnose_failure,
    "propose_hypothesis": advise.propose_hypothesis,
    "query_hyperparameter_priors": advise.query_hyperparameter_priors,
    "get_page": retrieve.get_page,
}


@dataclass(frozen=True)
class ToolSpec:
    """A tool as it is listed. input_schema: a JSON schema; all arguments are strings."""

    name: str
    description: str
    input_schema: dict[str, Any]

    @property
    def required(self) -> list[str]:
        return list(self.input_schema["required"])


def _spec(entry: dict[str, Any]) -> ToolSpec:
    arguments = entry["required"] | entry.get("optional", {})
    properties = {name: {"type": "string", "description": words} for name, words in arguments.items()}
    schema = {"type": "object", "properties": properties, "required": list(entry["required"])}
    return ToolSpec(entry["name"], entry["description"].strip(), schema)


TOOLS = [_spec(entry) for entry in tomllib.loads(FILE.read_text())["tool"]]
BY_NAME = {tool.name: tool for tool in TOOLS}


def refusal(name: str, arguments: Any) -> str:
    """Return why a call cannot be answered, or the empty string."""
    if name not in BY_NAME:
        return f"Unknown tool {name[:80]!r}. The tools are {', '.join(BY_NAME)}."
    if not isinstance(arguments, dict):
        return f"The arguments of {name} must be an object."
    tool = BY_NAME[name]
    known = tool.input_schema["properties"]
    missing = [argument for argument in tool.required if argument not in arguments]
    unknown = sorted(str(argument)[:40] for argument in arguments if argument not in known)
    typed = [argument for argument in known if not isinstance(arguments.get(argument, ""), str)]
    long = [argument for argument in known if len(str(arguments.get(argument, ""))) > MAX_ARGUMENT_CHARS]
    reasons = {
        "Missing": missing,
        "Unknown": unknown[:10],
        "Not a string": typed,
        f"Longer than {MAX_ARGUMENT_CHARS} characters": long,
    }
    told = [f"{reason}: {', '.join(names)}." for reason, names in reasons.items() if names]
    return f"{name} takes {', '.join(known)}. {' '.join(told)}" if told else ""


def call(name: str, arguments: dict[str, Any], kind: str = "local") -> Answer:
    """Answer a call from the pages of `kind` (`local` or `placebo`).

    A wrong call gets an answer with `is_error`; nothing that an agent sends raises. Raises UsageError for another kind.
    """
    pages: Library = library(kind)
    reason = refusal(name, arguments)
    if reason:
        return Answer(reason, (), is_error=True)
    return HANDLERS[name](pages, **arguments)
