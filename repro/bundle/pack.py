"""`repro bundle pack`: a bundle as one archive beside its manifest and report, to publish it."""

from __future__ import annotations

from pathlib import Path

from repro.bundle import storage, verify
from repro.bundle.evidence import Evidence
from repro.bundle.seal import MANIFEST
from repro.bundle.storage import ARCHIVE
from repro.records.manifest import Packed
from repro.system import jsonio

# Files that are copied beside the archive, where the bundle has them.
BESIDE = (MANIFEST, "report.md")


def pack(paths: list[Path], output: Path | None) -> list[Packed]:
    """Packs bundles, each into a folder `<output>/<name>`.

    output: a folder, else `packed` beside each bundle. Raises UsageError for a path without a closed bundle or a target
    that exists, BundleError for a changed bundle, PrerequisiteError where the folder cannot be written.
    """
    return [_pack(verify.unchanged(path, "packed"), output) for path in paths]


def _pack(found: Evidence, output: Path | None) -> Packed:
    """Writes one packed bundle, whole or not at all."""
    target = (output or found.path.absolute().parent / "packed") / found.name
    with storage.whole(target) as half:
        archive = storage.pack(found.files_in)
        beside = {name: content for name in BESIDE if (content := found.bytes_of(name)) is not None}
        for name, content in {ARCHIVE: archive, **beside}.items():
            jsonio.replace(half / name, content)
    return Packed(bundle=str(target), bundle_id=found.manifest.get("bundle_id"), bytes=len(archive))
