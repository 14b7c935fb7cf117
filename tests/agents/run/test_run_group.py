"""The folders of a process: opened once, shared by runs side by side, closed with the last."""

from __future__ import annotations

import os
import re
import threading
from datetime import timedelta
from pathlib import Path

import pytest
from typing_extensions import override

from handrail.agents.run.run_group import OpenFolders
from handrail.errors import AgentError, FilesystemBusyError, StoreUnavailableError
from handrail.filesystem import HostFilesystem
from handrail.filesystem.disk import Disk
from handrail.filesystem.host.journal import NO_BEFORE_IMAGE, JournalFile, JournalHeader
from handrail.filesystem.host.recovery import default_journal_folder
from handrail.store import open as open_store
from handrail.testing import Call
from handrail.waiting import run_in_thread
from tests.agents.desks import called, desk, play
from tests.filesystem.kit import Decisions
from tests.wording import Wording

AT_ONCE = timedelta(0)


def test_runs_side_by_side_share_one_filesystem_and_the_last_closes_it(tmp_path: Path) -> None:
    """While one of them uses it, it stays open; afterwards somebody else may have the folder."""
    folders = OpenFolders()
    with folders.opened(tmp_path, None) as first:
        with folders.opened(tmp_path, None) as second:
            assert second is first
        first.write_text("a.txt", "still open")
        with pytest.raises(FilesystemBusyError):
            HostFilesystem(tmp_path, wait=AT_ONCE)
    with HostFilesystem(tmp_path, wait=AT_ONCE) as alone:
        assert alone.read_text("a.txt") == "still open"


def test_a_folder_that_somebody_else_has_is_told_at_once(tmp_path: Path) -> None:
    """Waiting for it would hold up the event loop, and with it the runs beside this one."""
    folders = OpenFolders()
    with HostFilesystem(tmp_path), pytest.raises(FilesystemBusyError), folders.opened(tmp_path, None):
        pass
    with folders.opened(tmp_path, None) as filesystem:
        assert filesystem.list() == ()


def test_two_stores_cannot_decide_about_one_folder(tmp_path: Path, wording: Wording) -> None:
    """Which of them would say what was committed?"""
    (root := tmp_path / "root").mkdir()
    folders = OpenFolders()
    with open_store(f"sqlite:///{tmp_path / 'a.db'}") as store:
        with folders.opened(root, store), pytest.raises(AgentError) as raised, folders.opened(root, None):
            pass
        assert str(raised.value) == wording
        with folders.opened(root, store) as first, folders.opened(root, store) as second:
            assert first is second


@pytest.mark.anyio
async def test_a_folder_is_opened_beside_the_event_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """An opening restores what a killed process has left, for as long as that takes; other runs go on meanwhile."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    (root := tmp_path / "root").mkdir()
    (root / "new.txt").touch()
    HostFilesystem(root).close()
    folder = os.open(default_journal_folder(root, os.environ), os.O_RDONLY)
    journal = JournalFile("abc", folder, Disk(), synced=False)
    journal.record_images({"new.txt": NO_BEFORE_IMAGE}, JournalHeader(root.stat().st_ino, None))
    journal.close()
    os.close(folder)
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
    HostFilesystem(first).close()
    folder = os.open(default_journal_folder(first, os.environ), os.O_RDONLY)
    journal = JournalFile("abc", folder, Disk(), synced=False)
    journal.record_images({"a": NO_BEFORE_IMAGE}, JournalHeader(first.stat().st_ino, "fake:one"))
    journal.prepare()
    journal.close()
    os.close(folder)
    opening = run_in_thread(lambda: folders.opened(first, Slow()).__enter__())
    assert reached.wait(60)
    with folders.opened(second, None) as other:
        assert other.list() == ()
    may_go_on.set()
    with pytest.raises(StoreUnavailableError):
        opening.result()
    with folders.opened(first, Decisions()) as again:
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
        folders.opened((tmp_path / above).resolve(), None).__enter__()
    assert re.sub("[0-9a-f]{32}", "ID", str(caught.value)) == wording
    assert [path.name for path in home.iterdir()] == ["work"]
    with folders.opened(home / "work", None) as filesystem:
        assert filesystem.list() == ()
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    with folders.opened(home, None) as filesystem:
        assert filesystem.exists("work")
