"""The shell suite as it is declared: what is wrong is told where the section is made."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from handrail.contrib.tools import ShellToolsSection
from handrail.errors import PromptValidationError


@pytest.mark.parametrize(
    "folder, options, told",
    [
        ("nowhere", {}, "cannot be used"),
        ("file", {}, "is not a folder; give one"),
        ("a\0b", {}, "cannot be used"),
        (5, {}, "folder 5 cannot be used"),
        (None, {}, "folder None cannot be used"),
        (".", {"allow": "ls"}, "allow is a str"),
        (".", {"allow": ["ls"]}, "allow[0] is the string 'ls'; write the tokens: ('ls',)"),
        (".", {"timeout": 5}, "timeout is 5; give a positive timedelta"),
        (".", {"timeout": timedelta(0)}, "timeout is datetime.timedelta(0)"),
        (".", {"max_output_bytes": 0}, "max_output_bytes is 0"),
        (".", {"max_output_bytes": True}, "max_output_bytes is True"),
        (".", {"max_output_bytes": "9"}, "max_output_bytes is '9'"),
        (".", {"environment": ["A"]}, "environment is a list"),
        (".", {"environment": {"": "x"}}, "holds the invalid name ''"),
        (".", {"environment": {"A=B": "x"}}, "holds the invalid name 'A=B'"),
        (".", {"environment": {5: "x"}}, "holds the invalid name 5"),
        (".", {"environment": {"A": 5}}, "environment['A'] is 5"),
        (".", {"environment": {"A": "\0"}}, "give a string without NUL"),
        (".", {"environment": {"PATH": "/bin:bin"}}, "give absolute folders"),
        (".", {"environment": {"PATH": ""}}, "give absolute folders"),
    ],
)
def test_what_is_declared_wrongly_is_refused(folder: Any, options: dict[str, Any], told: str, tmp_path: Path) -> None:
    """Where the section is made."""
    (tmp_path / "file").touch()
    with pytest.raises(PromptValidationError) as caught:
        ShellToolsSection(tmp_path / folder if isinstance(folder, str) else folder, **options)
    assert told in str(caught.value)


def test_every_fault_of_a_declaration_is_told(tmp_path: Path) -> None:
    """At once."""
    wrong: Any = {"allow": ["ls"], "timeout": None, "max_output_bytes": -1, "environment": {"A": 1}}
    with pytest.raises(PromptValidationError) as caught:
        ShellToolsSection(tmp_path / "nowhere", **wrong)
    for told in ("nowhere", "allow[0]", "timeout", "max_output_bytes", "environment['A']"):
        assert told in str(caught.value)
