"""Toolsets, folders and the current run of a run of an agent."""

from __future__ import annotations

import os
import re
import threading
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from pydantic_ai import RunContext
from pydantic_ai.toolsets import AbstractToolset, ToolsetTool, WrapperToolset
from typing_extensions import override

from handrail.agents import Answer, ApprovalRules, Rule, RunOptions, current_run, load_agent, shell_toolset
from handrail.agents.run.run_group import OpenFolders
from handrail.errors import AgentError, FilesystemBusyError, StoreUnavailableError
from handrail.filesystem import HostFilesystem
from handrail.filesystem.disk import Disk
from handrail.filesystem.host.journal import NO_BEFORE_IMAGE, JournalFile, JournalHeader
from handrail.filesystem.host.recovery import default_journal_folder
from handrail.prompt import MarkdownSection, ToolContext, ToolResult
from handrail.prompt import Tool as HandrailTool
from handrail.runtime import ToolInvoked
from handrail.session import Session
from handrail.store import open as open_store
from handrail.testing import Call, Reply, ScriptedModel
from handrail.waiting import run_in_thread
from tests.agents import active_run_notes
from tests.agents.active_run_notes import Note
from tests.agents.kit import DONE, agent, called, desk, play, refusal, write
from tests.filesystem.kit import Decisions
from tests.wording import Wording

pytestmark = pytest.mark.anyio


def section(*names: str, done: list[str]) -> MarkdownSection[None]:
    """A section with tools of these names, which note that they were called."""

    def tool(name: str) -> HandrailTool[None, None]:
        def carry_out(params: None, *, context: ToolContext) -> ToolResult[None]:
            done.append(name)
            return ToolResult.ok(None, message=name)

        return HandrailTool[None, None](name=name, description="Do it.", handler=carry_out)

    return MarkdownSection(title=names[0], template="T.", tools=[tool(name) for name in names])


async def test_folders_that_lie_in_each_other_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wording: Wording
) -> None:
    """Whichever is opened first; the same folder is the same filesystem."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    (tmp_path / "root" / "below").mkdir(parents=True)

    def make(ctx: RunContext[Any]) -> AbstractToolset[Any] | None:
        run = current_run()
        folders = [run.root, run.root / "below"][:: ctx.deps]
        assert run.filesystem(folders[0]) is run.filesystem(folders[0] / ".")
        run.filesystem(folders[1])
        return None

    loaded = desk(tmp_path / "project", toolsets={"make": make})
    for order in (1, -1):
        with refusal(AgentError, wording):
            await play(loaded, [DONE], root=tmp_path / "root", deps=order)


async def test_a_shell_that_only_looks_is_allowed_and_one_that_does_more_is_asked_about(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wording: Wording
) -> None:
    """Where no rule speaks."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    more = shell_toolset(allow=[("make", "test")], prefix="more")
    loaded = desk(tmp_path / "project", toolsets={"more": more}, also=["shell"])
    reports = await loaded.inspect(RunOptions(root=tmp_path / "project"))
    assert [(report.source, report.approval.verdict) for report in reports] == [(wording, "ask"), (wording, "allow")]


async def test_a_call_that_a_toolset_makes_by_itself_is_held_to_the_rules(tmp_path: Path) -> None:
    """Also of a tool that the model has not called; a toolset of the program may stand between."""
    done: list[str] = []

    class Other(WrapperToolset[Any]):
        async def call_tool(
            self, name: str, tool_args: dict[str, Any], ctx: RunContext[Any], tool: ToolsetTool[Any]
        ) -> Any:
            return await super().call_tool("stamp", tool_args, ctx, tool)

    def make(ctx: RunContext[Any]) -> AbstractToolset[Any]:
        assert current_run().path_filter.unreadable(".env") is not None
        return Other(current_run().section_toolset(section("look", "stamp", done=done), id="desk"))

    loaded = desk(tmp_path, toolsets={"own": make}, front="exclude: [.env]")
    await play(loaded, called(Call("look")), rules=ApprovalRules(deny=(Rule("stamp"),)))
    assert done == []
    await play(loaded, called(Call("look")))
    assert done == ["stamp"]


def test_a_file_that_its_project_leaves_out_for_another_of_its_name_is_refused(
    tmp_path: Path, wording: Wording
) -> None:
    """It is not clear which of the two is meant."""
    config = '[tool.handrail]\nagents = ["in/*.agent"]\n'
    write(tmp_path, {"desk.agent": agent("desk"), "in/desk.agent": agent("desk"), "pyproject.toml": config})
    with refusal(AgentError, wording):
        load_agent(tmp_path / "desk.agent")
    front = "input_model_ref: desk.py:Order"
    write(tmp_path, {"other.agent": agent("other", front=front), "desk.py": "class Order:\n    pass\n"})
    with refusal(AgentError, wording):
        load_agent(tmp_path / "other.agent")


AT_ONCE = timedelta(0)


def test_runs_side_by_side_share_one_filesystem_and_the_last_closes_it(tmp_path: Path) -> None:
    """While one of them uses it, it stays open; afterwards somebody else may have the folder."""
    folders = OpenFolders()
    with folders.use(tmp_path, None) as first:
        with folders.use(tmp_path, None) as second:
            assert second is first
        first.write_text("a.txt", "still open")
        with pytest.raises(FilesystemBusyError):
            HostFilesystem(tmp_path, wait=AT_ONCE)
    with HostFilesystem(tmp_path, wait=AT_ONCE) as alone:
        assert alone.read_text("a.txt") == "still open"


