"""`handrail new`: a folder that runs as it is."""

from __future__ import annotations

import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from handrail.cli import agents
from handrail.cli.agents import write_agent_folder
from handrail.errors import AgentError
from tests.cli.desk import Command
from tests.wording import Wording


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder that commands are typed in."""
    place = tmp_path / "place"
    place.mkdir()
    monkeypatch.chdir(place)
    return place


def test_a_new_agent_passes_its_own_test(handrail: Command, place: Path) -> None:
    """By pytest, as generated."""
    assert handrail("new", "My-Desk_2").code == 0
    words = (sys.executable, "-m", "pytest", "-q", "-W", "error", "-p", "no:cacheprovider", "My-Desk_2")
    done = subprocess.run(words, capture_output=True, check=False, cwd=place, encoding="utf-8")
    assert done.returncode == 0, done.stdout
    assert "1 passed" in done.stdout


def test_a_new_agent_is_right(
    handrail: Command, place: Path, monkeypatch: pytest.MonkeyPatch, wording: Wording
) -> None:
    """It can be checked, and run by the command that is shown."""
    monkeypatch.delenv("HANDRAIL_STORE")
    ran = handrail("new", "jotter", "--folder", "agents")
    assert (ran.code, ran.err) == (0, "")
    assert ran.out.splitlines()[0] == wording
    checked = handrail("check", "agents/jotter/jotter.agent")
    assert checked.code == 0, checked.err
    assert [line.split()[:3] for line in checked.out.splitlines()[1:]] == [
        ["list_notes", "read", "allow"],
        ["add_note", "state", "ask"],
    ]
    name, *words = shlex.split(ran.out.splitlines()[1])
    assert name == "handrail"
    done = handrail(*words)
    assert (done.code, done.out) == (0, wording), done.err


def test_what_is_typed_for_its_test_is_said(handrail: Command, place: Path, wording: Wording) -> None:
    """With what it needs, and as a shell takes it."""
    said = handrail("new", "jotter", "--folder", "my agents").out.splitlines()
    assert said[2:] == [wording, wording, wording]


def test_a_new_agent_needs_consent_or_a_rule_without_a_terminal(
    handrail: Command, place: Path, wording: Wording
) -> None:
    """Its rules have that rule in a comment."""
    assert handrail("new", "jotter").code == 0
    words = ("run", "jotter/jotter.agent", "Remember that I want to buy milk.", "--model", "script:jotter/script.yaml")
    denied = handrail(*words)
    assert denied.code == 1
    assert [
        line for line in denied.err.splitlines() if line.startswith('jotter: add_note(text="buy milk") ')
    ] == wording
    rules = place / "jotter" / "approval.yaml"
    rules.write_text(rules.read_text().replace("# allow:\n#   - add_note\n", "allow:\n  - add_note\n"))
    ran = handrail(*words)
    assert (ran.code, ran.out) == (0, wording), ran.err


def test_two_new_agents_of_one_process_have_notes_of_their_own(handrail: Command, place: Path) -> None:
    """Under one name in two folders, over one store: neither clashes with the other."""
    for folder in ("here", "there"):
        assert handrail("new", "jotter", "--folder", folder).code == 0
        agent, script = f"{folder}/jotter/jotter.agent", f"script:{folder}/jotter/script.yaml"
        kept = ("--store", "sqlite:///notes.db", "--session", folder, "--approve", "approve-all")
        ran = handrail("run", agent, "Remember that I want to buy milk.", "--model", script, *kept)
        assert ran.code == 0, ran.err


def test_notes_are_found_again_in_a_kept_session(handrail: Command, place: Path) -> None:
    """A later run of the session lists what an earlier one has noted."""
    assert handrail("new", "jotter").code == 0
    (place / "later.yaml").write_text(
        "replies:\n"
        "  - calls: [{name: list_notes, id: again}]\n"
        "  - text: You want to buy milk.\n"
        "    expect: {messages: {again: {ok: [buy milk]}}}\n"
    )
    kept = ("--store", "sqlite:///notes.db", "--session", "today", "--approve", "approve-all")
    for script in ("jotter/script.yaml", "later.yaml"):
        ran = handrail("run", "jotter/jotter.agent", "Milk?", "--model", f"script:{script}", *kept)
        assert ran.code == 0, ran.err


@pytest.mark.parametrize("name", ["x" * 64, "-", "_", "7", "tools"])
def test_a_name_that_an_agent_may_have_is_taken(handrail: Command, place: Path, name: str) -> None:
    """However odd it looks."""
    assert handrail("new", "--", name).code == 0
    checked = handrail("check", f"{place / name / name}.agent")
    assert checked.code == 0, checked.err


@pytest.mark.parametrize(
    "name",
    [
        pytest.param("a b", id="blank"),
        pytest.param("../x", id="path"),
        pytest.param("", id="empty"),
        pytest.param("é", id="not ASCII"),
        pytest.param("x" * 65, id="long"),
        pytest.param("files", id="files"),
        pytest.param("planning", id="planning"),
    ],
)
def test_a_name_that_no_agent_may_have_is_told(handrail: Command, place: Path, name: str, wording: Wording) -> None:
    """Exit code 2, and nothing is written."""
    ran = handrail("new", name)
    assert (ran.code, ran.out) == (2, "")
    assert ran.err == wording
    assert list(place.iterdir()) == []


@pytest.mark.parametrize("words", [("run", "x.agent", "hello"), ("check", "x.agent"), ("new", "x")])
def test_without_the_extra_agents_say_what_to_install(
    handrail: Command, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], wording: Wording, place: Path
) -> None:
    """The commands over a store work all the same, and so does the help."""
    (place / "x.agent").touch()
    monkeypatch.setattr(agents, "find_spec", lambda _name: None)  # pyright: ignore[reportUnknownArgumentType, reportUnknownLambdaType]
    ran = handrail(*words)
    assert (ran.code, ran.out) == (1, "")
    assert ran.err == wording
    assert handrail(words[0], "--help").code == 0
    assert handrail("sessions", "list").code == 0


@pytest.mark.parametrize("name", ["a", "my-desk", "n" * 64])
def test_the_modules_are_as_ruff_formats_them(tmp_path: Path, name: str) -> None:
    """With its defaults, whatever the name of the agent; so a project that formats its code leaves them alone."""
    folder = write_agent_folder(name, tmp_path)
    command = [sys.executable, "-m", "ruff", "format", "--isolated", "--diff", str(folder)]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stdout) == (0, "")


@pytest.mark.parametrize("kind", ["file", "folder", "link"])
def test_nothing_is_overwritten(tmp_path: Path, kind: str, wording: Wording) -> None:
    """Not even an empty folder, or a link to nothing."""
    there = tmp_path / "desk"
    if kind == "file":
        there.write_text("mine")
    elif kind == "folder":
        there.mkdir()
    else:
        there.symlink_to(tmp_path / "nowhere")
    with pytest.raises(AgentError) as raised:
        write_agent_folder("desk", tmp_path)
    assert str(raised.value) == wording
    assert list(tmp_path.iterdir()) == [there]


def test_a_place_that_cannot_be_written_to_is_told(tmp_path: Path, wording: Wording) -> None:
    """A file where a folder should be, say."""
    (tmp_path / "file").write_text("mine")
    with pytest.raises(AgentError) as raised:
        write_agent_folder("desk", tmp_path / "file")
    assert str(raised.value) == wording
    assert (tmp_path / "file").read_text() == "mine"
