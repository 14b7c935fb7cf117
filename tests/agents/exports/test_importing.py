"""Modules of a project are imported once, and unseen by other projects."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from handrail import store
from handrail.agents.modules import forget_modules, import_modules, package_name
from handrail.errors import UnknownTypeError
from handrail.session import Session
from tests.agents.kit import imported, write
from tests.wording import Wording


def loaded(folder: Path, *files: str) -> list[ModuleType]:
    """The modules of files that have no fault."""
    found = imported(folder, *files)
    assert not found[1]
    return [module.module for module in found[0]]


def problems(folder: Path, *files: str) -> list[str]:
    """What is wrong with files."""
    return [str(problem) for problem in imported(folder, *files)[1]]


def modules_of(folder: Path) -> set[str]:
    """What of a project Python has imported, by names in its folder."""
    package = f"{package_name(folder)}."
    return {name.removeprefix(package) for name in sys.modules if name.startswith(package)}


SIBLINGS = {
    "helpers.py": "x = object()",
    "lib/deep.py": "y = object()",
    "tools.py": """
        import json
        import lib.deep
        import lib.deep as deep
        from helpers import x
        from tools import money
        from . import helpers

        def lazy():
            import helpers as found
            from tools.money import rate
            return found, rate
        """,
    "tools/money.py": """
        from helpers import x
        from tools.rates import rate
        from . import rates
        """,
    "tools/rates.py": "rate = object()",
}


@pytest.mark.requirement("A-15")
def test_modules_find_their_siblings_and_each_file_is_one_module(tmp_path: Path) -> None:
    """By absolute and relative imports, in `tools/` too, and in a function that is called when all is imported."""
    tools, money, rates, helpers, deep = loaded(
        write(tmp_path, SIBLINGS), "tools.py", "tools/money.py", "tools/rates.py", "helpers.py", "lib/deep.py"
    )
    assert tools.helpers is helpers
    assert tools.x is money.x is helpers.x
    assert tools.money is money
    assert money.rates is rates
    assert tools.lib.deep is tools.deep is deep
    assert tools.lazy() == (helpers, rates.rate)
    assert tools.json is importlib.import_module("json")


def test_nothing_is_imported_by_a_name_that_others_use(tmp_path: Path) -> None:
    """No `helpers` and no `tools` are left in `sys.modules`, and the folder holds no bytecode."""
    before = set(sys.modules)
    loaded(write(tmp_path, SIBLINGS), "tools.py")
    assert {name.partition(".")[0] for name in set(sys.modules) - before} == {package_name(tmp_path)}
    assert not list(tmp_path.rglob("__pycache__"))
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("helpers")


def test_two_projects_have_modules_of_the_same_names(tmp_path: Path) -> None:
    """Each sees its own, also when both have long been imported."""
    source = "from helpers import x\ndef lazy():\n    import helpers\n    return helpers.x"
    first = write(tmp_path / "a" / "desk", {"tools.py": source, "helpers.py": "x = 1"})
    second = write(tmp_path / "b" / "desk", {"tools.py": source, "helpers.py": "x = 2"})
    (one,), (two,) = loaded(first, "tools.py"), loaded(second, "tools.py")
    assert (one.x, two.x, one.lazy(), two.lazy()) == (1, 2, 1, 2)


def test_a_file_wins_over_an_installed_module_and_only_for_its_project(tmp_path: Path) -> None:
    """As for a script; what is compiled into Python cannot be replaced, and a folder stands back behind a module."""
    write(tmp_path, {"colorsys.py": "mine = 1", "sys.py": "mine = 1", "json/data.txt": "", "data/numbers.py": "n = 1"})
    write(tmp_path, {"tools.py": "import colorsys, sys, json\nfrom data.numbers import n"})
    (tools,) = loaded(tmp_path, "tools.py")
    assert tools.colorsys.mine == tools.n == 1
    assert tools.sys is sys
    assert tools.json is importlib.import_module("json")
    assert not hasattr(importlib.import_module("colorsys"), "mine")


def test_what_a_link_out_of_the_project_leads_to_is_not_executed(tmp_path: Path, wording: Wording) -> None:
    """Neither as a listed file, nor below a linked folder, nor by an import; a link within the project is a file."""
    left = tmp_path / "executed"
    text = f"from pathlib import Path\nPath({str(left)!r}).touch()\nx = 1\n"
    write(tmp_path, {"shared/tools.py": text, "desk/shop.py": "from helpers import x", "desk/own.py": "x = 1"})
    desk = tmp_path / "desk"
    for link in ("tools.py", "helpers.py"):
        (desk / link).symlink_to(tmp_path / "shared" / "tools.py")
    (desk / "lib").symlink_to(tmp_path / "shared", target_is_directory=True)
    (desk / "also.py").symlink_to("own.py")
    found = imported(desk, "tools.py", "lib/tools.py", "shop.py", "also.py")
    assert [str(problem) for problem in found[1]] == wording
    assert [module.where for module in found[0]] == ["also.py"]
    assert not left.exists()


@pytest.mark.requirement("A-15")
@pytest.mark.parametrize(
    "source",
    [
        pytest.param("x = (", id="syntax"),
        pytest.param("\n\n1 / 0", id="exception"),
        pytest.param("import broken", id="syntax of a sibling"),
        pytest.param("import tools.part", id="no package"),
    ],
)
def test_what_keeps_a_module_from_being_imported_is_told_with_its_line(
    tmp_path: Path, source: str, wording: Wording
) -> None:
    """The error names the module that was imported, and the line that raised; the exception is chained."""
    write(tmp_path, {"tools.py": source, "broken.py": "\nx = = 1"})
    (problem,) = imported(tmp_path, "tools.py")[1]
    assert problem.module == "tools.py"
    assert str(problem) == wording
    assert problem.__cause__ is not None


def test_an_interrupt_passes_and_leaves_nothing_half_done(tmp_path: Path) -> None:
    """Whoever stops the program stops it."""
    write(tmp_path, {"tools.py": "import helpers\nraise KeyboardInterrupt", "helpers.py": ""})
    with pytest.raises(KeyboardInterrupt):
        imported(tmp_path, "tools.py")
    assert modules_of(tmp_path) == set()


def test_a_module_and_a_package_of_one_name_are_told_apart_or_refused(tmp_path: Path, wording: Wording) -> None:
    """`tools.py` beside a package `tools` would be a module that nothing can import."""
    write(tmp_path, {"tools.py": "", "tools/__init__.py": "", "tools/money.py": ""})
    (problem,) = problems(tmp_path, "tools.py", "tools/money.py")
    assert problem == wording


@pytest.mark.parametrize("raised", [pytest.param("Mute", id="mute"), pytest.param("BaseException('odd')", id="base")])
def test_whatever_a_module_raises_is_told_and_hides_no_other_problem(
    tmp_path: Path, raised: str, wording: Wording
) -> None:
    """Also what is no `Exception`, and what cannot say its message."""
    source = f"class Mute(Exception):\n    def __str__(self):\n        raise ValueError\n\nraise {raised}"
    write(tmp_path, {"a.py": source, "b.py": "1 / 0"})
    assert problems(tmp_path, "a.py", "b.py") == wording


TOOLS = """
from dataclasses import dataclass

