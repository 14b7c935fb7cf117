"""Differences of stored trees, and how the difference of two is taken back in a third.

Only folders that differ are read: a tree object with the same id holds the same. A path that the later tree leaves out
counts as unchanged, since nothing says what is there.

To take back what lies between *before* and *after* in a *present* tree is a merge of three trees, path by path:

| before and after | present and after | result |
|---|---|---|
| are equal | | what is present |
| differ | are equal | what was before |
| differ | differ, and both are folders | a folder, in which each entry is decided in this way |
| differ | differ otherwise | `PathConflictError` |

A folder that was made, and holds something else by now, stays with it.
"""

from __future__ import annotations

import os
import stat
from typing import NamedTuple

from handrail.filesystem.paths import changed_since_call, join, to_text
from handrail.filesystem.shadow.objects import ObjectStore, TreeEntry, decode_tree, objects_missing
from handrail.filesystem.shadow.tree import UNSETTLED, Folder, TreeFile


class TreeDifference(NamedTuple):
    """The entries of two trees at one path; `None` for nothing."""

    before: TreeEntry | None
    after: TreeEntry | None


def compare_trees(
    objects: ObjectStore,
    path: str,
    entries: TreeDifference,
    left_out: frozenset[str],
    differences: dict[str, TreeDifference],
) -> None:
    """Collects the differences at a path and below it; folders of one mode differ only in what they hold."""
    before, after = entries
    if before == after or path in left_out:
        return
    if not (_is_folder(before) and _is_folder(after) and _mode(before) == _mode(after)):
        differences[path] = entries
    old, new = _entries(objects, before), _entries(objects, after)
    for name in sorted(old.keys() | new.keys()):
        inner = TreeDifference(old.get(name), new.get(name))
        compare_trees(objects, join(path, name), inner, left_out, differences)


def revert_tree(
    objects: ObjectStore, path: str, entries: TreeDifference, present: TreeEntry | None, left_out: frozenset[str]
) -> Folder | TreeFile | None:
    """What is at a path without a difference; `PathConflictError` if what is present is not what it led to."""
    before, after = entries
    if before == after or path in left_out:
        return _node(present)
    if present == after:
        return _node(before)
    is_file_needed = before is not None and not _is_folder(before)
    is_mode_changed = _mode(before) != _mode(after) != _mode(present)
    if is_file_needed or is_mode_changed or not (_is_folder(after) and _is_folder(present)):
        raise changed_since_call("/".join(to_text(os.fsencode(part)) for part in path.split("/")))
    folder = Folder(_mode(present if _mode(before) == _mode(after) else before or present))
    old, new, now = (_entries(objects, entry) for entry in (before, after, present))
    for name in sorted(old.keys() | new.keys() | now.keys()):
        inner = TreeDifference(old.get(name), new.get(name))
        node = revert_tree(objects, join(path, name), inner, now.get(name), left_out)
        if isinstance(node, Folder):
            folder.folders[name] = node
        elif node is not None:
            folder.leaves[name] = node
    return folder if before is not None or folder.leaves or folder.folders else None


def _is_folder(entry: TreeEntry | None) -> bool:
    return entry is not None and stat.S_ISDIR(entry.mode)


def _mode(entry: TreeEntry | None) -> int:
    return 0 if entry is None else entry.mode


def _entries(objects: ObjectStore, entry: TreeEntry | None) -> dict[str, TreeEntry]:
    if entry is None or not stat.S_ISDIR(entry.mode):
        return {}
    if (content := objects.tree(entry.id)) is None:
        raise objects_missing([entry.id])
    return {inner.name: inner for inner in decode_tree(content)}


def _node(entry: TreeEntry | None) -> Folder | TreeFile | None:
    if entry is None:
        return None
    if stat.S_ISDIR(entry.mode):
        return Folder(entry.mode, id=entry.id)
    return TreeFile(entry.mode, entry.id, UNSETTLED)
