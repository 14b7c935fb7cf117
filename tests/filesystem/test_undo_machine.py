"""Random histories of a filesystem and its snapshots, against a model that copies everything.

What is checked: every operation does or refuses what the model does or refuses; after each step every file, byte and
empty folder is as in the model; every snapshot that is held can be restored, in any order and again and again.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Generator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

from handrail.errors import FilesystemError
from handrail.filesystem import FileStat, Filesystem, HostFilesystem
from handrail.transaction import Transaction
from handrail.turns import draw_ticket
from tests.extent import examples
from tests.filesystem.kit import STORES, OpenStore, tree_of

Tree = dict[str, bytes | None]
paths = st.lists(st.sampled_from("abc"), min_size=1, max_size=3).map("/".join)
contents = st.sampled_from([b"", b"1", b"22"])


def folders_of(path: str) -> list[str]:
    """The folders that a path lies in, but for the root."""
    parts = path.split("/")
    return ["/".join(parts[:count]) for count in range(1, len(parts))]


def below(tree: Tree, path: str) -> list[str]:
    """What lies in a folder, at any depth."""
    return [other for other in tree if other.startswith(f"{path}/")]


def written(tree: Tree, path: str, content: bytes | None) -> Tree | None:
    """The tree with a file or folder put at a path, or `None` if it cannot be."""
    if any(tree.get(folder, b"") is not None for folder in folders_of(path) if folder in tree):
        return None
    is_folder = path in tree and tree[path] is None
    if (content is None and path in tree and not is_folder) or (content is not None and is_folder):
        return None
    return tree | dict.fromkeys(folders_of(path)) | {path: content}


def removed(tree: Tree, path: str, *, recursive: bool) -> Tree | None:
    """The tree without a path, or `None` if it cannot be removed."""
    gone = {path, *below(tree, path)}
    if path not in tree or (len(gone) > 1 and not recursive):
        return None
    return {other: content for other, content in tree.items() if other not in gone}


def moved(tree: Tree, src: str, dst: str) -> Tree | None:
    """The tree with a path moved, or `None` if it cannot be."""
    if src not in tree or dst in tree or dst.startswith(f"{src}/"):
        return None
    made = written(tree, dst, b"")
    if made is None:
        return None
    going = {path: tree[path] for path in (src, *below(tree, src))}
    staying = {path: content for path, content in made.items() if path not in going}
    return staying | {dst + path[len(src) :]: content for path, content in going.items()}


class FilesystemMachine(RuleBasedStateMachine):
    """One filesystem, the model of it, and the snapshots that are held."""

    open_store: OpenStore

    def __init__(self) -> None:
        """Open an empty filesystem."""
        super().__init__()
        self.opened = ExitStack()
        self.fs = self.opened.enter_context(self.open_store({}))
        self.tree: Tree = {}
        self.held: list[tuple[object, Tree]] = []

    def teardown(self) -> None:
        """Clean up after the store."""
        self.opened.close()

    @rule(path=paths, content=contents)
    def write(self, path: str, content: bytes) -> None:
        """Write a file."""
        self.check(lambda: self.fs.write_bytes(path, content), written(self.tree, path, content))

    @rule(path=paths)
    def make_folder(self, path: str) -> None:
        """Make a folder."""
        self.check(lambda: self.fs.make_folder(path), written(self.tree, path, None))

    @rule(path=paths, recursive=st.booleans())
    def remove(self, path: str, *, recursive: bool) -> None:
        """Remove a file or folder."""
        self.check(lambda: self.fs.remove(path, recursive=recursive), removed(self.tree, path, recursive=recursive))

    @rule(src=paths, dst=paths)
    def move(self, src: str, dst: str) -> None:
        """Move a file or folder."""
        self.check(lambda: self.fs.move(src, dst), moved(self.tree, src, dst))

    @rule()
    def take_snapshot(self) -> None:
        """Hold one more snapshot."""
        self.held.append((self.fs.snapshot(), self.tree))

    @precondition(lambda self: bool(self.held))
    @rule(data=st.data())
    def restore(self, data: st.DataObject) -> None:
        """Go back to any snapshot that is held; it and the others stay held."""
        snapshot, self.tree = data.draw(st.sampled_from(self.held))
        self.fs.restore(snapshot)

    @precondition(lambda self: bool(self.held))
    @rule(data=st.data())
    def drop(self, data: st.DataObject) -> None:
        """Let go of any snapshot."""
        del self.held[data.draw(st.integers(0, len(self.held) - 1))]

    @invariant()
    def everything_is_as_in_the_model(self) -> None:
        """Every byte and every empty folder; and each path is found in its folder's list."""
        assert tree_of(self.fs) == self.tree
        listed = [stat.path for folder in (".", *self.tree) for stat in self.list_if_folder(folder)]
        assert sorted(listed) == sorted(self.tree)

    def list_if_folder(self, path: str) -> tuple[FileStat, ...]:
        """What a path holds."""
        return self.fs.list(path) if self.tree.get(path) is None else ()

    def check(self, operation: Callable[[], object], expected: Tree | None) -> None:
        """Do what the model says can be done, and see the rest refused."""
        if expected is None:
            with pytest.raises(FilesystemError):
                operation()
        else:
            operation()
            self.tree = expected


@pytest.mark.parametrize("store", STORES)
def test_any_history_can_be_undone_to_any_snapshot(store: str) -> None:
    """Restoring is exact to the byte and to the empty folder, whatever happened since."""
    machine = type("Machine", (FilesystemMachine,), {"open_store": staticmethod(STORES[store])})
    number = 200 if store == "memory" else 60  # the others take a hundred times as long
    run_state_machine_as_test(machine, settings=settings(max_examples=examples(number), stateful_step_count=40))


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
