"""`handrail.cli.main`, where the extra may be missing."""

from __future__ import annotations

import pytest

from handrail import cli
from handrail.cli import main
from tests.wording import Wording


def test_without_the_extra_the_command_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], wording: Wording
) -> None:
    """The entry point is there even where cyclopts and rich are not."""
    monkeypatch.setattr(cli, "find_spec", lambda _name: None)  # pyright: ignore[reportUnknownArgumentType, reportUnknownLambdaType]
    assert main(["sessions", "list"]) == 1
    assert capsys.readouterr().err == wording
