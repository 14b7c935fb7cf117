"""What a snapshot leaves out: files that git ignores, as far as they are too large to be saved.

================  ======================================================================================================
`snapshot_tree`   what is saved of the files that git ignores (`handrail.filesystem.shadow.ignored`)
================  ======================================================================================================
`"all"`           as much as fits `max_tree_bytes`, the smallest entries first. The rest is left out and *watched*: its
                  status is compared, so that changes can be named. An entry that holds a file that is larger than
                  `max_untracked_bytes` is left out as a whole
`"tracked"`       nothing. It is left out, and not looked at
================  ======================================================================================================

An entry is a file or a folder that is ignored, in a folder that is not. What is left out is left alone when the
snapshot is restored: it is neither changed nor removed. Files that git does not ignore are always saved.

What was left out once stays so for as long as the repository object exists, so that the snapshots of one call leave
out the same.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, Self, cast, get_args

from handrail.errors import InvalidArgumentError
from handrail.filesystem.paths import join, parent_of
from handrail.filesystem.root import to_text
from handrail.filesystem.shadow.tree import Folder, IgnoredEntry, TreeFile, weigh

SnapshotTree = Literal["all", "tracked"]
"""Which files a snapshot holds: also those that git ignores, or only the others."""

MAX_TREE_BYTES = 128 * 1024 * 1024
"""How many bytes of ignored files are saved unless another limit is given."""

MAX_UNTRACKED_BYTES = 100 * 1024 * 1024
"""The largest file that is saved unless another limit is given."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotLimits:
    """What snapshots hold.

    Attributes:
        snapshot_tree: whether files that git ignores are saved.
        max_tree_bytes: how many bytes of them; `None` for any number.
        max_untracked_bytes: the size above which a file is not saved; `None` for any size.
    """

    snapshot_tree: SnapshotTree = "all"
    max_tree_bytes: int | None = MAX_TREE_BYTES
    max_untracked_bytes: int | None = MAX_UNTRACKED_BYTES

    def check(self, function: str) -> Self:
        """Check what a caller of `function` has given; returns the same limits.

        Raises:
            InvalidArgumentError: it is not one of the words, or not a number of bytes.
        """
        choices = get_args(SnapshotTree)
        if self.snapshot_tree not in choices:
            expected = f"{' or '.join(map(repr, choices))}"
            raise InvalidArgumentError(
                function=function, argument="snapshot_tree", given=self.snapshot_tree, expected=expected
            )
        for name in ("max_tree_bytes", "max_untracked_bytes"):
            given = cast("object", getattr(self, name))
            if given is not None and (not isinstance(given, int) or isinstance(given, bool) or given < 0):
                expected = "a number of bytes, or None for any number"
                raise InvalidArgumentError(function=function, argument=name, given=given, expected=expected)
        return self

    @property
    def is_watching(self) -> bool:
        """Whether the status of what is left out is read."""
        return self.snapshot_tree == "all"

    def is_too_large(self, size: int) -> bool:
        """Whether a file of so many bytes is not saved."""
        return self.max_untracked_bytes is not None and size > self.max_untracked_bytes

    def leave_out(self, ignored: Sequence[IgnoredEntry], already: frozenset[str]) -> frozenset[str]:
        """The paths to leave out, those that are left out `already` included."""
        new = [(weigh(entry), path) for path, entry in ignored if path not in already]
        if not self.is_watching:
            return already.union(path for _, path in new)
        chosen = {path for weight, path in new if self.is_too_large(weight.largest)}
        rest = sorted((weight.total, path) for weight, path in new if path not in chosen)
        total = sum(size for size, _ in rest)
        while self.max_tree_bytes is not None and total > self.max_tree_bytes:
            size, path = rest.pop()
            chosen.add(path)
            total -= size
        return already.union(chosen) if chosen else already


def names_by_folder(paths: Iterable[str]) -> dict[str, frozenset[str]]:
    """Paths as the names in each folder."""
    found: dict[str, set[str]] = {}
    for path in paths:
        found.setdefault(parent_of(path), set()).add(path.rpartition("/")[2])
    return {folder: frozenset(names) for folder, names in found.items()}


def entries_left_out(folder: Folder, paths: Iterable[str]) -> dict[str, TreeFile | Folder]:
    """What was at paths that are left out; a path at which nothing was is missing."""
    found: dict[str, TreeFile | Folder] = {}
    for path in sorted(paths):
        *above, name = path.split("/")
        inner: Folder | None = folder
        for part in above:
            inner = None if inner is None else inner.folders.get(part)
        entry = None if inner is None else inner.apart.get(name)
        if entry is not None:
            found[path] = entry
    return found


def paths_left_out(folder: Folder, at: str = ".") -> frozenset[str]:
    """All paths that are left out of a tree."""
    found = {join(at, name) for name in folder.apart}
    for name, inner in folder.folders.items():
        found |= paths_left_out(inner, join(at, name))
    return frozenset(found)


def dump_left_out(paths: Iterable[str]) -> bytes:
    """Paths as the content of a blob."""
    return b"".join(os.fsencode(path) + b"\0" for path in sorted(paths))


def load_left_out(content: bytes) -> frozenset[str]:
    """The inverse of `dump_left_out`."""
    return frozenset(os.fsdecode(path) for path in content.split(b"\0") if path)


def spelled(paths: Iterable[str]) -> frozenset[str]:
    """Paths of a scan as the filesystem spells them."""
    return frozenset("/".join(to_text(os.fsencode(part)) for part in path.split("/")) for path in paths)
