"""What every filesystem does, whatever keeps its files, and how it is undone: by hand, and with calls."""

from __future__ import annotations

import contextvars
import hashlib
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, cast

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from handrail import errors
from handrail.filesystem import FileStart, FileStat, Filesystem, InMemoryFilesystem
from handrail.filesystem.path_filters import ExcludedPaths, PathFilter
from handrail.transaction import Transaction, current, view_for_call
from handrail.turns import draw_ticket
from tests.filesystem.kit import READS, WRITES, Operate, call, tree_of, unchanged
from tests.kit import raises
from tests.wording import Wording

Make = Callable[..., Filesystem]
FILES: Mapping[str, str | bytes] = {"notes/plan.md": "1. look\n", "notes/old/a.md": "a", "data.bin": b"\xff\x00"}


one_fixture = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])


@given(data=st.binary(max_size=64))
@one_fixture
def test_bytes_come_back_as_they_were_written(make: Make, data: bytes) -> None:
    """A file holds exactly the bytes that were written, and its identity is their SHA-256."""
    fs = make()
    fs.write_bytes("a.bin", data)
    assert fs.read_bytes("a.bin") == data
    assert fs.stat("a.bin") == FileStat("a.bin", "file", len(data))
    assert fs.identity("a.bin") == hashlib.sha256(data).hexdigest()


@pytest.mark.parametrize("most_bytes, data", [(0, b""), (3, b"abc"), (6, b"abcdef"), (99, b"abcdef")])
def test_start_of_a_file_is_told_with_its_size(make: Make, most_bytes: int, data: bytes) -> None:
    """No more than was asked for; the size is that of the whole content."""
    assert make({"a.bin": b"abcdef"}).read_start("a.bin", most_bytes) == FileStart(data, 6)


@given(text=st.text(st.characters(codec="utf-8"), max_size=64))
@one_fixture
def test_text_comes_back_as_it_was_written(make: Make, text: str) -> None:
    """Text is kept in UTF-8 and nothing is done to its line ends."""
    fs = make()
    fs.write_text("a.txt", text)
    assert fs.read_text("a.txt") == text
    assert fs.read_bytes("a.txt") == text.encode()


def test_bytes_that_were_written_do_not_change_with_their_source(make: Make) -> None:
    """A store keeps what it was given at the time, not the buffer it was given in."""
    fs, buffer = make(), bytearray(b"old")
    fs.write_bytes("a", cast("bytes", buffer))
    buffer[:] = b"new"
    assert fs.read_bytes("a") == b"old"


OPERATIONS: dict[str, Operate] = {
    **READS, **WRITES, "exists": lambda fs, path: fs.exists(path), "stat": lambda fs, path: fs.stat(path),
    "list": lambda fs, path: fs.list(path), "glob": lambda fs, path: fs.glob(path),
    "remove": lambda fs, path: fs.remove(path), "move from": lambda fs, path: fs.move(path, "elsewhere"),
    "move to": lambda fs, path: fs.move("data.bin", path),
}  # fmt: skip


@pytest.mark.parametrize("operation", OPERATIONS.values(), ids=OPERATIONS)
@pytest.mark.parametrize("path", ["../secret", "/etc/passwd", "notes\\plan.md", "", "a\0b"])
def test_no_operation_leaves_the_root(make: Make, operation: Operate, path: str) -> None:
    """Every operation refuses what is no path inside the root, and nothing changes."""
    fs = make(FILES)
    with unchanged(tree_of, fs), pytest.raises(errors.PathEscapeError):
        operation(fs, path)


@pytest.mark.parametrize("operation", [*READS, "stat", "list", "remove", "move from"])
@pytest.mark.parametrize("path", ["absent.md", "notes/absent/deep.md", "data.bin/below"])
def test_what_does_not_exist_is_named_with_the_nearest(make: Make, operation: str, path: str, wording: Wording) -> None:
    """The error is a `FileNotFoundError` too, and says where to look."""
    fs = make(FILES)
    with unchanged(tree_of, fs), raises(errors.PathNotFoundError, wording) as caught:
        OPERATIONS[operation](fs, path)
    assert isinstance(caught.value, FileNotFoundError)
    assert caught.value.path == path


