"""The shell suite as it is declared: what is wrong is told where the section is made."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from handrail.contrib.tools import ShellToolsSection
from handrail.errors import PromptValidationError
from tests.wording import Wording


@pytest.mark.parametrize(
    "folder, options",
    [
        pytest.param("nowhere", {}, id="no folder"),
        pytest.param("file", {}, id="file"),
        pytest.param("a\0b", {}, id="NUL in the folder"),
        pytest.param(None, {}, id="nothing for a folder"),
        pytest.param(".", {"allow": "ls"}, id="text for rules"),
        pytest.param(".", {"allow": ["ls"]}, id="text for a rule"),
        pytest.param(".", {"max_output_bytes": 0}, id="no output"),
        pytest.param(".", {"environment": ["A"]}, id="list for an environment"),
        pytest.param(".", {"environment": {"": "x"}}, id="empty name"),
        pytest.param(".", {"environment": {"A=B": "x"}}, id="name with a sign"),
        pytest.param(".", {"environment": {"A": 5}}, id="number for a value"),
        pytest.param(".", {"environment": {"A": "\0"}}, id="NUL in a value"),
        pytest.param(".", {"environment": {"PATH": "/bin:bin"}}, id="relative path"),
    ],
)
def test_what_is_declared_wrongly_is_refused(
    folder: Any, options: dict[str, Any], tmp_path: Path, wording: Wording
) -> None:
    """Where the section is made."""
    (tmp_path / "file").touch()
    with pytest.raises(PromptValidationError) as caught:
        ShellToolsSection(tmp_path / folder if isinstance(folder, str) else folder, **options)
    what_python_says = r" \(.*\);"
    assert re.sub(what_python_says, ";", str(caught.value)) == wording


def test_every_fault_of_a_declaration_is_told(tmp_path: Path) -> None:
    """At once."""
    wrong: Any = {"allow": ["ls"], "timeout": None, "max_output_bytes": -1, "environment": {"A": 1}}
    with pytest.raises(PromptValidationError) as caught:
        ShellToolsSection(tmp_path / "nowhere", **wrong)
    for told in ("nowhere", "allow[0]", "timeout", "max_output_bytes", "environment['A']"):
        assert told in str(caught.value)
