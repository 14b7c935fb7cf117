"""A database that this process has open does not exist for its filesystems, and no operation of theirs drops its locks.

Another process that opens and closes a database without locks takes itself for the last one, and removes the log. So
each test ends with such a process, and with a record that the session can still write.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Generator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import NamedTuple

import pytest

from handrail import store
from handrail.contrib.tools import VfsToolsSection
from handrail.errors import PathConflictError, PathNotFoundError
from handrail.filesystem import HostFilesystem
from handrail.filesystem.disk import open_to_read
from handrail.runtime import Session
from handrail.store import Store
from tests.contrib.suites import SuiteRun
from tests.filesystem.kit import LOOKS, READS, WRITES, Operate, call, die_in_a_call, unchanged
from tests.kit import Note, raises
from tests.wording import Wording

_OTHER = """
import sqlite3, sys
other = sqlite3.connect(sys.argv[1])
other.execute("SELECT count(*) FROM sqlite_master").fetchall()
other.close()
"""

FILES = ("desk.db", "desk.db-wal", "desk.db-shm", "desk.db-holds")
NAMES = (*FILES, "alias", "alias of the index", "data/alias")
UNUSED = ("desk.db-journal", "desk.db-journal/x", "desk.db-holds/new")


class Desk(NamedTuple):
    """A root with an open store in it, a filesystem over it, and a session of the store."""

    root: Path
    files: HostFilesystem
    session: Session

    def check(self) -> None:
        """Check that the store has its locks, and that its session can record."""
        subprocess.run([sys.executable, "-I", "-S", "-c", _OTHER, self.root / "desk.db"], check=True)
        assert (self.root / "desk.db-wal").exists()
        self.session.dispatch(Note("recorded"))


def picture(root: Path) -> dict[str, str]:
    """What is in a tree, without opening a file of the database: that would lose its locks."""
    found = (path for path in root.rglob("*") if path.is_file() and path.stat().st_nlink == 1)
    others = (path for path in found if not path.resolve().name.startswith(("desk.db", "owner-")))
    return dict.fromkeys(map(str, root.rglob("*")), "") | {str(path): path.read_text() for path in others}


def beside_the_call(act: Callable[[], object]) -> None:
    """Do something in a thread that the call does not know of."""
    with ThreadPoolExecutor(1) as threads:
        threads.submit(act).result()


@pytest.fixture(params=["store first", "files first"])
def desk(request: pytest.FixtureRequest, tmp_path: Path) -> Generator[Desk]:
    """A desk; the store is opened before the filesystem, or after it."""
    root = tmp_path / "root"
    (root / "data").mkdir(parents=True)
    (root / "a.txt").write_text("hello")
    (root / "link").symlink_to("desk.db")
    with ExitStack() as stack:
        opened: Store | None = None
        if request.param == "store first":
            opened = stack.enter_context(store.open(f"sqlite:///{root}/desk.db"))
        files = stack.enter_context(HostFilesystem(root, journal=tmp_path / "journal"))
        if opened is None:
            files.read_text("a.txt")
            opened = stack.enter_context(store.open(f"sqlite:///{root}/desk.db"))
        session = stack.enter_context(Session.open(opened, "one"))
        session.dispatch(Note("first"))
        for name in ("alias", "data/alias"):
            (root / name).hardlink_to(root / "desk.db")
        (root / "alias of the index").hardlink_to(root / "desk.db-shm")
        yield Desk(root, files, session)


READING: Mapping[str, Operate] = {**READS, **LOOKS, "scan": lambda fs, path: fs.scan(path, "**")}
WRITING: Mapping[str, Operate] = {**WRITES, "move": lambda fs, path: fs.move("a.txt", path)}


@pytest.mark.parametrize("operation", READING.values(), ids=READING)
def test_a_file_of_an_open_database_is_not_found(desk: Desk, operation: Operate) -> None:
    """Under its own name and under every other, as it is not by an operation that leads through its folder."""
    for name in NAMES:
        with pytest.raises(PathNotFoundError):
            operation(desk.files, name)
        assert not desk.files.exists(name)
    with pytest.raises(FileNotFoundError):
        open_to_read(desk.root / "alias", at=None)
    desk.check()


def test_a_link_to_an_open_database_is_one_like_any_other(desk: Desk) -> None:
    """It is not followed, and can be removed."""
    for read in READS.values():
        with pytest.raises(PathConflictError):
            read(desk.files, "link")
    assert desk.files.stat("link").kind == "symlink"
    desk.files.remove("link")
    desk.check()


@pytest.mark.parametrize("write", WRITING.values(), ids=WRITING)
def test_a_path_of_an_open_database_is_not_written(desk: Desk, write: Operate, wording: Wording) -> None:
    """Nor one of a file that it may make later; what is there stays, and a rollback has nothing to restore."""
    with unchanged(picture, desk.root):
        for name in (*FILES, *UNUSED, "alias", "data/alias"):
            with raises(PathConflictError, wording) if name == "desk.db" else pytest.raises(PathConflictError):
                write(desk.files, name)
        with pytest.raises(PathConflictError):
            desk.files.write_text("link", "x")
    desk.check()


def test_a_search_does_not_find_an_open_database(desk: Desk) -> None:
    """Listings, patterns and the ignore files of a walk; one that is a name of the database is read as none."""
    (desk.root / "data" / ".gitignore").hardlink_to(desk.root / "desk.db")
    for stats in (desk.files.list(), desk.files.glob("**")):
        assert {stat.path for stat in stats} == {"a.txt", "data", "link"}
    tools = SuiteRun(VfsToolsSection(desk.files))
    assert "hello" in tools.call("grep_files", pattern="hello|SQLite").content
    assert "desk.db" not in tools.call("list_files", path=".").content
    for name, more in (("read_file", {}), ("write_file", {"content": "x"}), ("edit_file", {"old": "Q", "new": "x"})):
        assert not tools.call(name, path="alias", **more).success
    desk.check()


def test_a_folder_with_an_open_database_stays(tmp_path: Path, wording: Wording) -> None:
    """It is neither removed nor moved, also if nothing of it is listed."""
    root = tmp_path / "root"
    (root / "outer" / "data").mkdir(parents=True)
    url = f"sqlite:///{root}/outer/data/desk.db"
    with HostFilesystem(root, journal=tmp_path / "journal") as files, store.open(url):
        for folder in ("outer", "outer/data"):
            for refused in (partial(files.remove, folder, recursive=True), partial(files.move, folder, "other")):
                with raises(PathConflictError, wording):
                    refused()
        assert files.list("outer/data") == ()
        assert (root / "outer" / "data" / "desk.db").exists()


def test_a_rollback_leaves_an_open_database_alone(desk: Desk) -> None:
    """It is neither saved nor restored nor removed; what a program did is undone."""
    desk.files.write_text("a.txt", "before")
    before = picture(desk.root)
    with call(desk.files):
        desk.files.keep_tree()
        beside_the_call(lambda: desk.session.dispatch(Note("beside the call")))
        (desk.root / "a.txt").write_text("by a program")
        (desk.root / "made").mkdir()
        (desk.root / "made" / "file").touch()
        (desk.root / "other alias").hardlink_to(desk.root / "desk.db")
    (desk.root / "other alias").unlink()
    assert picture(desk.root) == before
    assert [note.text for note in desk.session[Note].all()] == ["first", "beside the call"]
    desk.check()


def test_a_database_that_is_opened_in_a_call_outlives_its_rollback(tmp_path: Path) -> None:
    """With the folder that was made for it, and in the place of a file that was saved before."""
    root = tmp_path / "root"
    root.mkdir()
    with store.open(f"sqlite:///{root}/old.db") as opened, Session.open(opened, "one") as session:
        session.dispatch(Note("old"))
    with ExitStack() as stack:
        files = stack.enter_context(HostFilesystem(root, journal=tmp_path / "journal"))
        with call(files):
            files.keep_tree()
            (root / "new").mkdir()
            sessions: list[Session] = []
            for name in ("new/desk.db", "old.db"):
                opened = stack.enter_context(store.open(f"sqlite:///{root}/{name}"))
                sessions.append(stack.enter_context(Session.open(opened, "one")))
                beside_the_call(lambda: sessions[-1].dispatch(Note("new")))
            (root / "made").touch()
        assert not (root / "made").exists()
        for session in sessions:
            session.dispatch(Note("newer"))
        assert [note.text for note in sessions[1][Note].all()] == ["old", "new", "newer"]


def test_the_rollback_of_a_killed_process_leaves_its_database_alone(tmp_path: Path) -> None:
    """Although the database is not open any more when the tree is restored."""
    root = tmp_path / "root"
    root.mkdir()
    opening = "from handrail import store", "from handrail.session import Session"
    session = f"opened = store.open('sqlite:///{root}/desk.db')", "session = Session.open(opened, 'one')"
    die_in_a_call(root, "fs.keep_tree()", "(root / 'made').touch()", before=(*opening, *session))
    assert (root / "made").exists()
    HostFilesystem(root, journal=root.with_name("journal")).close()
    assert not (root / "made").exists()
    with store.open(f"sqlite:///{root}/desk.db") as opened:
        Session.open(opened, "one").close()


def test_a_database_that_was_renamed_is_still_protected(desk: Desk) -> None:
    """Until it is closed: the locks belong to the file, and not to its name."""
    (desk.root / "desk.db").rename(desk.root / "renamed")
    for read in READS.values():
        with pytest.raises(PathNotFoundError):
            read(desk.files, "renamed")
    with call(desk.files):
        desk.files.keep_tree()
    (desk.root / "renamed").rename(desk.root / "desk.db")
    desk.check()
