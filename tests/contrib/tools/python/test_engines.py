"""The interpreters: whether they can be used here, and what cures it if not."""

from __future__ import annotations

import importlib.metadata
import platform
import sys
from typing import Any

import pytest

from handrail.contrib.tools.python import engines
from handrail.contrib.tools.python.engines import ENGINES, EngineName, engine_fault, worker_line
from tests.wording import Wording


def test_both_interpreters_are_installed_here() -> None:
    """The first is the default."""
    assert ENGINES == ("monty", "asteval")
    assert [engine_fault(name) for name in ENGINES] == [None, None]


@pytest.mark.parametrize("name", ENGINES)
def test_interpreter_that_is_not_installed_names_the_command_that_installs_it(
    name: EngineName, monkeypatch: pytest.MonkeyPatch, wording: Wording
) -> None:
    """None of its code is imported to find that out."""

    def missing(_module: str) -> None:
        """As for a module that is not installed."""

    monkeypatch.setattr(engines, "find_spec", missing)
    assert engine_fault(name) == wording


def test_interpreter_without_its_program_is_not_installed(monkeypatch: pytest.MonkeyPatch, wording: Wording) -> None:
    """Monty is a program of another distribution."""

    def missing(name: str) -> importlib.metadata.Distribution:
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(engines, "distribution", missing)
    assert engine_fault("monty") == wording
    assert engine_fault("asteval") is None


@pytest.mark.parametrize("where", [("darwin", "arm64"), ("linux", "riscv64")])
def test_asteval_needs_a_kernel_that_confines_it(
    where: tuple[str, str], monkeypatch: pytest.MonkeyPatch, wording: Wording
) -> None:
    """Monty does not."""
    monkeypatch.setattr(sys, "platform", where[0])
    monkeypatch.setattr(platform, "machine", lambda: where[1])
    assert engine_fault("asteval") == wording
    assert engine_fault("monty") is None


def test_worker_is_started_isolated() -> None:
    """Neither the environment nor the folder decides what it imports."""
    found: Any = worker_line("asteval", 5)
    assert found[:5] == (sys.executable, "-I", "-S", "-X", "utf8")
    assert found[-1] == '{"memory_bytes": 5, "program": ""}'
