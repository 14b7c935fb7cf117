"""What a toolset keeps back of its files, other toolsets and programs over them keep back, too."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from pydantic_ai import RunContext
from pydantic_ai.toolsets import AbstractToolset

from handrail.agents import ApprovalRules, LoadedAgent, Rule, current_run
from handrail.agents.toolsets.builtin import files_toolset, shell_toolset
from handrail.contrib.tools import READING, VfsToolsSection
from handrail.filesystem import Filesystem, InMemoryFilesystem
from handrail.prompt import Section
from handrail.testing import Call, Reply
from tests.agents.desks import CallLog, Person, answers, desk, inside, play
from tests.agents.folders import agent as agent_file
from tests.agents.folders import write
from tests.wording import Wording

pytestmark = pytest.mark.anyio

DENY = ApprovalRules(deny=(Rule("notes_*", {"path": "secret.txt"}),))
ASK = ApprovalRules(ask=(Rule("notes_*", {"path": "secret.txt"}),))


def own(folder: Path, **options: Any) -> Callable[[RunContext[Any]], Section[Any]]:
    """A section of the program over a folder."""
    return lambda _: VfsToolsSection(current_run().filesystem(folder), **options)


def over(folder: Path, order: Sequence[str]) -> dict[str, Any]:
    """Toolsets over one folder, in this order."""
    toolsets = {
        "notes": files_toolset(folder, prefix="notes"),
        "two": files_toolset(folder, prefix="two"),
        "own": own(folder),
        "programs": shell_toolset(folder, allow=READING),
    }
    return {name: toolsets[name] for name in order}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a file that rules are about."""
    write(tmp_path / "notes", {"secret.txt": "hunter2\n", "open.txt": "milk\n"})
    return tmp_path / "notes"


AROUND = [
    Call("two_read_file", {"path": "secret.txt"}),
    Call("two_grep_files", {"pattern": "hunter"}),
    Call("two_grep_files", {"pattern": "hunter", "path": "secret.txt"}),
    Call("two_move_file", {"path": "secret.txt", "new_path": "x.txt"}),
    Call("two_read_file", {"path": "x.txt"}),
    Call("read_file", {"path": "secret.txt"}),
    Call("grep_files", {"pattern": "hunter"}),
    Call("move_file", {"path": "secret.txt", "new_path": "y.txt"}),
    Call("read_file", {"path": "y.txt"}),
    Call("shell_run", {"command": ["cat", "secret.txt"]}),
    Call("shell_run", {"command": ["grep", "-r", "hunter", "."]}),
    Call("notes_grep_files", {"pattern": "hunter"}),
]
"""Calls that reach the file without its toolset, and one that searches with it."""


@pytest.mark.parametrize("rules", [DENY, ASK], ids=["denied", "asked"])
@pytest.mark.parametrize("order", [["notes", "two", "own", "programs"], ["programs", "own", "two", "notes"]])
@pytest.mark.short(2)
async def test_a_rule_on_a_toolset_holds_for_its_files_whatever_reaches_them(
    order: Sequence[str], rules: ApprovalRules, folder: Path, tmp_path: Path
) -> None:
    """Whichever toolset is made first. A rule that asks denies where it cannot ask."""
    agent = desk(tmp_path / "project", toolsets=over(folder, order))
    told = await answers(agent, *AROUND, rules=rules, mode="ask", asker=Person())
    assert len(told) == len(AROUND)
    assert [call for call, text in zip(AROUND, told, strict=True) if "hunter2" in text] == []
    assert (folder / "secret.txt").read_text() == "hunter2\n"


async def test_the_toolset_itself_asks(folder: Path, tmp_path: Path) -> None:
    """And shows what a person lets it show."""
    agent = desk(tmp_path / "project", toolsets=over(folder, ["two", "notes"]))
    person = Person()
    read = Call("notes_read_file", {"path": "secret.txt"})
    (told,) = await answers(agent, read, rules=ASK, mode="ask", asker=person)
    assert "hunter2" in told
    assert person.ids == ["c1"]


async def test_files_that_no_rule_is_about_stay_in_reach(folder: Path, tmp_path: Path) -> None:
    """Of the same folder, and of the same name elsewhere."""
    write(tmp_path / "work", {"secret.txt": "mine\n"})
    agent = desk(tmp_path / "project", toolsets=over(folder, ["notes", "two"]), also=["files", "shell"])
    calls = [
        Call("two_read_file", {"path": "open.txt"}),
        Call("read_file", {"path": "secret.txt"}),
        Call("shell_run", {"command": ["grep", "-r", "mine", "."]}),
    ]
    told = await answers(agent, *calls, rules=DENY, root=tmp_path / "work")
    assert ["milk" in told[0], "mine" in told[1], "mine" in told[2]] == [True] * 3