IN_THE_WAY = {
    "notes": ["read_text", "identity", "read_start", "write_text", "remove", "move to"],
    "data.bin": ["list", "make_folder"], "data.bin/new.md": ["write_text"], ".": ["remove", "move from"],
    "notes/plan.md": ["move to"],
}  # fmt: skip


@pytest.mark.parametrize("operation,path", [(name, path) for path, names in IN_THE_WAY.items() for name in names])
def test_operation_in_the_way_of_an_entry_is_refused(make: Make, operation: str, path: str, wording: Wording) -> None:
    """A file where a folder is needed, and the other way round, is distinguished from what does not exist."""
    fs = make(FILES)
    with unchanged(tree_of, fs), raises(errors.PathConflictError, wording):
        OPERATIONS[operation](fs, path)


def test_bytes_that_are_no_text_are_not_read_as_text(make: Make, wording: Wording) -> None:
    """The error names the byte and the way to read it."""
    with raises(errors.FilesystemError, wording):
        make(FILES).read_text("data.bin")


def test_lone_surrogate_is_not_written(make: Make, wording: Wording) -> None:
    """UTF-8 has no bytes for half a character; the file stays as it was."""
    fs = make({"a.md": "kept"})
    with raises(errors.FilesystemError, wording):
        fs.write_text("a.md", "abc\ud800")
    assert fs.read_text("a.md") == "kept"


def test_text_is_not_written_as_bytes(make: Make) -> None:
    """Nor is a number, of which `bytes` would make so many zeros."""
    fs = make()
    for data in ("text", 5):
        with pytest.raises(TypeError):
            fs.write_bytes("a", cast("Any", data))
    assert fs.list() == ()


def test_folder_is_not_moved_into_itself(make: Make, wording: Wording) -> None:
    """It would hold itself; nothing changes."""
    fs = make(FILES)
    with unchanged(tree_of, fs), raises(errors.PathConflictError, wording):
        fs.move("notes", "notes/inner")


def test_folder_is_not_moved_where_its_paths_would_be_too_long(make: Make, wording: Wording) -> None:
    """All new paths are judged before anything moves."""
    deep = "/".join(["d" * 200] * 15)
    fs = make({f"a/{deep}/file": "x"})
    with unchanged(tree_of, fs), raises(errors.PathEscapeError, wording):
        fs.move("a", "/".join(["e" * 200] * 10))


Change = Callable[[Filesystem], object]
CHANGES: dict[str, Change] = {
    "write notes/new.md": lambda fs: fs.write_text("notes/new.md", "x"),
    "write data.bin": lambda fs: fs.write_bytes("data.bin", b"x"),
    "make the folder a/b": lambda fs: fs.make_folder("a/b"),
    "make the folder notes": lambda fs: fs.make_folder("notes"),
    "remove data.bin": lambda fs: fs.remove("data.bin"),
    "remove notes": lambda fs: fs.remove("notes", recursive=True),
    "move notes to other/notes": lambda fs: fs.move("notes", "other/notes"),
}


each_change = pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)


@each_change
def test_failed_call_leaves_no_trace_and_a_committed_one_its_change(make: Make, change: Change) -> None:
    """Undone to the byte and to the empty folder; or what the same change does outside of calls."""
    fs, expected = make(FILES), make(FILES)
    for files in (fs, expected):
        files.make_folder("notes/empty")
    before = tree_of(fs)
    change(expected)
    with call(fs):
        change(fs)
    assert tree_of(fs) == before
    with call(fs, commits=True):
        change(fs)
    assert tree_of(fs) == tree_of(expected)


