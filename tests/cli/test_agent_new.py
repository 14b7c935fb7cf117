"""`handrail new`: a folder that runs as it is."""

from __future__ import annotations

import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from handrail.cli import agents
from tests.cli.desk import Command


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
    done = subprocess.run(words, capture_output=True, check=False, cwd=place, encoding="utf-8", timeout=300)
    assert done.returncode == 0, done.stdout
    assert "1 passed" in done.stdout


def test_a_new_agent_is_right(handrail: Command, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It can be checked, and run by the command that is shown."""
    monkeypatch.delenv("HANDRAIL_STORE")
    ran = handrail("new", "jotter", "--folder", "agents")
    assert (ran.code, ran.err) == (0, "")
    assert ran.out.splitlines()[0] == "Made agents/jotter. It runs as it is, with a scripted model:"
    checked = handrail("check", "agents/jotter/jotter.agent")
    assert checked.code == 0, checked.err
    assert [line.split()[:3] for line in checked.out.splitlines()[1:]] == [
        ["list_notes", "read", "allow"],
        ["add_note", "state", "ask"],
    ]
    name, *words = shlex.split(ran.out.splitlines()[1])
    assert name == "handrail"
    done = handrail(*words)
    assert (done.code, done.out) == (0, "I have noted that you want to buy milk.\n"), done.err


@pytest.mark.parametrize("name", ["x" * 64, "-", "_", "7", "tools"])
def test_a_name_that_an_agent_may_have_is_taken(handrail: Command, place: Path, name: str) -> None:
    """However odd it looks."""
    assert handrail("new", "--", name).code == 0
    checked = handrail("check", f"{place / name / name}.agent")
    assert checked.code == 0, checked.err


@pytest.mark.parametrize(
    "name, told",
    [
        ("a b", "names no agent"),
        ("../x", "names no agent"),
        ("", "names no agent"),
        ("é", "names no agent"),
        ("x" * 65, "names no agent"),
        ("files", "is a built-in toolset"),
        ("planning", "is a built-in toolset"),
    ],
)
def test_a_name_that_no_agent_may_have_is_told(handrail: Command, place: Path, name: str, told: str) -> None:
    """Exit code 2, and nothing is written."""
    ran = handrail("new", name)
    assert (ran.code, ran.out) == (2, "")
    assert told in ran.err
    assert list(place.iterdir()) == []


def test_nothing_is_overwritten(handrail: Command, place: Path) -> None:
    """Exit code 1, and what is there stays."""
    assert handrail("new", "notes").code == 0
    (place / "notes" / "tools.py").write_text("mine")
    ran = handrail("new", "notes")
    assert (ran.code, ran.out) == (1, "")
    assert "is there already" in ran.err
    assert (place / "notes" / "tools.py").read_text() == "mine"


@pytest.mark.parametrize("words", [("run", "x.agent", "hello"), ("check", "x.agent"), ("new", "x")])
def test_without_the_extra_agents_say_what_to_install(
    handrail: Command, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...]
) -> None:
    """The commands over a store work all the same, and so does the help."""
    monkeypatch.setattr(agents, "find_spec", lambda _name: None)  # pyright: ignore[reportUnknownArgumentType, reportUnknownLambdaType]
    ran = handrail(*words)
    assert (ran.code, ran.out) == (1, "")
    assert ran.err == (
        'handrail: agents need pydantic_ai and ruamel, not installed here: pip install "handrail[agents]"\n'
    )
    assert handrail(words[0], "--help").code == 0
    assert handrail("sessions", "list").code == 0


def test_nothing_of_the_extra_is_loaded_before_it_is_looked_for(place: Path) -> None:
    """In a process where it cannot be found."""
    program = (
        "import sys; from importlib.machinery import PathFinder\n"
        "class Without(PathFinder):\n"
        "    @classmethod\n"
        "    def find_spec(cls, name, path=None, target=None):\n"
        "        there = name.partition('.')[0] not in {'pydantic_ai', 'ruamel'}\n"
        "        return super().find_spec(name, path) if there else None\n"
        "sys.meta_path[:] = [Without if finder is PathFinder else finder for finder in sys.meta_path]\n"
        "from handrail.cli import main; sys.exit(main(sys.argv[1:]))"
    )
    words = (sys.executable, "-c", program, "run", "x.agent", "hello")
    done = subprocess.run(words, capture_output=True, check=False, timeout=300, cwd=place)
    assert (done.returncode, done.stdout) == (1, b"")
    assert b'pip install "handrail[agents]"' in done.stderr
    assert len(done.stderr.splitlines()) == 1
