"""What the test files share: tests of a GPU skip themselves, and a fixture is measured once a session."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import pytest


def pytest_addoption(parser: pytest.Parser, pluginmanager: pytest.PytestPluginManager) -> None:
    """A GPU machine may lack pytest-timeout; its setting in pyproject.toml must not stop the session there."""
    if not pluginmanager.hasplugin("timeout"):
        parser.addini("timeout", "seconds a test may take; ignored without pytest-timeout")


def pytest_configure(config: pytest.Config) -> None:
    """Likewise for the mark of that plug-in."""
    config.addinivalue_line("markers", "timeout(seconds): how long this test may take")


def no_gpu() -> str:
    """Why no GPU test can run here, or the empty string."""
    try:
        import torch
    except ImportError as error:
        return f"torch is not installed: {error}"
    return "" if torch.cuda.is_available() else "no NVIDIA GPU: torch.cuda.is_available() is false"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests marked gpu are skipped with the reason where there is none."""
    marked = [item for item in items if item.get_closest_marker("gpu")]
    reason = no_gpu() if marked else ""
    for item in marked if reason else []:
        item.add_marker(pytest.mark.skip(reason=reason))


@pytest.fixture(scope="session")
def smoke_fixture() -> Callable[[str], dict[str, Any]]:
    """The fixture of a problem (`L1_36`, `L1_36@bf16`) at smoke size on the CPU: measured once, not to be changed."""

    @functools.cache
    def measured(key: str) -> dict[str, Any]:
        import torch

        from repro import problems
        from repro.judge import calibrate

        return calibrate.build(problems.load(key, size="smoke"), torch.device("cpu"))

    return measured
