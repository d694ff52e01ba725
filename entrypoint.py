"""The command `repro` of a checkout and of the image."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

from repro.cli.entry import main  # noqa: E402

if __name__ == "__main__":
    sys.exit(main())
