"""A project folder that was moved, or lies elsewhere on another machine, continues the sessions that it has stored."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from handrail import store
from handrail.agents.modules import forget_modules, import_modules
from handrail.errors import UnknownTypeError
from handrail.session import Session

TOOLS = """
from dataclasses import dataclass

@dataclass(frozen=True)
class Note:
    text: str
"""


def imported(folder: Path, text: str = TOOLS) -> Any:
    """The module of the tools of a project in a folder."""
    folder.mkdir(exist_ok=True)
    (folder / "moved_notes.py").write_text(text)
    (module,) = import_modules(folder, [Path("moved_notes.py")])[0]
    return module.module


@pytest.fixture
def url(tmp_path: Path) -> str:
    """A store with a session of a project that lay in the folder `old`, and has left it."""
    url = f"sqlite:///{tmp_path / 'desk.db'}"
    note = imported(tmp_path / "old").Note
    with store.open(url) as kept, Session.open(kept, "desk", checkpoint_every=2) as session:
        session[note].append(note("milk"))
    forget_modules(tmp_path / "old")
    return url


def test_a_session_is_read_and_continued_from_another_folder(url: str, tmp_path: Path) -> None:
    """Its items keep the name under which the session has them, also across checkpoints, and in a fork."""
    note = imported(tmp_path / "new").Note
    with store.open(url) as kept:
        for texts in (["milk"], ["milk", "bread", "milk"]):
            with Session.open(kept, "desk", checkpoint_every=2) as session:
                assert [item.text for item in session[note].all()] == texts
                for text in ("bread", "milk"):
                    session[note].append(note(text))
        with Session.open(kept, "desk") as session:
            fork = session.fork(session_id="fork")
            fork[note].append(note("salt"))
            fork.close()
        with Session.open(kept, "fork") as session:
            assert [item.text for item in session[note].all()][-1:] == ["salt"]
        assert len({entry.type_name for entry in kept.entries("desk")}) == 1
    forget_modules(tmp_path / "new")


def test_two_folders_that_could_be_meant_are_refused(url: str, tmp_path: Path) -> None:
    """The error names the stored name; `types=` tells which is meant."""
    folders = [tmp_path / "new", tmp_path / "other"]
    modules = [imported(folder) for folder in folders]
    with store.open(url) as kept:
        with pytest.raises(UnknownTypeError) as caught:
            Session.open(kept, "desk")
        assert caught.value.type_name is not None
        assert caught.value.type_name.endswith(".moved_notes:Note")
        for module in modules:
            with Session.open(kept, "desk", types=[module.Note]) as session:
                assert [item.text for item in session[module.Note].all()] == ["milk"]
        forget_modules(folders[1])
        with Session.open(kept, "desk") as session:
            assert len(session[modules[0].Note].all()) == 1
    forget_modules(folders[0])


def test_a_class_that_moved_to_another_module_is_not_guessed(url: str, tmp_path: Path) -> None:
    """Only the same place in another folder is."""
    folder = tmp_path / "new"
    imported(folder, "from dataclasses import dataclass\n\n@dataclass(frozen=True)\nclass Memo:\n    text: str\n")
    with store.open(url) as kept, pytest.raises(UnknownTypeError):
        Session.open(kept, "desk")
    forget_modules(folder)