@dataclass(frozen=True)
class Note:
    text: str
"""


def import_desk(folder: Path, text: str = TOOLS) -> Any:
    """The module of the tools of a project in a folder."""
    folder.mkdir(exist_ok=True)
    (folder / "moved_notes.py").write_text(text)
    (module,) = import_modules(folder, [Path("moved_notes.py")])[0]
    return module.module


@pytest.fixture
def url(tmp_path: Path) -> str:
    """A store with a session of a project that lay in the folder `old`, and has left it."""
    url = f"sqlite:///{tmp_path / 'desk.db'}"
    note = import_desk(tmp_path / "old").Note
    with store.open(url) as kept, Session.open(kept, "desk", checkpoint_every=2) as session:
        session[note].append(note("milk"))
    forget_modules(tmp_path / "old")
    return url


def test_a_session_is_read_and_continued_from_another_folder(url: str, tmp_path: Path) -> None:
    """Its items keep the name under which the session has them, also across checkpoints, and in a fork."""
    note = import_desk(tmp_path / "new").Note
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
    modules = [import_desk(folder) for folder in folders]
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
    import_desk(folder, "from dataclasses import dataclass\n\n@dataclass(frozen=True)\nclass Memo:\n    text: str\n")
    with store.open(url) as kept, pytest.raises(UnknownTypeError):
        Session.open(kept, "desk")
    forget_modules(folder)
