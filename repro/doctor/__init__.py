"""`repro doctor`: checks whether this machine can run what `repro run` and `repro benchmark` do by default.

All checks run. A failed check names something missing that the default use needs. A warning names something that makes
results slower, less certain or less complete. `machine`, `containers` and `graphics` hold the checks.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict

from rich.text import Text

from repro.doctor import containers, graphics, machine
from repro.doctor.finding import FAIL, OK, SKIP, WARN, Finding, Setting, skip, warn
from repro.errors import printable
from repro.system.jsonio import Json
from repro.system.screen import BAD, GOOD, OPEN, Column, Screen

SCHEMA_VERSION = 1
# Status -> its sign and colour.
_SIGNS = {OK: ("✓", GOOD), WARN: ("!", OPEN), FAIL: ("✗", BAD), SKIP: ("–", "dim")}

Check = Callable[[Setting], Finding]


def _cpu(setting: Setting) -> str:
    return "device cpu" if setting.device == "cpu" else ""


def _gpu(setting: Setting) -> str:
    return setting.no_gpu


def _here(setting: Setting) -> str:
    return "the image has its own" if setting.engine == "docker" else ""


def _never(setting: Setting) -> str:
    return ""


# Name -> the check, and what says why it is skipped.
CHECKS: dict[str, tuple[Check, Callable[[Setting], str]]] = {
    "python": (machine.python, _never),
    "engine": (containers.engine, _never),
    "image": (containers.image, _never),
    "container toolkit": (containers.toolkit, _never),
    "driver": (graphics.driver, _cpu),
    "gpu": (graphics.gpu, _cpu),
    "gpu state": (graphics.state, _gpu),
    "lease": (graphics.lease_free, _gpu),
    "pins": (machine.pins, _here),
    "separation": (machine.separation, _here),
    "compiler": (machine.compiler, _here),
    "results folder": (machine.results, _never),
    "disk": (machine.disk, _never),
}


def examine(setting: Setting) -> Json:
    """Run every check.

    Return {"schema_version", "ready", "engine", "checks": [{"check", "status", "seen", "remedy"}]}. ready: nothing
    failed.
    """
    checks = []
    for name, (check, skipped) in CHECKS.items():
        try:
            reason = skipped(setting)
            finding = skip(reason) if reason else check(setting)
        except Exception as error:  # an error in one check must not hide the others
            finding = warn(f"the check itself failed: {type(error).__name__}: {error}", "Report this.")
        checks.append({"check": name, **asdict(finding)})
    ready = not any(check["status"] == FAIL for check in checks)
    return {"schema_version": SCHEMA_VERSION, "ready": ready, "engine": setting.engine, "checks": checks}


def verdict(report: Json) -> str:
    """Return one line: which checks fail, or that none does."""
    failed = [check["check"] for check in report["checks"] if check["status"] == FAIL]
    if failed:
        return f"not ready: {', '.join(failed)}"
    warned = sum(check["status"] == WARN for check in report["checks"])
    return "ready" + (f", with {warned} warning{'' if warned == 1 else 's'}" if warned else "")


def draw(report: Json, screen: Screen) -> None:
    """Print the checks as a table with remedies below failures and warnings, and the verdict as the last line."""
    rows = []
    for check in report["checks"]:
        sign, style = _SIGNS[check["status"]]
        seen = Text(printable(check["seen"]))
        if check["remedy"]:
            seen.append(f"\n→ {printable(check['remedy'])}", style)
        rows.append([Text(sign, style), check["check"], seen])
    screen.title(f"What a run with engine {report['engine']} needs")
    screen.table((Column("", whole=True), Column("check", whole=True), Column("seen")), rows)
    screen.last(verdict(report))


__all__ = ["CHECKS", "Setting", "draw", "examine", "verdict"]
