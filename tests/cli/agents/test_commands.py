"""The commands that run agents, as far as they are their own."""

from __future__ import annotations

import gc
import subprocess
import sys
from pathlib import Path

import pydantic_ai
import pytest

from handrail.cli import main
from handrail.cli.agents.commands import imports_unsearched

AGENT = "---\nname: desk\n---\nYou keep notes.\n"

PROGRAM = """\
import gc
import sys
from handrail.cli import main

code = main(["check", "desk.agent"])
is_searched = any(each is sys.modules["pydantic_ai"] for each in gc.get_objects())
sys.exit(f"{code} {is_searched} {gc.isenabled()}")
"""


@pytest.mark.short(0)
def test_what_a_command_imports_is_not_searched_for_garbage(tmp_path: Path) -> None:
    """Modules stay to the end of the process; what comes after them is collected as before."""
    (tmp_path / "desk.agent").write_text(AGENT)
    words = (sys.executable, "-c", PROGRAM)
    done = subprocess.run(words, capture_output=True, check=False, cwd=tmp_path, timeout=60)
    assert done.stderr.splitlines()[-1] == b"0 False True"


def test_a_program_that_has_imported_it_is_searched_as_before(tmp_path: Path) -> None:
    """What the program has made may be garbage, and nothing distinguishes it from modules."""
    (tmp_path / "desk.agent").write_text(AGENT)
    assert sys.modules["pydantic_ai"] is pydantic_ai
    made: list[object] = []
    assert main(["check", str(tmp_path / "desk.agent")]) == 0
    assert is_searched(made)


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
