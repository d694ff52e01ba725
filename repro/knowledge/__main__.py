"""`python -m repro.knowledge`: serves the knowledge base over MCP by stdio."""

from __future__ import annotations

import argparse

from repro.knowledge import server


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m repro.knowledge", description=__doc__)
    parser.add_argument("--kind", choices=("local", "placebo"), default="local", help="which set of pages")
    server.Server(parser.parse_args().kind).run("stdio")


if __name__ == "__main__":
    main()
