"""What modules define and do not export, and the line that would export it."""

from __future__ import annotations

from pathlib import Path

import pytest

from handrail.agents import Project
from handrail.agents.exports.classify import Definitions, export_hints, unexported_definitions
from handrail.errors import ResolutionError
from tests.agents.folders import agent, module_of, write
from tests.wording import Wording


def definitions(folder: Path, source: str) -> Definitions:
    """What a module with this source defines."""
    return unexported_definitions(module_of(folder, source), "tools.py")


def test_functions_and_tools_of_a_module_are_what_it_defines(tmp_path: Path) -> None:
    """By the names of agent files; not what is imported, private, or something else."""
    source = """
        from json import dumps
        def _helper(): ...
        class Odd: ...
        CONSTANT = 7
        noted = Tool(ping, name="note")
    """
    found = definitions(tmp_path, source)
    assert found.names == {"ping": "ping", "later": "later", "make": "make", "note": "noted"}
    assert found.lists == frozenset()


def test_an_object_that_raises_when_it_is_looked_at_is_passed_over(tmp_path: Path) -> None:
    """A lazy proxy, say."""
    source = """
        class Lazy:
            @property
            def __class__(self):
                raise RuntimeError("not yet")
        lazy = Lazy()
    """
    assert "lazy" not in definitions(tmp_path, source).names


@pytest.mark.parametrize(
    "lists",
    [
        pytest.param((), id="none"),
        pytest.param(("TOOLS",), id="tools"),
        pytest.param(("__all__",), id="all"),
        pytest.param(("TOOLS", "__all__"), id="tools and all"),
        pytest.param(("TOOLSETS",), id="toolsets"),
    ],
)
def test_the_line_to_add_follows_from_what_the_module_has(lists: tuple[str, ...], wording: Wording) -> None:
    """`TOOLS` counts before `__all__`."""
    module = Definitions("tools.py", {"ping": "ping", "note": "noted"}, frozenset(lists))
    assert export_hints("tool", ["note", "nowhere"], [module]) == {"tools.py": wording}
    assert export_hints("tool", ["nowhere"], [module]) == {}


def test_each_module_that_defines_a_missing_name_is_told(tmp_path: Path, wording: Wording) -> None:
    """One for tools, one for toolsets; a module that defines none of them is left out."""
    write(
        tmp_path,
        {
            "desk.agent": agent("desk", tools="[look, note]", toolsets="[bells]"),
            "tools/a.py": "def look(): ...\ndef bells(ctx): ...\n",
            "tools/b.py": "def note(): ...\nTOOLS = []\n",
            "tools/c.py": "def other(): ...\n",
        },
    )
    with pytest.raises(ResolutionError) as caught:
        Project.load(tmp_path, packages=False).resolve("desk")
    assert caught.value.unexported == ("tools/a.py", "tools/b.py")
    assert str(caught.value).splitlines()[-3:] == [
        wording,
        wording,
        wording,
    ]
