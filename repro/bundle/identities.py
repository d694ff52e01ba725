"""Names and numbers that identify a person, machine or account, found in text and replaced by salted hashes.

Keys, UUIDs, serial numbers, addresses and paths have a form and are found by it. Names of hosts and users have none:
they are learned from where they stand (fields, assignments, home folders, this machine), then replaced everywhere.
"""

from __future__ import annotations

import hashlib
import hmac
import pwd
import re
import socket
from collections import defaultdict
from collections.abc import Callable
from functools import cache
from os import getuid
from pathlib import Path
from typing import Any

HEX = "[0-9a-fA-F]"
UUID = rf"{HEX}{{8}}(?:-{HEX}{{4}}){{3}}-{HEX}{{12}}"
PART, IS = r"[\w.@+~%=-]", r"[\"']?\s*[=:]\s*[\"']?"
# Folders that are the same on every machine, and of this project's image.
COMMON_ROOTS = r"(?:usr|proc|dev|sys|etc|lib|lib64|bin|sbin|cell|job|results|opt/(?:repro|venv|nvidia|conda))\b"
PRIVATE_IP = r"(?:10|127|169\.254|192\.168|172\.(?:1[6-9]|2\d|3[01]))(?:\.(?:25[0-5]|2[0-4]\d|1?\d?\d)){2,3}"

# kind -> patterns. A group named `it` is what is replaced, else the whole match.
FORMS: tuple[tuple[str, str], ...] = (
    ("key", r"(?s)-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)"),
    ("key", r"\bsk-(?:ant-)?[A-Za-z0-9_-]{8,}"),
    ("key", r"\b(?:gh[pousr]_|github_pat_|glpat-|hf_|xox[abprs]-|AIza)[A-Za-z0-9_-]{10,}"),
    ("key", r"\b(?:AKIA|ASIA)[0-9A-Z]{16}\b"),
    ("key", r"\beyJ[\w-]{8,}\.[\w-]{8,}(?:\.[\w-]+)?"),
    ("key", r"(?i)\b(?:bearer|basic)\s+(?P<it>[\w.~+/=-]{12,})"),
    ("key", rf"\b[A-Z0-9_]*(?:SECRET|PASSWORD|PASSWD|CREDENTIALS?){IS}(?P<it>[^\s\"',;]{{6,}})"),
    ("key", rf"\b[A-Z0-9_]*(?:KEY|TOKEN){IS}(?P<it>(?=[^\s\"',;]*\d)[^\s\"',;]{{6,}})"),
    ("key", rf"(?i)\b(?:api_?key|auth_?token|password|x-api-key){IS}(?P<it>[^\s\"',;]{{6,}})"),
    ("key", r"(?<=://)(?P<it>[^/\s:@]+:[^/\s@]+)(?=@)"),
    ("uuid", rf"\b(?:GPU-|MIG-)?(?P<it>{UUID})\b"),
    ("uuid", rf"\b(?:GPU|MIG)-(?P<it>{HEX}{{8,}})\b"),
    ("pci", rf"\b{HEX}{{4,8}}:{HEX}{{2}}:{HEX}{{2}}\.[0-7]\b"),
    ("address", rf"\b(?:{HEX}{{2}}:){{5}}{HEX}{{2}}\b"),
    ("address", rf"(?<![\d.]){PRIVATE_IP}(?![\d.])"),
    ("user", r"\b[\w.+-]+@(?:[\w-]+\.)+[a-zA-Z]{2,}\b"),
    ("serial", r"(?i)\bserial(?:[ _-]?(?:number|no))?[\s\"':=#]+(?P<it>(?=[A-Z-]*(?:\d[A-Z-]*){4})[A-Z0-9-]{6,})"),
    ("serial", r"(?<![\w.])\d{13}(?![\w.])"),
    ("host", r"\bip-\d{1,3}(?:-\d{1,3}){3}\b(?:\.[\w.-]+)?"),
    ("host", r"\b(?=[\w.-]*[\d-])[\w-]+(?:\.[\w-]+)*\.(?:local|internal|lan|corp|intra|localdomain)\b"),
    ("image", r"(?<![\w./:@-])(?!(?:docker\.io/)?(?:nvidia|library|pytorch)/|nvcr\.io/nvidia/)"
              r"(?P<it>[\w.-]+(?::\d+)?(?:/[\w.-]+)+)(?=(?::[\w.-]+)?@sha256:)"),
    ("path", rf"/(?:home|Users|root)(?:/{PART}+)+/?|/(?:home|Users|root)\b"),
    ("path", rf"(?:(?<=file://)|(?<=-[IBL])|(?<![\w.~/*)\]}}-]))/(?!{COMMON_ROOTS})(?:{PART}+/)+{PART}*"),
    ("path", r"\b[A-Za-z]:\\(?:[^\s\\\"'<>|]+\\)*[^\s\\\"'<>|]*"),
    ("user", r"(?<![\w)\]])~(?P<it>[a-z_][\w-]+)(?=/)"),
)  # fmt: skip
PATTERNS = [(kind, re.compile(form)) for kind, form in FORMS]

