"""What every filesystem does, whatever keeps its files: reading, writing, folders, removing and moving."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from typing import Any, cast

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from handrail.errors import FilesystemError, PathConflictError, PathEscapeError, PathNotFoundError
from handrail.filesystem import FileStart, FileStat, Filesystem
from handrail.transaction import Snapshotable
from handrail.turns import HasTurn
from tests.filesystem.kit import tree_of, unchanged
from tests.kit import raises
from tests.wording import Wording

Make = Callable[..., Filesystem]
FILES: Mapping[str, str | bytes] = {"notes/plan.md": "1. look\n", "notes/old/a.md": "a", "data.bin": b"\xff\x00"}


def test_store_is_a_filesystem_that_can_be_undone_and_takes_turns(make: Make) -> None:
    """A filesystem can be bound as `Filesystem`, and calls know how to undo it and take turns on it."""
    fs = make()
    assert all(isinstance(fs, protocol) for protocol in (Filesystem, Snapshotable, HasTurn))
    assert fs.turn is fs.turn


def test_new_filesystem_holds_the_root_alone(make: Make) -> None:
    """The root exists from the beginning and is a folder."""
    fs = make()
    assert fs.exists(".")
    assert fs.stat(".") == FileStat(".", "folder", 0)
    assert fs.list() == ()


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


@pytest.mark.parametrize("spelling", ["./notes/plan.md", "notes//plan.md", "notes/./old/../plan.md", "notes/plan.md/"])
def test_path_may_be_spelled_in_any_way_that_means_the_same(make: Make, spelling: str) -> None:
    """All spellings of a path are the same file, and results name its shortest form."""
    fs = make(FILES)
    assert fs.read_text(spelling) == "1. look\n"
    assert fs.stat(spelling).path == "notes/plan.md"


Operate = Callable[[Filesystem, str], object]
OPERATIONS: dict[str, Operate] = {
    "read_text": lambda fs, path: fs.read_text(path),
    "read_bytes": lambda fs, path: fs.read_bytes(path),
    "identity": lambda fs, path: fs.identity(path),
    "read_start": lambda fs, path: fs.read_start(path, 1),
    "write_text": lambda fs, path: fs.write_text(path, "x"),
    "write_bytes": lambda fs, path: fs.write_bytes(path, b"x"),
    "exists": lambda fs, path: fs.exists(path),
    "stat": lambda fs, path: fs.stat(path),
    "list": lambda fs, path: fs.list(path),
    "glob": lambda fs, path: fs.glob(path),
    "make_folder": lambda fs, path: fs.make_folder(path),
    "remove": lambda fs, path: fs.remove(path),
    "move from": lambda fs, path: fs.move(path, "elsewhere"),
    "move to": lambda fs, path: fs.move("data.bin", path),
}
READING = ("read_text", "read_bytes", "identity", "read_start")


@pytest.mark.parametrize("operation", OPERATIONS.values(), ids=OPERATIONS)
@pytest.mark.parametrize("path", ["../secret", "/etc/passwd", "notes\\plan.md", "", "a\0b"])
def test_no_operation_leaves_the_root(make: Make, operation: Operate, path: str) -> None:
    """Every operation refuses what is no path inside the root, and nothing changes."""
    fs = make(FILES)
    with unchanged(tree_of, fs), pytest.raises(PathEscapeError):
        operation(fs, path)


@pytest.mark.parametrize("operation", [*READING, "stat", "list", "remove", "move from"])
@pytest.mark.parametrize("path", ["absent.md", "notes/absent/deep.md", "data.bin/below"])
def test_what_does_not_exist_is_named_with_the_nearest_that_does(
    make: Make, operation: str, path: str, wording: Wording
) -> None:
    """The error is a `FileNotFoundError` too, and says where to look."""
    fs = make(FILES)
    with unchanged(tree_of, fs), raises(PathNotFoundError, wording) as caught:
        OPERATIONS[operation](fs, path)
    assert isinstance(caught.value, FileNotFoundError)
    assert caught.value.path == path


IN_THE_WAY = {
    "notes": ["read_text", "identity", "read_start", "write_text", "remove", "move to"],
    "data.bin": ["list", "make_folder"],
    "data.bin/new.md": ["write_text"],
    ".": ["remove", "move from"],
    "notes/plan.md": ["move to"],
}


@pytest.mark.parametrize("operation,path", [(name, path) for path, names in IN_THE_WAY.items() for name in names])
def test_operation_in_the_way_of_another_entry_is_refused(
    make: Make, operation: str, path: str, wording: Wording
) -> None:
    """A file where a folder is needed, and the other way round, is distinguished from what does not exist."""
    fs = make(FILES)
    with unchanged(tree_of, fs), raises(PathConflictError, wording):
        OPERATIONS[operation](fs, path)


def test_bytes_that_are_no_text_are_not_read_as_text(make: Make, wording: Wording) -> None:
    """The error names the byte and the way to read it."""
    with raises(FilesystemError, wording):
        make(FILES).read_text("data.bin")


def test_lone_surrogate_is_not_written(make: Make, wording: Wording) -> None:
    """UTF-8 has no bytes for half a character; the file stays as it was."""
    fs = make({"a.md": "kept"})
    with raises(FilesystemError, wording):
        fs.write_text("a.md", "abc\ud800")
    assert fs.read_text("a.md") == "kept"


def test_text_and_bytes_are_not_taken_for_each_other(make: Make, wording: Wording) -> None:
    """The error names the other method; a number is no data at all."""
    fs = make()
    anything = cast("Any", fs)
    for write, data in ((anything.write_text, b"bytes"), (anything.write_bytes, "text"), (anything.write_bytes, 5)):
        with raises(TypeError, wording):
            write("a", data)
    assert fs.list() == ()


def test_listing_shows_one_folder_sorted(make: Make) -> None:
    """A list holds files and folders alike, and not what those folders hold."""
    fs = make({"b/deep/x": "1", "a.md": "22", "b/c": "333", "B": ""})
    assert fs.list() == (FileStat("B", "file", 0), FileStat("a.md", "file", 2), FileStat("b", "folder", 0))
    assert [stat.path for stat in fs.list("b")] == ["b/c", "b/deep"]


def test_removing_recursively_removes_that_subtree_alone(make: Make) -> None:
    """A name that only begins alike is another name."""
    fs = make({"a/b/c": "1", "a/d": "2", "ab/c": "3", "a.md": "4"})
    fs.remove("a", recursive=True)
    assert tree_of(fs) == {"ab": None, "ab/c": b"3", "a.md": b"4"}


def test_folder_is_not_moved_into_itself(make: Make, wording: Wording) -> None:
    """It would hold itself; nothing changes."""
    fs = make(FILES)
    with unchanged(tree_of, fs), raises(PathConflictError, wording):
        fs.move("notes", "notes/inner")


def test_folder_is_not_moved_where_its_paths_would_be_too_long(make: Make, wording: Wording) -> None:
    """All new paths are judged before anything moves."""
    deep = "/".join(["d" * 200] * 15)
    fs = make({f"a/{deep}/file": "x"})
    with unchanged(tree_of, fs), raises(PathEscapeError, wording):
        fs.move("a", "/".join(["e" * 200] * 10))


def test_path_without_links_resolves_to_itself(make: Make) -> None:
    """In its shortest form, whether anything is there or not."""
    fs = make(FILES)
    assert [fs.resolve(path) for path in ("notes//plan.md", "./new/x", "notes/..")] == ["notes/plan.md", "new/x", "."]
    with pytest.raises(PathEscapeError):
        fs.resolve("../out")
