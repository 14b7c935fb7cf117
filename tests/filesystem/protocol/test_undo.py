"""How every filesystem is undone: by hand, and as a part of the calls that write to it."""

from __future__ import annotations

import contextvars
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor

import pytest

from handrail.errors import ReadOnlyViolation, SnapshotError, TransactionClosedError, TurnConflictError
from handrail.filesystem import Filesystem, InMemoryFilesystem
from handrail.filesystem.path_filters import ExcludedPaths, PathFilter
from handrail.transaction import Transaction, current, view_for_call
from handrail.turns import draw_ticket
from tests.filesystem.kit import call, tree_of, unchanged
from tests.kit import raises
from tests.wording import Wording

Make = Callable[..., Filesystem]
FILES: Mapping[str, str | bytes] = {"notes/plan.md": "plan", "data.bin": b"\xff"}

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
    with call(fs) as transaction:
        change(fs)
        transaction.commit()
    assert tree_of(fs) == tree_of(expected)


@pytest.mark.parametrize("what,change", CHANGES.items(), ids=CHANGES)
def test_call_that_reads_writes_nothing(make: Make, what: str, change: Change) -> None:
    """The refusal says what was tried, and reading goes on."""
    fs = make(FILES)
    with unchanged(tree_of, fs), call(fs, writes=False), pytest.raises(ReadOnlyViolation) as caught:
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
    with ThreadPoolExecutor(1) as threads, pytest.raises(TransactionClosedError):
        threads.submit(context.run, change, fs).result()
    assert tree_of(fs) == before


def test_call_joins_with_its_first_change_and_not_with_reading(make: Make) -> None:
    """Reading costs no snapshot."""
    fs = make(FILES)
    with call(fs) as transaction:
        fs.read_text("notes/plan.md")
        assert not transaction.participants
        fs.write_text("a", "x")
        assert list(transaction.participants) == [fs]


def test_change_waits_for_nobody_and_is_refused_if_another_call_holds_the_turn(make: Make, wording: Wording) -> None:
    """A filesystem that is no resource of the call's prompt is not written to while another call uses it."""
    fs = make(FILES)
    other = draw_ticket((fs.turn,), exclusive=True)
    stranger = draw_ticket((), exclusive=True)
    with Transaction("stranger", ticket=stranger, writes=True), raises(TurnConflictError, wording):
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
        with call(fs, inside=outer) as inner:
            fs.write_text("a", "3")
            inner.commit()
        assert tree_of(fs) == {"a": b"3"}
    assert tree_of(fs) == {"a": b"0"}


def test_handler_may_go_back_before_its_call_and_is_undone_like_any_write(make: Make) -> None:
    """Restoring is a change: if the call fails, what it took back is there again."""
    fs = make({"a": "0"})
    old = fs.snapshot()
    fs.write_text("a", "1")
    fs.write_text("b", "1")
    with call(fs):
        fs.restore(old)
        assert tree_of(fs) == {"a": b"0"}
    assert tree_of(fs) == {"a": b"1", "b": b"1"}
    with call(fs) as transaction:
        fs.restore(old)
        transaction.commit()
    assert tree_of(fs) == {"a": b"0"}


def test_going_back_is_refused_where_writing_is(make: Make, wording: Wording) -> None:
    """A handler that only reads, or that outlives its call, changes nothing by restoring a snapshot of its own."""
    fs = make({"a": "0"})
    old = fs.snapshot()
    fs.write_text("a", "1")
    with call(fs, writes=False), raises(ReadOnlyViolation, wording):
        fs.restore(old)
    with call(fs) as transaction:
        transaction.commit()
        with raises(TransactionClosedError, wording):
            fs.restore(old)
    assert fs.read_text("a") == "1"


def test_call_that_rolls_back_inside_its_own_block_is_undone(make: Make) -> None:
    """A transaction may restore while it is still the current one."""
    fs = make({"a": "0"})
    with call(fs) as transaction:
        fs.write_text("a", "1")
        transaction.rollback()
        assert current() is transaction
        assert tree_of(fs) == {"a": b"0"}


def test_what_is_no_snapshot_of_the_filesystem_is_refused(make: Make) -> None:
    """Nothing changes."""
    fs = make(FILES)
    before, kept = tree_of(fs), fs.snapshot()
    for foreign in (InMemoryFilesystem(FILES).snapshot(), None, "snapshot"):
        with pytest.raises(SnapshotError):
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
            with pytest.raises(TransactionClosedError):
                threads.submit(write, late).result()
    with pytest.raises(TransactionClosedError):
        view.restore(view.snapshot())
    assert tree_of(fs) == before


def test_a_view_is_equal_to_its_filesystem_and_not_the_same_object(make: Make) -> None:
    """It has its class. A filesystem behind a filter is another one, and so are other files."""
    fs, other = make(FILES), make(FILES)
    with call(fs) as transaction:
        view = view_for_call(fs, transaction)
    filtered = fs.filtered(PathFilter(reading=(ExcludedPaths(("secret/**",)),)))
    assert view is not fs
    assert view == fs == view_for_call(view, transaction)
    assert (type(view), hash(view)) == (type(fs), hash(fs))
    assert fs not in (filtered, other, "notes")
