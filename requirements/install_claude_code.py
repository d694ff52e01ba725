"""Installs the Claude Code CLI into the image: `python install_claude_code.py ADDRESS FOLDER`.

ADDRESS is where the tarball of the package and version in claude-code.json can be had: a URL, as `npm view
PACKAGE@VERSION dist.tarball` prints it, or a file. It is used only where its hash is the pinned one. The package holds
one program, which needs no other. Without arguments it prints PACKAGE@VERSION.
Exit code 1: it cannot be had; 2: what came is not what is pinned.
"""

from __future__ import annotations

import base64
import hashlib
import json
import shutil
import subprocess
import sys
import tarfile
import tempfile
import urllib.request
from pathlib import Path

PIN = json.loads(Path(__file__).with_name("claude-code.json").read_text())
MEMBER = "package/claude"
TIMEOUT_S = 60
CHUNK_BYTES = 1 << 20


def install(address: str, folder: Path) -> str:
    """Fetches, checks and unpacks the program; returns its version. Raises ValueError where that is not the pin."""
    url = address if "://" in address else Path(address).resolve().as_uri()
    digest = hashlib.sha512()
    with tempfile.TemporaryFile() as kept:
        with urllib.request.urlopen(url, timeout=TIMEOUT_S) as source:  # noqa: S310 the address is the builder's own
            while chunk := source.read(CHUNK_BYTES):
                digest.update(chunk)
                kept.write(chunk)
        integrity = "sha512-" + base64.b64encode(digest.digest()).decode()
        if integrity != PIN["integrity"]:
            raise ValueError(f"{PIN['package']} {PIN['version']} is {PIN['integrity']}, what came is {integrity}")
        kept.seek(0)
        folder.mkdir(parents=True, exist_ok=True)
        program = folder / "claude"
        with tarfile.open(fileobj=kept, mode="r:gz") as archive:
            member = archive.extractfile(MEMBER)
            assert member is not None
            with member, program.open("wb") as stream:
                shutil.copyfileobj(member, stream)
    program.chmod(0o755)
    version = subprocess.run([program, "--version"], capture_output=True, text=True, check=True).stdout.split()[0]
    if version != PIN["version"]:
        raise ValueError(f"the program says that it is version {version}, the pin is {PIN['version']}")
    return str(version)


if __name__ == "__main__":
    if len(sys.argv) == 1:
        print(f"{PIN['package']}@{PIN['version']}")
        sys.exit()
    try:
        print("Claude Code", install(sys.argv[1], Path(sys.argv[2])))
    except OSError as error:
        sys.exit(f"install_claude_code: {error}")
    except (ValueError, tarfile.TarError) as error:
        print(f"install_claude_code: {error}", file=sys.stderr)
        sys.exit(2)