@pytest.mark.parametrize("what,change", CHANGES.items(), ids=CHANGES)
def test_call_that_reads_writes_nothing(make: Make, what: str, change: Change) -> None:
    """The refusal says what was tried, and reading goes on."""
    fs = make(FILES)
    with unchanged(tree_of, fs), call(fs, writes=False), pytest.raises(errors.ReadOnlyViolation) as caught:
        change(fs)
    assert caught.value.what == what


@each_change
def test_late_writer_changes_nothing(make: Make, change: Change) -> None:
    """A thread that outlives its call holds an ended transaction."""
    fs = make(FILES)
    before = tree_of(fs)
    with call(fs):
        fs.write_text("early.md", "x")
        context = contextvars.copy_context()
    with ThreadPoolExecutor(1) as threads, pytest.raises(errors.TransactionClosedError):
        threads.submit(context.run, change, fs).result()
    assert tree_of(fs) == before


def test_change_waits_for_nobody_and_is_refused_if_another_call_holds_the_turn(make: Make, wording: Wording) -> None:
    """A filesystem that is no resource of the call's prompt is not written to while another call uses it."""
    fs = make(FILES)
    other = draw_ticket((fs.turn,), exclusive=True)
    stranger = draw_ticket((), exclusive=True)
    with Transaction("stranger", ticket=stranger, writes=True), raises(errors.TurnConflictError, wording):
        fs.write_text("a", "x")
    stranger.release()
    other.release()
    assert not fs.exists("a")


def test_inner_call_is_a_savepoint_of_the_outer_one(make: Make) -> None:
    """A failed inner call is undone alone; a failed outer one takes the committed inner ones along."""
    fs = make({"a": "0"})
    with call(fs) as outer:
        fs.write_text("a", "1")
        with call(fs, inside=outer):
            fs.write_text("a", "2")
            fs.write_text("new", "2")
        assert tree_of(fs) == {"a": b"1"}
        with call(fs, inside=outer, commits=True):
            fs.write_text("a", "3")
        assert tree_of(fs) == {"a": b"3"}
    assert tree_of(fs) == {"a": b"0"}


def test_going_back_is_refused_where_writing_is(make: Make, wording: Wording) -> None:
    """A handler that only reads, or that outlives its call, changes nothing by restoring a snapshot of its own."""
    fs = make({"a": "0"})
    old = fs.snapshot()
    fs.write_text("a", "1")
    with call(fs, writes=False), raises(errors.ReadOnlyViolation, wording):
        fs.restore(old)
    with call(fs) as transaction:
        transaction.commit()
        with raises(errors.TransactionClosedError, wording):
            fs.restore(old)
    assert fs.read_text("a") == "1"


def test_what_is_no_snapshot_of_the_filesystem_is_refused(make: Make) -> None:
    """Nothing changes."""
    fs = make(FILES)
    before, kept = tree_of(fs), fs.snapshot()
    for foreign in (InMemoryFilesystem(FILES).snapshot(), None, "snapshot"):
        with pytest.raises(errors.SnapshotError):
            fs.restore(foreign)
    assert tree_of(fs) == before
    fs.restore(kept)


@each_change
def test_a_view_writes_for_its_call_and_is_refused_after_it(make: Make, change: Change) -> None:
    """In a thread without the context of the call; behind a filter, and as a restored snapshot, too."""
    fs = make(FILES)
    before = tree_of(fs)

    def write(view: Filesystem) -> None:
        assert current() is None
        change(view)

    with ThreadPoolExecutor(1) as threads:
        with call(fs) as transaction:
            view = view_for_call(fs, transaction)
            filtered = view.filtered(PathFilter(reading=(ExcludedPaths(("secret/**",)),)))
            threads.submit(write, view).result()
            assert transaction.participants == (fs,)
            assert change is CHANGES["make the folder notes"] or tree_of(fs) != before
        assert tree_of(fs) == before
        for late in (view, filtered):
            with pytest.raises(errors.TransactionClosedError):
                threads.submit(write, late).result()
    with pytest.raises(errors.TransactionClosedError):
        view.restore(view.snapshot())
    assert tree_of(fs) == before
