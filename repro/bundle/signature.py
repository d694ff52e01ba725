"""The statements of a bundle, signed: one DSSE envelope a line, as in-toto's bundles of attestations are.

A signed statement is of every file, the manifest among them. The envelopes stand beside the manifest and in none of
its hashes.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from repro.bundle.evidence import Evidence
from repro.bundle.seal import SIGNED
from repro.bundle.statement import resources
from repro.errors import PrerequisiteError, UsageError
from repro.system import foreign, jsonio
from repro.system.digest import sha256

_PAYLOAD_TYPE = "application/vnd.in-toto+json"
# A key in a file is smaller: a PEM file of ed25519 has 120 bytes.
_MOST_KEY = 1 << 14


def key(path: Path, *, private: bool) -> Any:
    """Return the signer of a private key, or a public key, from a PEM file.

    Raises UsageError where it holds none, PrerequisiteError where securesystemslib is not installed.
    """
    try:
        from cryptography.hazmat.primitives import serialization
        from securesystemslib.signer import CryptoSigner, SSlibKey
    except ImportError as error:
        remedy = "Run `make setup`, or `pip install '.[sign]'` in a checkout."
        raise PrerequisiteError(f"signatures need {error.name}", "it is not installed", remedy) from None
    try:
        text = foreign.read(path, _MOST_KEY)
        if private:
            return CryptoSigner(serialization.load_pem_private_key(text, None))
        return SSlibKey.from_crypto(serialization.load_pem_public_key(text))
    except (ValueError, TypeError) as error:  # a TypeError: it is encrypted
        kind = "private" if private else "public"
        raise UsageError(f"{path} is no {kind} key", str(error), "docs/evidence.md says how to make one.") from None


def _payloads(bundle: Evidence) -> tuple[dict[str, str], list[bytes]]:
    """Return the hash of every file that the bundle has now, and the statements as they are signed: of these."""
    names = (name for name in bundle.files_in.entries() if name != SIGNED)
    files = {name: sha256(bundle.bytes_of(name) or b"") for name in names}
    return files, [jsonio.render(told | {"subject": resources(files.items())}) for told in bundle.statements.values()]


def sign(bundle: Evidence, signer: Any) -> None:
    """Write the signed statements into a bundle that is a folder."""
    from securesystemslib.dsse import Envelope

    envelopes = [Envelope(payload, _PAYLOAD_TYPE, {}) for payload in _payloads(bundle)[1]]
    for envelope in envelopes:
        envelope.sign(signer)
    jsonio.replace(bundle.path / SIGNED, _lines(envelopes))


def _lines(envelopes: list[Any]) -> bytes:
    return jsonio.lines(each.to_dict() for each in envelopes)


def faults(bundle: Evidence, public: Any) -> list[str]:
    """Return why a bundle is not as the owner of a key signed it. Raises ValueError or KeyError for no envelopes."""
    from securesystemslib.dsse import Envelope
    from securesystemslib.exceptions import VerificationError

    content = bundle.bytes_of(SIGNED)
    if content is None:
        return ["no signature: `repro share --sign` makes a copy that has one"]
    envelopes = [Envelope.from_dict(foreign.document(line)) for line in content.splitlines()]
    signers = {name[:12] for envelope in envelopes for name in envelope.signatures}
    if signers != {public.keyid[:12]}:
        return [f"wrong key: it was signed with {', '.join(signers) or 'none'}, this key is {public.keyid[:12]}"]
    files, due = _payloads(bundle)
    told = [envelope.payload for envelope in envelopes]
    try:
        for envelope in envelopes:
            envelope.verify([public], 1)
    except VerificationError:
        return [f"a statement in {SIGNED} was changed after it was signed"]
    was = {each["name"]: each["digest"]["sha256"] for each in foreign.document(told[0])["subject"]}
    wrong = [f"{name} was changed, added or removed after the bundle was signed"
             for name in sorted(dict(was.items() ^ files.items()))]  # fmt: skip
    same = told == due and _lines(envelopes) == content
    return wrong or ([] if same else [f"{SIGNED} does not hold the statements of the bundle, each once"])
