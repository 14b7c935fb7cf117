"""What it costs to keep what undo needs of a call over files on disk, and to undo one that has changed 10,000 files."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.shadow import FILES, tree
from benchmarks.timing import Bound, Limit
from handrail.filesystem import HostFilesystem
from handrail.transaction import Transaction
from handrail.turns import draw_ticket

WRITE = "write a file on disk"
PROGRAM = f"a program that changes one of {FILES:,} files"
UNDO = f"undo {FILES:,} files of a shell call"

BOUNDS = (Bound(f"{WRITE}, kept for undo", WRITE, 1.25), Bound(f"{PROGRAM}, kept for undo", PROGRAM, 2.5))
LIMITS = (Limit(UNDO, 2_000, "ms"),)


@contextmanager
def cases() -> Generator[dict[str, Callable[[], object]]]:
    """What is measured, by name; the trees are there while the block runs. Each call is committed."""
    with TemporaryDirectory(prefix="handrail-bench-") as folder, ExitStack() as opened:
        cases: dict[str, Callable[[], object]] = {}
        for ending, keeps in (("", False), (", kept for undo", True)):
            root = tree(Path(folder, f"tree-{keeps}"))
            files = opened.enter_context(HostFilesystem(root, journal=Path(folder, f"journal-{keeps}")))
            cases[WRITE + ending] = _writing(files, keeps=keeps)
            cases[PROGRAM + ending] = _program(files, keeps=keeps)
        root = tree(Path(folder, "tree-undo"))
        files = opened.enter_context(HostFilesystem(root, journal=Path(folder, "journal-undo")))
        cases[UNDO] = _undoing(files)
        yield cases


def _call(files: HostFilesystem, work: Callable[[], object], *, keeps: bool) -> str | None:
    ticket = draw_ticket((files.turn,), exclusive=True)
    try:
        with Transaction("tool", ticket=ticket, writes=True) as transaction:
            work()
            undo_id = files.keep_undo(None, "session/call") if keeps else None
            transaction.commit()
            return undo_id
    finally:
        ticket.release()


def _writing(files: HostFilesystem, *, keeps: bool) -> Callable[[], object]:
    numbers = count()
    return lambda: _call(files, lambda: files.write_text("area3/part3/file3.txt", str(next(numbers))), keeps=keeps)


def _program(files: HostFilesystem, *, keeps: bool) -> Callable[[], object]:
    numbers = count()

    def work() -> None:
        files.keep_tree()
        (files.root / "area7" / "part77" / "file77.txt").write_text(f"change {next(numbers)}")

    def call() -> object:
        return _call(files, work, keeps=keeps)

    call()
    return call


def _undoing(files: HostFilesystem) -> Callable[[], object]:
    """Each call undoes the one before it, the first one a program that has changed every file."""

    def program() -> None:
        files.keep_tree()
        for path in files.root.rglob("*.txt"):
            path.write_text(f"of {path.name}, changed\n" * 20)

    newest = [_call(files, program, keeps=True)]

    def undo() -> None:
        undo_id = str(newest.pop())
        assert len(files.undo_changes(undo_id) or ()) == FILES
        newest.append(_call(files, lambda: files.undo(undo_id), keeps=True))

    return undo