# Where names stand: field -> kind, and assignments in text.
FIELDS = {
    **dict.fromkeys(("hostname", "host_name", "host", "nodename", "node_name", "computer"), "host"),
    **dict.fromkeys(("user", "username", "user_name", "login", "logname", "owner", "author", "email"), "user"),
    **dict.fromkeys(("serial", "gpu_serial", "board_serial", "serial_number", "board_id"), "serial"),
    **dict.fromkeys(("uuid", "gpu_uuid", "mig_uuid", "gpu_uuid_hash"), "uuid"),
    **dict.fromkeys(("api_key", "token", "secret", "password"), "key"),
    **dict.fromkeys(("pci_bus_id", "pci"), "pci"),
    **dict.fromkeys(("cwd", "home", "workdir"), "path"),
}
TOLD = (
    ("host", re.compile(r"\bHOST(?:NAME)?=[\"']?([\w.-]{3,})")),
    ("host", re.compile(r"(?i)\bhost(?:name)?\s*[=:]\s*[\"']?((?=[\w.-]*[\d-])[a-z][\w.-]{2,})")),
    ("user", re.compile(r"\b(?:USER|LOGNAME|USERNAME)=[\"']?([\w.-]{3,})")),
    ("user", re.compile(r"(?:/home/|/Users/|\\Users\\)([\w.-]{3,})")),
    ("user", re.compile(r"\b([a-z_][a-z0-9_.-]{2,31})@[a-zA-Z]\w*-[\w.-]+\b")),
    ("host", re.compile(r"\b[a-z_][a-z0-9_.-]{2,31}@([a-zA-Z]\w*-[\w.-]+)\b")),
)
# Names that identify no person.
NOBODY = frozenset(
    "root repro nobody user users admin ubuntu debian ec2-user runner localhost local host hostname none null true "
    "false unknown docker cuda cpu gpu worker process audited author owner triton torch shared public data".split()
)
KEPT_SUFFIXES = frozenset(".py .json .jsonl .toml .md .txt .so .c .cc .cpp .h .cu .log .ttir .ptx .cubin".split())


@cache
def words() -> frozenset[str]:
    """Returns every word of this program's own source, in lower case."""
    texts = (file.read_text() for file in Path(__file__).parent.parent.rglob("*.py"))
    return frozenset(word.lower() for text in texts for word in re.findall(r"[A-Za-z][A-Za-z0-9_]{2,}", text))


