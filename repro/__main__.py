"""`python -m repro VERB`. Engines start their jobs by this file's path, so that a job runs the same code."""

import sys
from pathlib import Path

folder = str(Path(__file__).resolve().parent.parent)
if folder not in sys.path:
    sys.path.insert(0, folder)

from repro.cli.entry import main  # noqa: E402

if __name__ == "__main__":
    sys.exit(main())
