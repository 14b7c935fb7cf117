"""Random histories of calls that let programs loose, among the other steps of `test_undo_machine`."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Generator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import rule, run_state_machine_as_test

from handrail.errors import FilesystemError
from handrail.filesystem import Filesystem, HostFilesystem
from handrail.transaction import Transaction
from handrail.turns import draw_ticket
from tests.extent import examples
from tests.filesystem.stores import tree_of
from tests.filesystem.test_undo_machine import FilesystemMachine, contents, paths

Step = tuple[str, str, bytes]
kinds = st.sampled_from(["write", "remove", "move", "program writes", "program removes", "call", "commit", "fail"])
steps = st.lists(st.tuples(kinds, st.just(".git") | paths, contents), min_size=4, max_size=14)


class PlacedFilesystem(HostFilesystem):
    """A filesystem that knows where it is.

    Attributes:
        place: its root.
    """

    def __init__(self, folder: Path) -> None:
        self.place = folder / "root"
        self.place.mkdir()
        super().__init__(self.place, journal=folder / "journal", durability="normal")


@contextmanager
def placed(files: Mapping[str, str | bytes]) -> Generator[Filesystem]:
    """An empty filesystem, which leaves nothing behind but its trees."""
    assert not files
    with tempfile.TemporaryDirectory() as folder:
        with PlacedFilesystem(Path(folder)) as fs:
            yield fs
        assert {left.name for left in Path(folder, "journal").iterdir()} <= {"lock", "root", "tree.git"}


def change(fs: PlacedFilesystem, kind: str, path: str, content: bytes) -> None:
    """Change something through the filesystem, or as a program does, which leaves the git dir of the root alone."""
    there = fs.place / path
    if kind == "write":
        fs.write_bytes(path, content)
    elif kind == "remove":
        fs.remove(path, recursive=True)
    elif kind == "move":
        fs.move(path, f"{path}.moved/{len(content)}")
    elif path != ".git":
        fs.keep_tree()
        if there.is_dir():
            shutil.rmtree(there)
        elif kind == "program removes":
            there.unlink()
        else:
            there.parent.mkdir(parents=True, exist_ok=True)
            with there.open("ab") as file:
                file.write(content)


def make_call(fs: PlacedFilesystem, rest: list[Step], outer: Transaction | None) -> None:
    """Make a call that takes its steps from a list; when it has failed, everything is as it was."""
    before, committed = tree_of(fs), False
    ticket = draw_ticket((fs.turn,) if outer is None else (), exclusive=True, inside=outer.ticket if outer else None)
    with Transaction("tool", ticket=ticket, writes=True, parent=outer) as transaction:
        while rest and not committed:
            kind, path, content = rest.pop(0)
            if kind == "fail":
                break
            if kind == "commit":
                transaction.commit()
                committed = True
            elif kind == "call":
                make_call(fs, rest, transaction)
            else:
                with suppress(FilesystemError, OSError):
                    change(fs, kind, path, content)
    ticket.release()
    assert committed or tree_of(fs) == before


class WholeTreeMachine(FilesystemMachine):
    """One filesystem whose calls let programs loose; snapshots are held and restored between the calls."""

    open_store = staticmethod(placed)

    @rule(steps=steps)
    def call(self, steps: list[Step]) -> None:
        """Make a call, with calls in it."""
        assert isinstance(self.fs, PlacedFilesystem)
        make_call(self.fs, list(steps), None)
        self.tree = tree_of(self.fs)


def test_any_history_of_calls_and_programs_can_be_undone() -> None:
    """Each call that fails, nested or not, leaves no trace; and each snapshot that is held can be restored."""
    run_state_machine_as_test(WholeTreeMachine, settings=settings(max_examples=examples(25), stateful_step_count=20))
