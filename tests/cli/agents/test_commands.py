"""The commands that run agents, as far as they are their own."""

from __future__ import annotations

import gc
import sys

import pytest

from handrail.cli.agents import imports_unsearched


def test_the_collector_rests_while_a_command_imports(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was imported is set aside for good; where the collector does not run, it is left as it is."""
    monkeypatch.delitem(sys.modules, "pydantic_ai")
    try:
        with imports_unsearched():
            made: list[object] = []
            assert not gc.isenabled()
            with imports_unsearched():
                assert not gc.isenabled()
            assert not gc.isenabled()
            assert is_searched(made)
        assert gc.isenabled()
        assert not is_searched(made)
    finally:
        gc.unfreeze()


def is_searched(made: object) -> bool:
    """Whether the collector searches an object; one that is set aside is not listed."""
    return any(each is made for each in gc.get_objects())
