"""The image's entry point, and the local one: `python entrypoint.py VERB`."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

from repro.cli import main  # noqa: E402

if __name__ == "__main__":
    sys.exit(main())
