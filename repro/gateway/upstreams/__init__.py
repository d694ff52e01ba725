"""Upstreams, where requests go: the provider's API, Bedrock, or the replay of a script."""

from __future__ import annotations

from repro.gateway.config import Config
from repro.gateway.upstreams import http
from repro.gateway.upstreams.base import Upstream
from repro.gateway.upstreams.replay import Replay


def choose(config: Config, keys: dict[str, str]) -> Upstream:
    """Return the upstream of a job. Raises UsageError for a script that cannot be read."""
    if config.upstream.kind == "replay":
        return Replay(config.upstream.script, config.upstream.mode)
    maker = http.anthropic if config.upstream.kind == "anthropic" else http.bedrock
    return maker(config.upstream, keys)
