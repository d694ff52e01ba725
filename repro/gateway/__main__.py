"""`python -m repro.gateway FOLDER`."""

from __future__ import annotations

import sys
from pathlib import Path

from repro.errors import ReproError
from repro.gateway.server import serve


def main(arguments: list[str]) -> int:
    """Serve a folder. Return the exit code of `repro gateway`."""
    if len(arguments) != 1:
        print("usage: python -m repro.gateway FOLDER", file=sys.stderr)
        return 1
    try:
        return serve(Path(arguments[0]))
    except ReproError as error:
        print(f"repro: {error}", file=sys.stderr)
        return error.exit_code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
