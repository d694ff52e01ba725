"""`python -m repro.knowledge`: serves the knowledge base over MCP, by stdio or by HTTP on this machine."""

from __future__ import annotations

import argparse
import socket
import sys

import uvicorn

from repro.errors import ReproError
from repro.knowledge import server


def serve_http(kind: str, port: int) -> None:
    """Serve until a signal. Prints the address once it listens; port 0 takes any free port."""
    with socket.create_server(("127.0.0.1", port)) as listener:
        config = uvicorn.Config(server.app(kind), log_level="warning")
        print(f"http://127.0.0.1:{listener.getsockname()[1]}{server.PATH}", flush=True)
        uvicorn.Server(config).run(sockets=[listener])


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m repro.knowledge", description=__doc__)
    parser.add_argument("--kind", choices=("local", "placebo"), default="local", help="which set of pages")
    parser.add_argument("--http", metavar="PORT", type=int, help="serve http://127.0.0.1:PORT/mcp instead of stdio")
    asked = parser.parse_args()
    try:
        if asked.http is None:
            server.Server(asked.kind).run("stdio")
        else:
            serve_http(asked.kind, asked.http)
    except (ReproError, OSError) as error:
        print(error, file=sys.stderr)
        return getattr(error, "exit_code", 1)
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
