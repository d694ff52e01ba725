"""The provider over HTTP: requests are passed on unchanged, with the key that only the gateway holds."""

from __future__ import annotations

import ipaddress
import json
from collections.abc import AsyncIterator

import httpx2

from repro.gateway.config import UpstreamSpec
from repro.gateway.upstreams.base import Call, Reply, UpstreamLost

ANTHROPIC = "https://api.anthropic.com"
# Bedrock's endpoint for the Messages API itself, events included.
BEDROCK = "https://bedrock-mantle.{region}.api.aws/anthropic"
TIMEOUT = httpx2.Timeout(connect=10.0, read=600.0, write=60.0, pool=60.0)


def _loopback(url: httpx2.URL) -> bool:
    """Return whether an address is on this machine, where no proxy may be used."""
    try:
        return url.host == "localhost" or ipaddress.ip_address(url.host).is_loopback
    except ValueError:
        return False


class Http:
    """One provider. auth: the headers that hold the key."""

    def __init__(self, base_url: str, auth: dict[str, str]) -> None:
        self._base, self._auth = base_url.rstrip("/"), auth
        self._client = httpx2.AsyncClient(
            timeout=TIMEOUT,
            follow_redirects=False,
            trust_env=not _loopback(httpx2.URL(base_url)),
            limits=httpx2.Limits(max_connections=64, max_keepalive_connections=16),
        )

    async def send(self, call: Call) -> Reply:
        """See Upstream.send."""
        url = self._base + call.path + ("?beta=true" if call.beta else "")
        headers = call.headers | {"accept-encoding": "identity", "user-agent": "repro-gateway"} | self._auth
        request = self._client.build_request("POST", url, content=json.dumps(call.body).encode(), headers=headers)
        try:
            response = await self._client.send(request, stream=True)
        except httpx2.HTTPError as error:
            raise _lost(error) from None
        return Reply(response.status_code, dict(response.headers), _chunks(response), response.aclose)

    async def aclose(self) -> None:
        """See Upstream.aclose."""
        await self._client.aclose()


def _lost(error: httpx2.HTTPError) -> UpstreamLost:
    """Return a transport error by the meter's codes. Its text may name addresses, never headers."""
    if isinstance(error, httpx2.ConnectError | httpx2.ConnectTimeout):
        code = "connect"
    else:
        code = "timeout" if isinstance(error, httpx2.TimeoutException) else "disconnect"
    return UpstreamLost(code, f"{type(error).__name__}: {error}")


async def _chunks(response: httpx2.Response) -> AsyncIterator[bytes]:
    try:
        async for chunk in response.aiter_bytes():
            yield chunk
    except httpx2.HTTPError as error:
        raise _lost(error) from None


def anthropic(spec: UpstreamSpec, keys: dict[str, str]) -> Http:
    """Return Anthropic's API, or the one at base_url."""
    return Http(spec.base_url or ANTHROPIC, {"x-api-key": keys["ANTHROPIC_API_KEY"]})


def bedrock(spec: UpstreamSpec, keys: dict[str, str]) -> Http:
    """Return Bedrock in a region, or the API at base_url."""
    base = spec.base_url or BEDROCK.format(region=spec.region)
    return Http(base, {"authorization": f"Bearer {keys['AWS_BEARER_TOKEN_BEDROCK']}"})