async def test_an_agent_that_is_called_reaches_them_neither(folder: Path, tmp_path: Path, wording: Wording) -> None:
    """Whether or not it has the toolset that the rule names."""
    toolsets = {"notes": files_toolset(folder, prefix="notes"), "two": files_toolset(folder, prefix="two")}
    agent = desk(
        tmp_path / "project",
        toolsets=toolsets,
        also=["clerk"],
        others={"clerk.agent": agent_file("clerk", toolsets="[two]")},
    )
    log = CallLog()
    ask = Reply(calls=[Call("clerk", {"input": "Look."}, id="c1")])
    look = [Reply(calls=[Call("two_read_file", {"path": "secret.txt"}, id="d1")]), Reply(text="Looked.")]
    await play(agent, [ask, *inside("c1", look), Reply(text="Done.")], listener=log, rules=DENY)
    assert log.told["d1"] == wording


def toolset_over(filesystem: Filesystem, prefix: str) -> Callable[[RunContext[Any]], AbstractToolset[Any]]:
    """A toolset of the program over files of its own."""

    def make(_: RunContext[Any]) -> AbstractToolset[Any]:
        made = current_run().section_toolset(VfsToolsSection(filesystem), id=prefix, prefix=f"{prefix}_")
        return made.prefixed(prefix)

    return make


async def test_files_of_the_program_are_kept_back_in_the_same_way(tmp_path: Path, wording: Wording) -> None:
    """They are the same files behind any filter."""
    files = InMemoryFilesystem({"secret.txt": "hunter2\n"})
    toolsets = {name: toolset_over(files, name) for name in ("two", "notes")}
    agent = desk(tmp_path / "project", toolsets=toolsets)
    (told,) = await answers(agent, Call("two_read_file", {"path": "secret.txt"}), rules=DENY)
    assert told == wording


# ----------------------------------------------------------------------------------------------- `exclude` of a toolset


def excluding(folder: Path, tmp_path: Path, **toolsets: Any) -> LoadedAgent:
    """An agent with a toolset that excludes a file of a folder, and others."""
    notes = files_toolset(folder, prefix="notes", exclude=["secret*"])
    return desk(
        tmp_path / "project", toolsets={"programs": shell_toolset(folder, allow=READING), "notes": notes, **toolsets}
    )


async def test_what_a_toolset_excludes_is_out_of_reach_of_programs_in_its_folder(
    folder: Path, tmp_path: Path, wording: Wording
) -> None:
    """Named, or read with other files; what else is there may be named."""
    calls = [
        Call("shell_run", {"command": command}) for command in (["cat", "secret.txt"], ["ls"], ["cat", "open.txt"])
    ]
    told = await answers(excluding(folder, tmp_path), *calls)
    assert told[0] == wording
    assert told[1] == wording
    assert told[2] == "milk\n"


async def test_what_a_section_of_the_program_excludes_is_out_of_reach_of_programs_in_the_folder(
    folder: Path, tmp_path: Path, wording: Wording
) -> None:
    """As what a built-in toolset excludes."""
    programs = shell_toolset(folder, allow=READING)
    agent = desk(tmp_path / "project", toolsets={"programs": programs, "own": own(folder, exclude=["secret.txt"])})
    calls = [Call("shell_run", {"command": ["cat", name]}) for name in ("secret.txt", "open.txt")]
    told = await answers(agent, *calls)
    assert told == [wording, "milk\n"]


async def test_other_toolsets_keep_their_own_view_of_what_one_excludes(folder: Path, tmp_path: Path) -> None:
    """`exclude` says what the tools of one toolset see."""
    agent = excluding(folder, tmp_path, two=files_toolset(folder, prefix="two"))
    (told,) = await answers(agent, Call("two_read_file", {"path": "secret.txt"}))
    assert "hunter2" in told


async def test_programs_elsewhere_are_not_held_to_it(folder: Path, tmp_path: Path) -> None:
    """Nor where it was not excluded."""
    write(tmp_path / "work", {"secret.txt": "mine\n"})
    agent = desk(
        tmp_path / "project",
        toolsets={"notes": files_toolset(folder, prefix="notes", exclude=["*.txt"])},
        also=["shell"],
    )
    (told,) = await answers(agent, Call("shell_run", {"command": ["cat", "secret.txt"]}), root=tmp_path / "work")
    assert told == "mine\n"
