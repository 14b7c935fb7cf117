"""The files of a fork: a new folder, as it was at the call, from what is kept for undo."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Generator
from dataclasses import dataclass
from pathlib import Path

import pytest

from handrail import store as stores
from handrail.errors import FilesystemError, PathConflictError, SessionError
from handrail.filesystem import Filesystem, HostFilesystem
from handrail.filesystem.copies import digest_folder
from handrail.prompt import ToolContext, ToolResult
from handrail.runtime import Session, ToolCall
from handrail.store import Store
from tests.kit import Note, executor, tool


@dataclass
class Work:
    """A session that works on a folder.

    Attributes:
        store: its store.
        root: the folder.
        files: the filesystem over it.
        session: the session.
    """

    store: Store
    root: Path
    files: HostFilesystem
    session: Session

    def call(self, call_id: str, act: Callable[[Filesystem, Path], object], session: Session | None = None) -> None:
        """Make a call that changes files."""

        def run(params: Note, *, context: ToolContext) -> ToolResult[Note]:
            act(context.resources.get(Filesystem), self.root)
            return ToolResult.ok(params)

        own = session or self.session
        with executor(tool("act", run), session=own, resources={Filesystem: self.files}) as loop:
            message = loop.execute(ToolCall(call_id, "act", {"text": call_id}), reply="r")
            assert message.success, message.content


def write(path: str, text: str) -> Callable[[Filesystem, Path], object]:
    """Writes a file."""
    return lambda files, _: files.write_text(path, text)


def by_program(files: Filesystem, root: Path) -> None:
    """A program changes the tree: contents, modes, links, what is not tracked."""
    assert isinstance(files, HostFilesystem)
    files.keep_tree()
    script = "rm a.txt; mkdir -p new/er; echo x > new/er/y; chmod 755 b.sh; ln -s b.sh link; echo z > c.log"
    subprocess.run(["sh", "-c", script], cwd=root, check=True)


@pytest.fixture
def work(tmp_path: Path) -> Generator[Work]:
    """A session with four calls."""
    root = tmp_path / "root"
    root.mkdir()
    (root / "b.sh").write_text("echo\n", encoding="utf-8")
    with (
        stores.open(f"sqlite:///{tmp_path / 'desk.db'}") as store,
        HostFilesystem(root, journal=tmp_path / "journal", store=store) as files,
        Session.open(store, "s") as session,
    ):
        yield Work(store, root, files, session)


STEPS: dict[str, Callable[[Filesystem, Path], object]] = {
    "c0": write("a.txt", "one"),
    "c1": write("a.txt", "two"),
    "c2": by_program,
    "c3": lambda files, _: files.move("new", "old"),
    "c4": lambda files, _: files.remove("b.sh"),
}


@pytest.mark.parametrize("at", STEPS)
def test_fork_has_the_files_of_its_call(work: Work, at: str, tmp_path: Path) -> None:
    """Whatever came after it, also by programs; those of the origin stay, and the fork works on."""
    states: dict[str, str] = {}
    for call_id, act in STEPS.items():
        work.call(call_id, act)
        states[call_id] = digest_folder(work.root)
    new = tmp_path / "new"
    with work.session.fork(session_id="f", at=("r", at), files={work.files: new}) as fork:
        assert (digest_folder(new), digest_folder(work.root)) == (states[at], states["c4"])
        with HostFilesystem(new, journal=tmp_path / "other", store=work.store) as files:
            other = Work(work.store, new, files, fork)
            other.call("d", write("a.txt", "fork"))
    assert digest_folder(work.root) == states["c4"]


def test_fork_undoes_what_sessions_below_have_done(work: Work, tmp_path: Path) -> None:
    """As agents do that a call has called."""
    work.call("c0", write("a.txt", "one"))
    with work.session.child(session_id="s/child") as child:
        work.call("d0", write("a.txt", "two"), child)
    work.call("c1", write("a.txt", "three"))
    with work.session.fork(at=("r", "c0"), files={work.files: tmp_path / "new"}):
        assert (tmp_path / "new" / "a.txt").read_text(encoding="utf-8") == "one"


def test_fork_without_files_shares_them(work: Work) -> None:
    """As it does at its end, if it is copied there."""
    work.call("c0", write("a.txt", "one"))
    with work.session.fork(files={work.files: work.root.parent / "new"}), work.session.fork(at=("r", "c0")):
        assert digest_folder(work.root) == digest_folder(work.root.parent / "new")


@pytest.mark.parametrize("why", ["forgotten", "not kept", "changed", "exists", "inside"])
def test_files_that_cannot_be_had_are_refused(work: Work, why: str, tmp_path: Path) -> None:
    """The call is named; there is neither a folder nor a fork."""
    new = tmp_path / "new"
    work.call("c0", write("a.txt", "one"))
    if why == "not kept":
        work.files.close()
        work.files = HostFilesystem(work.root, journal=tmp_path / "journal", store=work.store, undo=False)
    work.call("c1", write("a.txt", "two"))
    if why == "forgotten":
        for path in (tmp_path / "journal").glob("undo-*"):
            path.unlink()
    elif why == "changed":
        (work.root / "a.txt").write_text("by hand", encoding="utf-8")
    elif why == "exists":
        new.mkdir()
    elif why == "inside":
        new = work.root / "new"
    error = {"changed": PathConflictError, "exists": FilesystemError, "inside": FilesystemError}.get(why, SessionError)
    with pytest.raises(error) as refused:
        work.session.fork(session_id="f", at=("r", "c0"), files={work.files: new})
    assert ("r/c1" in str(refused.value)) is (error is SessionError)
    assert (new.exists(), work.store.find("f")) == (why == "exists", None)
    assert not [*tmp_path.glob(".handrail-*"), *work.root.glob(".handrail-*")]
    work.files.close()


def test_session_in_memory_has_no_files_of_then(work: Work, tmp_path: Path) -> None:
    """It keeps no history."""
    with pytest.raises(SessionError):
        Session().fork(files={work.files: tmp_path / "new"})
