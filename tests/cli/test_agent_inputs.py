"""What an agent is told, on which model, and where its session is kept."""

from __future__ import annotations

import io
from collections.abc import Mapping
from pathlib import Path

import pytest
from cyclopts import CycloptsError

from handrail.cli.agents.run import read_prompt
from handrail.cli.agents.settings import chosen_store, within
from tests.wording import Wording


class Keyboard(io.StringIO):
    """A terminal, or something else that holds text."""

    def __init__(self, text: str = "", *, terminal: bool = False) -> None:
        super().__init__(text)
        self._terminal = terminal

    def isatty(self) -> bool:
        return self._terminal


@pytest.mark.parametrize(
    "given, stream, heard",
    [
        ("sort it", Keyboard("other", terminal=False), "sort it"),
        ("sort it", None, "sort it"),
        (" two\nlines ", None, " two\nlines "),
        (None, Keyboard("sort it\n"), "sort it\n"),
        (None, Keyboard(" \n"), None),
        (None, Keyboard("x", terminal=True), None),
        (None, None, None),
    ],
)
def test_input_is_typed_or_read(given: str | None, stream: Keyboard | None, heard: str | None) -> None:
    """Standard input is read where nobody types."""
    assert read_prompt(given, stream) == heard


@pytest.mark.parametrize("terminal", [True, False])
def test_input_is_read_where_that_is_asked_for(terminal: bool, wording: Wording) -> None:
    """From a terminal too, up to the end of the input."""
    assert read_prompt(None, Keyboard("sort it", terminal=terminal), reading=True) == "sort it"
    with pytest.raises(CycloptsError) as raised:
        read_prompt("sort it", Keyboard("", terminal=terminal), reading=True)
    assert str(raised.value) == wording
    for nothing in (Keyboard(" ", terminal=terminal), None):
        with pytest.raises(CycloptsError) as raised:
            read_prompt(None, nothing, reading=True)
        assert str(raised.value) == wording


@pytest.mark.parametrize("content, mode", [(b"caf\xe9", "strict"), (b"caf\xe9", "surrogateescape")])
def test_input_that_is_no_utf_8_is_told(content: bytes, mode: str, wording: Wording) -> None:
    """Whatever the stream makes of it."""
    stream = io.TextIOWrapper(io.BytesIO(content), encoding="utf-8", errors=mode)
    with pytest.raises(CycloptsError) as raised:
        read_prompt(None, stream)
    assert str(raised.value) == wording


@pytest.mark.parametrize(
    "typed, project, environment, url",
    [
        ("sqlite:///a.db", "sqlite:///b.db", {"HANDRAIL_STORE": "sqlite:///c.db"}, "sqlite:///a.db"),
        (None, "sqlite:///b.db", {"HANDRAIL_STORE": "sqlite:///c.db"}, "sqlite:////desk/b.db"),
        (None, None, {"HANDRAIL_STORE": " sqlite:///c.db "}, "sqlite:///c.db"),
        (None, None, {"HANDRAIL_STORE": ""}, None),
        (None, None, {}, None),
        ("memory:", "sqlite:///b.db", {}, None),
        (None, "memory:", {"HANDRAIL_STORE": "sqlite:///c.db"}, None),
    ],
)
def test_the_store_is_the_one_that_was_typed_then_that_of_the_project(
    typed: str | None, project: str | None, environment: Mapping[str, str], url: str | None
) -> None:
    """Then that of the environment; one in memory is none."""
    assert chosen_store(typed, project, Path("/desk"), environment) == url


@pytest.mark.parametrize(
    "url, placed",
    [
        ("sqlite:////srv/desk.db", "sqlite:////srv/desk.db"),
        ("sqlite:///my%20desk.db", "sqlite:////desk/my%20desk.db"),
        ("postgresql://host/desk", "postgresql://host/desk"),
    ],
)
def test_a_database_of_a_project_lies_in_its_folder(url: str, placed: str) -> None:
    """Wherever the command is typed."""
    assert within(Path("/desk"), url) == placed
