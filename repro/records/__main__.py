"""`python -m repro.records NAME`: print the JSON schema of a record; without a name, list the records."""

from __future__ import annotations

import argparse
import json
import sys

from repro.records import schema


def main() -> int:
    """Print one schema or the names."""
    parser = argparse.ArgumentParser(prog="python -m repro.records", description=__doc__)
    parser.add_argument("name", nargs="?", choices=[*schema.RECORDS])
    name = parser.parse_args().name
    print(json.dumps(schema.of(name), indent=1, ensure_ascii=False) if name else "\n".join(schema.RECORDS))
    return 0


if __name__ == "__main__":
    sys.exit(main())