def test_two_stores_cannot_decide_about_one_folder(tmp_path: Path, wording: Wording) -> None:
    """Which of them would say what was committed?"""
    (root := tmp_path / "root").mkdir()
    folders = OpenFolders()
    with open_store(f"sqlite:///{tmp_path / 'a.db'}") as store:
        with folders.use(root, store), pytest.raises(AgentError) as raised, folders.use(root, None):
            pass
        assert str(raised.value) == wording
        with folders.use(root, store) as first, folders.use(root, store) as second:
            assert first is second


def leave_journal(root: Path, store: str | None) -> None:
    """Leave what a process leaves that is killed in a change of `new.txt`; a store may decide about it."""
    HostFilesystem(root).close()
    folder = os.open(default_journal_folder(root, os.environ), os.O_RDONLY)
    journal = JournalFile("abc", folder, Disk(), synced=False)
    journal.record_images({"new.txt": NO_BEFORE_IMAGE}, JournalHeader(root.stat().st_ino, store))
    if store is not None:
        journal.prepare()
    journal.close()
    os.close(folder)


async def test_a_folder_is_opened_beside_the_event_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """An opening restores what a killed process has left, for as long as that takes; other runs go on meanwhile."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    (root := tmp_path / "root").mkdir()
    (root / "new.txt").touch()
    leave_journal(root, None)
    agent = desk(tmp_path / "project", also=["files_ro"])
    with caplog.at_level("INFO", "handrail.filesystem"):
        await play(agent, called(Call("list_files")), root=root)
    threads = {record.thread for record in caplog.records if record.module == "recovery"}
    assert threads
    assert threading.get_ident() not in threads
    with HostFilesystem(root, wait=AT_ONCE) as closed:
        assert closed.list() == ()


def test_a_folder_that_is_being_opened_does_not_hold_up_another_one(tmp_path: Path) -> None:
    """Nor does an opening that fails leave anything behind."""
    folders, reached, may_go_on = OpenFolders(), threading.Event(), threading.Event()

    class Slow(Decisions):
        @override
        def is_committed(self, journal_id: str) -> bool:
            reached.set()
            assert may_go_on.wait(60)
            raise StoreUnavailableError("the store does not answer", store=self.url)

    (first := tmp_path / "first").mkdir()
    (second := tmp_path / "second").mkdir()
    leave_journal(first, "fake:one")
    opening = run_in_thread(lambda: folders.use(first, Slow()).__enter__())
    assert reached.wait(60)
    with folders.use(second, None) as other:
        assert other.list() == ()
    may_go_on.set()
    with pytest.raises(StoreUnavailableError):
        opening.result()
    with folders.use(first, Decisions()) as again:
        assert again.list() == ()


@pytest.mark.parametrize("above", ["home", "."])
def test_a_folder_that_holds_the_journals_is_refused_with_its_cure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, above: str, wording: Wording
) -> None:
    """The home folder, or one above it: nothing is made there, and a folder below it is fine."""
    home = tmp_path / "home"
    (home / "work").mkdir(parents=True)
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.delenv("XDG_STATE_HOME", raising=False)
    folders = OpenFolders()
    with pytest.raises(AgentError) as caught:
        folders.use((tmp_path / above).resolve(), None).__enter__()
    assert re.sub("[0-9a-f]{32}", "ID", str(caught.value)) == wording
    assert [path.name for path in home.iterdir()] == ["work"]
    with folders.use(home / "work", None) as filesystem:
        assert filesystem.list() == ()
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    with folders.use(home, None) as filesystem:
        assert filesystem.exists("work")


TOOLS = """
from handrail import tool
from tests.agents.active_run_notes import plain, path_of_run
decorated = tool(name="decorated")(plain)
TOOLS = [plain, decorated, path_of_run]
"""


@pytest.mark.parametrize("name", ["plain", "decorated"])
@pytest.mark.parametrize("fails", [True, False])
def test_session_and_files_that_a_tool_keeps_are_fenced(tmp_path: Path, name: str, *, fails: bool) -> None:
    """Its thread writes as part of the call, whose failure undoes it, and is refused when the call has ended."""
    (tmp_path / "desk.agent").write_text("---\nname: desk\ntools: [plain, decorated, path_of_run]\n---\nHello.\n")
    (tmp_path / "tools.py").write_text(TOOLS)
    session, root = Session(), tmp_path / "root"
    root.mkdir()
    calls = [Call(name, {"fails": fails}), Call("path_of_run", {})]
    model = ScriptedModel([Reply(calls=calls), Reply(text="Done.")])
    options = RunOptions(session=session, model=model, root=root, asker=lambda _: Answer("yes"))
    load_agent(tmp_path / "desk.agent").run("Note it.", options)
    assert [event.success for event in session[ToolInvoked]] == [not fails, True]
    assert session[ToolInvoked].all()[1].result.render() == "desk"
    kept = [] if fails else [Note("in a thread")]
    assert [*session[Note]] == kept
    assert sorted(path.name for path in root.iterdir()) == [note.text for note in kept]
    assert active_run_notes.late() == ["TransactionClosedError", "TransactionClosedError"]
    assert [*session[Note]] == kept
