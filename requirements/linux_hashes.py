"""Drop the hashes of files that no supported machine installs: `python requirements/linux_hashes.py UV FILE...`.

uv writes the hash of every file of a release. repro runs on Linux with Python 3.11 or 3.12, so most of them are of
wheels for other systems and Pythons. uv's lock of the same file names the file of each hash.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

PYTHONS = ("cp311", "cp312", "abi3", "py3", "cp3")


def installs(file: str) -> bool:
    """Return whether a supported machine may install this file of a release: a wheel, where it has one."""
    if not file.endswith(".whl"):
        return False
    python, abi, platform = file.removesuffix(".whl").split("-")[-3:]
    known = abi == "abi3" or any(tag in PYTHONS for tag in python.split("."))
    linux = "linux" in platform and "musl" not in platform and platform.endswith(("x86_64", "aarch64"))
    return known and not abi.endswith("t") and (platform == "any" or linux)


def named(uv: str, file: Path) -> dict[str, str]:
    """Return sha256 -> name of every file of the packages in a requirement file."""
    with tempfile.TemporaryDirectory() as folder:
        lock = Path(folder, "pylock.toml")
        what = ["--universal", "--python-version", "3.11", "--no-deps", "--format", "pylock.toml"]
        subprocess.run([uv, "pip", "compile", "--quiet", *what, str(file), "--output-file", str(lock)], check=True)
        packages = tomllib.loads(lock.read_text())["packages"]
    files = [each for p in packages for each in (*p.get("wheels", ()), *([p["sdist"]] if "sdist" in p else ()))]
    return {each["hashes"]["sha256"]: each["url"].rpartition("/")[2] for each in files}


def slim(text: str, names: dict[str, str]) -> str:
    """Return a requirement file's text without the hashes that are not needed. A package keeps at least one."""
    blocks = re.split(r"(?m)^(?=[A-Za-z0-9])", text)
    return "".join(_slim_package(block, names) for block in blocks)


def _slim_package(block: str, names: dict[str, str]) -> str:
    def needed(line: str) -> bool:
        found = re.search(r"--hash=sha256:([0-9a-f]{64})", line)
        return found is None or found[1] not in names or installs(names[found[1]])

    kept = [line for line in block.splitlines() if needed(line)]
    hashed = [at for at, line in enumerate(kept) if "--hash" in line]
    if not hashed:
        return block
    kept[hashed[-1]] = kept[hashed[-1]].removesuffix("\\").rstrip()
    return "\n".join(kept) + "\n"


def main() -> None:
    """Rewrite the files."""
    uv, *files = sys.argv[1:]
    for file in map(Path, files):
        file.write_text(slim(file.read_text(), named(uv, file)))


if __name__ == "__main__":
    main()
