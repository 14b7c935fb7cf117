"""Random histories of a tree and its snapshots: whatever programs did to it, each snapshot comes back to the byte."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable
from pathlib import Path
from tempfile import TemporaryDirectory

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule, run_state_machine_as_test

from handrail.filesystem.shadow.repository import ShadowRepository
from tests.extent import examples
from tests.filesystem.shadow_trees import Picture, picture

paths = st.lists(st.sampled_from(["a", "b", ".git", os.fsdecode(b"\xff")]), min_size=1, max_size=3).map("/".join)
modes = st.sampled_from([0o600, 0o644, 0o755, 0o4700, 0o444])
ignored = st.sampled_from(["ig", "a/ig", "a/b.log", "ig/deep/file", "b.log"])
contents = st.sampled_from([b"", b"1", b"2", b"1\r\n", bytes(100)])


class ShadowMachine(RuleBasedStateMachine):
    """One tree, its shadow, and every snapshot with what was there."""

    def __init__(self) -> None:
        """Begin with an empty tree."""
        super().__init__()
        self.scratch = TemporaryDirectory()
        self.root = Path(self.scratch.name, "tree")
        self.root.mkdir()
        self.shadow = self.another()
        self.taken: list[tuple[str, Picture]] = []
        self.left_out: dict[str, frozenset[str]] = {}

    def another(self) -> ShadowRepository:
        """A shadow that knows nothing yet, as another process has it."""
        return ShadowRepository(self.root, Path(self.scratch.name, "git"), max_untracked_bytes=None)

    def teardown(self) -> None:
        """Clean up."""
        self.scratch.cleanup()

    def cleared(self, path: str) -> Path:
        """A path at which nothing is, in a folder."""
        place = self.root / path
        for folder in [*reversed(place.parents), place]:
            is_above = folder == self.root or folder in self.root.parents
            if not is_above and (folder.is_symlink() or folder.is_file()):
                folder.unlink()
        if place.is_dir():
            shutil.rmtree(place)
        place.parent.mkdir(parents=True, exist_ok=True)
        return place

    @rule(path=paths, content=contents, mode=modes)
    def write(self, path: str, content: bytes, mode: int) -> None:
        """Put a file somewhere, whatever was there."""
        place = self.cleared(path)
        place.write_bytes(content)
        place.chmod(mode)

    @rule(path=paths, mode=st.sampled_from([0o700, 0o755, 0o1777]))
    def make_folder(self, path: str, mode: int) -> None:
        """Put an empty folder somewhere, whatever was there."""
        place = self.cleared(path)
        place.mkdir()
        place.chmod(mode)

    @rule(path=paths, to=paths)
    def link(self, path: str, to: str) -> None:
        """Put a link somewhere, whatever was there."""
        self.cleared(path).symlink_to(to)

    @rule(path=paths)
    def remove(self, path: str) -> None:
        """Remove whatever there is."""
        self.cleared(path)

    @rule(path=ignored, size=st.sampled_from([0, 100]))
    def write_ignored(self, path: str, size: int) -> None:
        """Put a file where files are ignored."""
        self.cleared(path).write_bytes(bytes(size))

    @rule(text=st.sampled_from(["ig\n*.log\n", "", "b\n", "*\n"]))
    def change_rules(self, text: str) -> None:
        """Ignore other files."""
        (self.root / ".gitignore").write_text(text)

    @rule()
    def take(self) -> None:
        """Take a snapshot; it does not change the tree."""
        before = picture(self.root)
        taken = self.shadow.snapshot()
        assert picture(self.root) == before
        self.left_out.setdefault(taken.id, taken.left_out)
        assert self.left_out[taken.id] == taken.left_out
        self.taken.append((taken.id, before))

    @precondition(lambda self: bool(self.taken))
    @rule(data=st.data())
    def restore(self, data: st.DataObject) -> None:
        """Go back to any snapshot: all but what it leaves out is as it was, and that is left alone."""
        snapshot, kept = data.draw(st.sampled_from(self.taken))
        before = picture(self.root)
        self.shadow.restore(snapshot)
        found, out = picture(self.root), self.left_out[snapshot]
        assert outside(found, out) == outside(kept, out)
        assert inside(found, out) == inside(before, out)

    @rule()
    def begin_anew(self) -> None:
        """Go on in another process."""
        self.shadow = self.another()


def outside(found: Picture, paths: Iterable[str]) -> Picture:
    """What is at no path of these, nor below."""
    return {path: what for path, what in found.items() if not _is_at(path, paths)}


def inside(found: Picture, paths: Iterable[str]) -> Picture:
    """What is at one of these paths, or below."""
    return {path: what for path, what in found.items() if _is_at(path, paths)}


def _is_at(path: bytes, paths: Iterable[str]) -> bool:
    return any(path == os.fsencode(each) or path.startswith(os.fsencode(each) + b"/") for each in paths)


def test_any_history_of_a_tree_can_be_undone_to_any_snapshot() -> None:
    """Restoring is exact to the byte, the mode, the link and the empty folder; what is left out is left alone."""
    run_state_machine_as_test(
        ShadowMachine, settings=settings(max_examples=examples(40), stateful_step_count=20, deadline=None)
    )
