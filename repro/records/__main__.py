"""`python -m repro.records NAME`: print the JSON schema of a record; without a name, list the records."""

from __future__ import annotations

import json
import sys

from repro.records import schema


def main() -> int:
    """Print one schema, or the names; return 1 for an unknown name."""
    name = " ".join(sys.argv[1:])
    known = name in schema.RECORDS
    print(json.dumps(schema.of(name), indent=1, ensure_ascii=False) if known else "\n".join(schema.RECORDS))
    return 1 if name and not known else 0


if __name__ == "__main__":
    sys.exit(main())
