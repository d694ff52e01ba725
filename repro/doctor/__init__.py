"""`repro doctor`: is this machine fit for what `make run` and `make benchmark` do by default? Small checks, all run.

A check that fails names what the default use needs and this machine lacks; one that warns, what makes results slower,
less certain or less complete. `machine`, `containers` and `graphics` hold the checks.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from repro.doctor import containers, graphics, machine
from repro.doctor.finding import FAIL, WARN, Finding, Setting, warn

SCHEMA_VERSION = 1

CHECKS: dict[str, Callable[[Setting], Finding]] = {
    "python": machine.python,
    "engine": containers.engine,
    "image": containers.image,
    "container toolkit": containers.toolkit,
    "driver": graphics.driver,
    "gpu": graphics.gpu,
    "free memory": graphics.memory,
    "foreign processes": graphics.processes,
    "lease": graphics.lease_free,
    "settings": graphics.settings_of,
    "clocks": graphics.clocks,
    "profiling": graphics.profiling,
    "pins": machine.pins,
    "compiler": machine.compiler,
    "python headers": machine.headers,
    "results folder": machine.results,
    "disk": machine.disk,
}


def examine(setting: Setting) -> dict[str, Any]:
    """Runs every check. Returns {"schema_version", "ready", "engine", "checks": [{"check", "status", "seen",
    "remedy"}]}; ready: nothing failed."""
    checks = []
    for name, check in CHECKS.items():
        try:
            found = check(setting)
        except Exception as error:  # all run: a check with a fault of its own must not hide the others
            found = warn(f"the check itself failed: {type(error).__name__}: {error}", "Report this.")
        checks.append({"check": name, **found.to_json()})
    ready = not any(check["status"] == FAIL for check in checks)
    return {"schema_version": SCHEMA_VERSION, "ready": ready, "engine": setting.engine, "checks": checks}


def verdict(report: dict[str, Any]) -> str:
    """One line: what fails, or that nothing does."""
    failed = [check["check"] for check in report["checks"] if check["status"] == FAIL]
    if failed:
        return f"not ready: {', '.join(failed)}"
    warned = sum(check["status"] == WARN for check in report["checks"])
    return "ready" + (f", with {warned} warnings" if warned else "")


def lines(report: dict[str, Any]) -> list[str]:
    """The report as text: a check a line, its remedy below it, and the verdict."""
    wide = max(len(check["check"]) for check in report["checks"])
    found = [f"engine: {report['engine']}"]
    for check in report["checks"]:
        found.append(f"  {check['status']:<4}  {check['check']:<{wide}}  {check['seen']}")
        found += [f"  {'':<4}  {'':<{wide}}  -> {check['remedy']}"] if check["remedy"] else []
    return [*found, verdict(report)]


__all__ = ["CHECKS", "Setting", "examine", "lines", "verdict"]
