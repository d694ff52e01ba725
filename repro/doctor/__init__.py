"""`repro doctor`: checks whether this machine can run what `repro run` and `repro benchmark` do by default.

All checks run. A failed check names something missing that the default use needs. A warning names something that makes
results slower, less certain or less complete. `machine`, `containers` and `graphics` hold the checks.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict

from rich.text import Text

from repro.doctor import containers, graphics, machine
from repro.doctor.finding import FAIL, OK, SKIP, WARN, Finding, skip, warn
from repro.doctor.finding import Setting as Setting
from repro.errors import printable
from repro.system.jsonio import Json
from repro.system.screen import BAD, GOOD, OPEN, Column, Screen

SCHEMA_VERSION = 1
# Status -> its sign and colour.
_SIGNS = {OK: ("✓", GOOD), WARN: ("!", OPEN), FAIL: ("✗", BAD), SKIP: ("–", "dim")}

Check = Callable[[Setting], Finding]


# Name -> the check, and the attribute of `Setting` that says why it is skipped; "" for none.
CHECKS: dict[str, tuple[Check, str]] = {
    "python": (machine.python, ""),
    "engine": (containers.engine, ""),
    "image": (containers.image, ""),
    "container toolkit": (containers.toolkit, ""),
    "driver": (graphics.driver, "on_cpu"),
    "gpu": (graphics.gpu, "on_cpu"),
    "gpu state": (graphics.state, "no_gpu"),
    "lease": (graphics.lease_free, "no_gpu"),
    "pins": (machine.pins, "in_image"),
    "separation": (machine.separation, "in_image"),
    "compiler": (machine.compiler, "in_image"),
    "results folder": (machine.results, ""),
    "disk": (machine.disk, ""),
}


def examine(setting: Setting) -> Json:
    """Run every check.

    Return {"schema_version", "ready", "engine", "checks": [{"check", "status", "seen", "remedy"}]}. ready: nothing
    failed.
    """
    checks = []
    for name, (check, skipped) in CHECKS.items():
        try:
            reason = skipped and getattr(setting, skipped)
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
