"""`exclude` and `show_git` of agent files: which paths exist for the tools of a run, whatever brings them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from handrail.agents import LoadedAgent
from handrail.agents.agent_file import parse_agent_file
from handrail.agents.toolsets.builtin import files_toolset
from handrail.contrib.tools import VfsToolsSection
from handrail.errors import AgentFileError
from handrail.filesystem import Filesystem, InMemoryFilesystem
from handrail.resources import Binding
from handrail.testing import Call, Reply
from tests.agents.desks import CallLog, answers, desk, inside, play
from tests.agents.folders import write
from tests.wording import Wording

pytestmark = pytest.mark.anyio

FILES = {".env": "KEY=hunter2\n", "plan.md": "buy milk\n", ".git/config": "hunter2\n", "secrets/a": "hunter2\n"}
GREP = Call("grep_files", {"pattern": "KEY|hunter|milk"})
READ = Call("read_file", {"path": ".env"})
READ_GIT = Call("read_file", {"path": ".git/config"})
WRITE = Call("write_file", {"path": "secrets/b", "content": "x"})


async def among_secrets(agent: LoadedAgent, folder: Path, *calls: Call, **options: Any) -> list[str]:
    """What the model reads after each call; the run works on a folder with secrets."""
    return await answers(agent, *calls, root=write(folder / "work", FILES), **options)


@pytest.mark.parametrize("toolset", ["files", "files_ro", "project_files", "project_files_ro"])
async def test_what_an_agent_file_excludes_does_not_exist_for_the_built_in_tools(
    toolset: str, tmp_path: Path, wording: Wording
) -> None:
    """Nor does `.git`, of which it says nothing."""
    agent = desk(tmp_path / "project", also=[toolset], front="exclude: [.env, 'secrets/**']")
    write(tmp_path / "project", FILES)
    found, env, git = await among_secrets(agent, tmp_path, GREP, READ, READ_GIT)
    assert found == wording
    assert env == wording
    assert git == wording
    assert "hunter" not in found.partition("\n")[2]


async def test_without_a_word_only_git_is_excluded(tmp_path: Path, wording: Wording) -> None:
    """And with `show_git` not even that."""
    (_, env, git) = await among_secrets(
        desk(tmp_path / "a" / "project", also=["files"]), tmp_path / "a", GREP, READ, READ_GIT
    )
    assert "hunter2" in env
    assert git == wording
    agent = desk(tmp_path / "b" / "project", also=["files"], front="show_git: true")
    assert "hunter2" in (await among_secrets(agent, tmp_path / "b", READ_GIT))[0]


async def test_nothing_is_written_where_paths_are_excluded(tmp_path: Path, wording: Wording) -> None:
    """The model is told which pattern it was."""
    agent = desk(tmp_path / "project", also=["files"], front="exclude: ['secrets/**']")
    (told,) = await among_secrets(agent, tmp_path, WRITE)
    assert told == wording
    assert not (tmp_path / "work/secrets/b").exists()


async def test_a_toolset_and_the_file_exclude_together(tmp_path: Path, wording: Wording) -> None:
    """What either names does not exist."""
    toolset = files_toolset(tmp_path / "work", exclude=["secrets"])
    agent = desk(tmp_path / "project", toolsets={"mine": toolset}, front="exclude: [.env]")
    (found, env, *_) = await among_secrets(agent, tmp_path, GREP, READ)
    assert found == wording
    assert env == wording


async def test_a_toolset_may_show_git(tmp_path: Path) -> None:
    """Whoever makes it in Python asks for it there."""
    agent = desk(tmp_path / "project", toolsets={"mine": files_toolset(tmp_path / "work", show_git=True)})
    assert "hunter2" in (await among_secrets(agent, tmp_path, READ_GIT))[0]


@pytest.mark.parametrize("bound", ["in the section", "by the program", "by a provider", "by a provider for each call"])
async def test_what_the_file_excludes_holds_for_every_filesystem_of_the_run(
    bound: str, tmp_path: Path, wording: Wording
) -> None:
    """A section of the program's brings files of its own, or finds those that the program binds."""
    files = InMemoryFilesystem(FILES)
    resources: dict[type[Any], object] = {}
    if bound == "by the program":
        resources = {Filesystem: files}
    elif bound == "by a provider":
        resources = {Filesystem: Binding(Filesystem, lambda _: files)}
    elif bound == "by a provider for each call":
        resources = {Filesystem: Binding(Filesystem, lambda _: InMemoryFilesystem(FILES))}
    section = VfsToolsSection(files if bound == "in the section" else None)
    agent = desk(tmp_path / "project", toolsets={"notes": section}, front="exclude: [.env, secrets]")
    (found, env) = await among_secrets(agent, tmp_path, GREP, READ, resources=resources)
    assert found == wording
    assert env == wording


async def test_an_agent_that_is_made_sees_no_more_than_its_maker(tmp_path: Path, wording: Wording) -> None:
    """Nor does one that that one makes; else making one would be a way out."""
    agent = desk(tmp_path / "project", also=["files_ro", "dynamic_agents"], front="exclude: [.env]")
    write(tmp_path / "work", FILES)
    arguments = {"name": "helper", "instructions": "Work.", "tools": [], "toolsets": ["files_ro"]}
    log = CallLog()
    script = [
        Reply(
            calls=[
                Call("agent_create", arguments, id="c1"),
                Call("agent_call", {"agent": "helper", "input": "Go."}, id="c2"),
            ]
        ),
        *inside("c2", [Reply(calls=[Call("read_file", {"path": ".env"}, id="n1")]), Reply(text="none")]),
        Reply(text="Done."),
    ]
    await play(agent, script, root=tmp_path / "work", listener=log)
    told = [event.content for event in log.ended]
    assert list(told) == wording
    assert not any("hunter2" in each for each in told)


@pytest.mark.parametrize(
    "lines",
    [
        pytest.param("exclude: .env", id="no list"),
        pytest.param("exclude: [1]", id="number"),
        pytest.param("exclude: [[a]]", id="list in a list"),
        pytest.param("exclude: ['']", id="empty"),
        pytest.param("exclude: [../x]", id="outside"),
        pytest.param("exclude: [/etc]", id="absolute"),
        pytest.param("show_git: 1", id="number for git"),
        pytest.param("show_git: [true]", id="list for git"),
    ],
)
def test_slip_in_an_agent_file_is_told_with_its_place(lines: str, wording: Wording) -> None:
    """A pattern that fits nothing would protect nothing."""
    with pytest.raises(AgentFileError) as caught:
        parse_agent_file(f"---\nname: desk\n{lines}\n---\nWork.", file="desk.agent")
    assert str(caught.value) == wording
