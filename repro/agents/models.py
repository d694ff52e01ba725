"""Models by Inspect: their names, keys, prices, and one question to one of them."""

from __future__ import annotations

from dataclasses import dataclass, field

import anyio
from inspect_ai.model import (
    ChatMessageAssistant,
    ChatMessageUser,
    GenerateConfig,
    Model,
    ModelCost,
    ModelInfo,
    ModelUsage,
    get_model,
    get_model_info,
    set_model_info,
)

from repro import config
from repro.agents import replay
from repro.agents.replay import Script
from repro.errors import PrerequisiteError

#: Requests that a provider refuses are sent again this often, with growing waits.
RETRIES = 8
OUTPUT_TOKENS = 32_000


def named(upstream: str, model: str) -> str:
    """Return a model's name for Inspect. `anthropic` is meant where the model names no provider."""
    if upstream == "replay":
        return f"replay/{model}"
    if upstream == "bedrock":
        return f"anthropic/bedrock/{model}"
    return model if "/" in model else f"anthropic/{model}"


def opened(upstream: str, model: str, rates: dict[str, float] | None, connections: int = 1) -> Model:
    """Return a model that is ready to be asked. rates: its prices, if known. Raises PrerequisiteError."""
    if upstream == "bedrock":
        config.keep_region()
    name = named(upstream, model)
    settings = GenerateConfig(max_tokens=OUTPUT_TOKENS, max_retries=RETRIES, max_connections=connections)
    try:
        found = get_model(name, config=settings, memoize=False)
    except Exception as error:  # each provider has errors of its own, for a key, a package or a name
        raise PrerequisiteError(f"the model {name} cannot be used", str(error)) from error
    if rates is not None:
        cost = ModelCost(input=rates["input"], output=rates["output"], input_cache_read=rates["cache_read"],
                         input_cache_write=rates["cache_write"])  # fmt: skip
        known = get_model_info(name) or ModelInfo()
        set_model_info(name, known.model_copy(update={"cost": cost}))
    return found


def tokens(usage: ModelUsage) -> dict[str, int]:
    """Return how many tokens of each class a reply took."""
    return {
        "input": usage.input_tokens, "output": usage.output_tokens,
        "cache_read": usage.input_tokens_cache_read or 0, "cache_write": usage.input_tokens_cache_write or 0,
    }  # fmt: skip


def price(rates: dict[str, float] | None, used: dict[str, int]) -> float | None:
    """Return the price of tokens by class, USD; None without rates."""
    return None if rates is None else sum(rates[kind] * count for kind, count in used.items()) / 1e6


@dataclass
class Reply:
    """A model's answer to one question. stop: Inspect's reason for its end. error: why there is none, or ""."""

    text: str = ""
    stop: str = ""
    model: str = ""
    tokens: dict[str, int] = field(default_factory=dict)
    error: str = ""


def ask(model: Model, messages: list[dict[str, str]], script: Script | None) -> Reply:
    """Ask a model once. messages: `role` and `content`. script: of the provider `replay`."""
    kinds = {"user": ChatMessageUser, "assistant": ChatMessageAssistant}
    talk = [kinds[message["role"]](content=message["content"]) for message in messages]

    async def question() -> Reply:
        if script is not None:
            replay.current.set(script)
        output = await model.generate(talk)
        used = tokens(output.usage) if output.usage else {}
        return Reply(output.completion, output.stop_reason, output.model, used, output.error or "")

    try:
        return anyio.run(question)
    except Exception as error:  # each provider has errors of its own
        return Reply(error=f"{type(error).__name__}: {error}"[:500])
