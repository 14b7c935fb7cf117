"""What an agent is told, on which model, and where its session is kept."""

from __future__ import annotations

import io
from collections.abc import Mapping
from pathlib import Path

import pytest
from cyclopts import CycloptsError

from handrail.cli.agents.options import RunChoices, check_agent_path
from handrail.cli.agents.run import no_input, read_prompt
from handrail.cli.agents.settings import check_stored, chosen_store, opened_session, within
from handrail.errors import SessionLockedError
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


@pytest.mark.parametrize(
    "given, stream, reading",
    [("", None, False), (" \n", None, False), (None, Keyboard(""), True), (None, Keyboard(" \n"), True)],
    ids=["typed empty", "typed blank", "read empty", "read blank"],
)
def test_empty_input_is_a_slip(given: str | None, stream: Keyboard | None, reading: bool, wording: Wording) -> None:
    """It is told before anything runs."""
    with pytest.raises(CycloptsError) as raised:
        read_prompt(given, stream, reading=reading)
    assert str(raised.value) == wording


@pytest.mark.parametrize("content, mode", [(b"caf\xe9", "strict"), (b"caf\xe9", "surrogateescape")])
def test_input_that_is_no_utf_8_is_told(content: bytes, mode: str, wording: Wording) -> None:
    """Whatever the stream makes of it."""
    stream = io.TextIOWrapper(io.BytesIO(content), encoding="utf-8", errors=mode)
    with pytest.raises(CycloptsError) as raised:
        read_prompt(None, stream)
    assert str(raised.value) == wording


def test_a_closed_standard_input_is_none(wording: Wording) -> None:
    """A process may have been started without."""
    with pytest.raises(CycloptsError) as raised:
        read_prompt(None, None, reading=True)
    assert str(raised.value) == wording


def test_a_run_without_input_says_where_input_comes_from(wording: Wording) -> None:
    """With the command to type."""
    assert str(no_input("desk.agent")) == wording


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


@pytest.mark.parametrize(
    "choices", [RunChoices(session="s"), RunChoices(approve="later")], ids=["a session", "an answer"]
)
def test_what_is_kept_needs_a_store(choices: RunChoices, wording: Wording) -> None:
    """One that outlives the process."""
    with pytest.raises(CycloptsError) as raised:
        check_stored(None, choices)
    assert str(raised.value) == wording
    check_stored("sqlite:///a.db", choices)
    check_stored(None, RunChoices())


def test_a_store_and_a_session_are_made_if_they_are_not_there(tmp_path: Path) -> None:
    """A session is open in one process at a time."""
    url = f"sqlite:///{tmp_path / 'new.db'}"
    with opened_session(url, "one") as session:
        assert session is not None
        assert session.session_id == "one"
    with opened_session(None, "one") as none:
        assert none is None


def test_a_session_that_somebody_else_has_open_is_told(tmp_path: Path, wording: Wording) -> None:
    """After a short wait."""
    url = f"sqlite:///{tmp_path / 'new.db'}"
    with (
        opened_session(url, "one"),
        pytest.raises(SessionLockedError) as raised,
        opened_session(url, "one"),
    ):
        pass
    assert str(raised.value) == wording


@pytest.mark.parametrize(
    "choices",
    [
        pytest.param(RunChoices(model=" "), id="model"),
        pytest.param(RunChoices(store=""), id="store"),
        pytest.param(RunChoices(session=""), id="session"),
        pytest.param(RunChoices(root=Path("nowhere")), id="root"),
        pytest.param(RunChoices(rules=Path("nowhere")), id="rules"),
    ],
)
def test_options_that_cannot_be_meant_are_told(choices: RunChoices, wording: Wording) -> None:
    """Before anything is opened."""
    with pytest.raises(CycloptsError) as raised:
        choices.check()
    assert str(raised.value) == wording


def test_options_that_can_be_meant_are_not(tmp_path: Path) -> None:
    """Everything typed."""
    rules = tmp_path / "rules.yaml"
    rules.touch()
    RunChoices(model="m", store="memory:", session="s", root=tmp_path, rules=rules, format="json").check()


def test_an_agent_file_that_is_not_there_is_told(tmp_path: Path, wording: Wording) -> None:
    """A folder is told with the agent files in it."""
    with pytest.raises(CycloptsError) as raised:
        check_agent_path(tmp_path / "desk.agent")
    assert str(raised.value) == wording
    with pytest.raises(CycloptsError) as raised:
        check_agent_path(tmp_path)
    assert str(raised.value) == wording
    (tmp_path / "desk.agent").touch()
    with pytest.raises(CycloptsError) as raised:
        check_agent_path(tmp_path)
    assert str(raised.value) == wording
    check_agent_path(tmp_path / "desk.agent")