class Identities:
    """The identities that were found, and the salt of their hashes. One identity has one hash everywhere."""

    def __init__(self, salt: bytes, given: list[str]) -> None:
        self.salt = salt
        self.names: dict[str, str] = {}
        self.exact: dict[str, str] = {}
        self.given = {name.lower() for name in given}
        self.replaced: defaultdict[str, set[str]] = defaultdict(set)
        for name in given:
            self.names[name] = "name"
        account = pwd.getpwuid(getuid())
        for kind, name in (("user", account.pw_name), ("host", socket.gethostname())):
            self.learn(kind, name)

    def learn(self, kind: str, value: Any) -> None:
        """Adds a name to the identities."""
        name = str(value).strip()
        if len(name) < 3 or " " in name or name.lower() in NOBODY or name in self.exact.values():
            return
        self.names.setdefault(name, kind)
        if (
            kind == "host"
            and "." in name
            and (short := name.partition(".")[0]).lower() not in NOBODY
            and len(short) > 2
        ):
            self.names.setdefault(short, kind)
        if kind == "uuid":
            self.names.setdefault(name.replace("-", ""), kind)

    def read(self, text: str) -> None:
        """Learns from the assignments and home folders of a text, and what has a form, to find it in any other."""
        for kind, pattern in PATTERNS:
            if kind in ("key", "uuid", "serial"):
                for match in pattern.finditer(text):
                    self.learn(kind, match["it" if "it" in pattern.groupindex else 0])
        for kind, pattern in TOLD:
            for match in pattern.finditer(text):
                self.learn(kind, match[1].rstrip("."))

    def walk(self, value: Any) -> None:
        """Learns from the fields of parsed JSON."""
        if isinstance(value, dict):
            for name, inner in value.items():
                kind = FIELDS.get(str(name).lower())
                told = inner.get("value") if isinstance(inner, dict) and "value" in inner else inner
                if kind is None and isinstance(inner, dict) and inner.get("class") == "I":
                    kind = "id"
                numbered = isinstance(told, int) and not isinstance(told, bool) and kind in ("serial", "id")
                if kind and (isinstance(told, str) or numbered):
                    self.learn(kind, told)
                self.walk(inner)
        elif isinstance(value, list):
            for inner in value:
                self.walk(inner)
        elif isinstance(value, str):
            self.read(value)

    def token(self, kind: str, value: str) -> str:
        """Returns the salted hash that replaces an identity."""
        known = value.lower().removeprefix("gpu-").removeprefix("mig-")
        known = known.replace("-", "") if kind == "uuid" else known
        self.replaced[kind].add(known)
        return f"{kind}-{hmac.new(self.salt, known.encode(), hashlib.sha256).hexdigest()[:12]}"

    def doubtful(self) -> list[str]:
        """Returns the names that are also words of this program, and so of bundles. They are not replaced."""
        return sorted(name for name in self.names if name.lower() in words() and name.lower() not in self.given)

    def masker(self) -> Callable[[str], str]:
        """Returns a function: text -> the text without identities."""
        left = set(self.doubtful())
        chosen = sorted((name for name in self.names if name not in left), key=len, reverse=True)
        names = re.compile("|".join(rf"(?<![A-Za-z0-9]){re.escape(n)}(?![A-Za-z0-9])" for n in chosen) or r"(?!)", re.I)
        kinds = {name.lower(): kind for name, kind in self.names.items()}

        def by_form(kind: str) -> Callable[[re.Match[str]], str]:
            def replace(match: re.Match[str]) -> str:
                if kind == "path":
                    return self._path(match[0])
                group = "it" if "it" in match.re.groupindex else 0
                token = self.token(kind, match[group])
                whole, (start, end) = match[0], match.span(group)
                return (
                    token if kind == "uuid" else whole[: start - match.start()] + token + whole[end - match.start() :]
                )

            return replace

        def mask(text: str) -> str:
            for old, new in self.exact.items():
                text = text.replace(old, new)
            if re.fullmatch(r"\d+(?:\.\d+)+", text):  # a version
                return text
            for kind, pattern in PATTERNS:
                text = pattern.sub(by_form(kind), text)
            return names.sub(lambda match: self.token(kinds[match[0].lower()], match[0]), text)

        return mask

    def _path(self, path: str) -> str:
        """Returns a path as the hash of its folder. A file name with a known suffix stays."""
        folder, _, name = path.rpartition("\\" if "\\" in path else "/")
        if folder.strip("/\\") and Path(name).suffix in KEPT_SUFFIXES:
            return f"{self.token('path', folder)}/{name}"
        return self.token("path", path.rstrip("/\\"))
