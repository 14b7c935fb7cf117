"""What must be done to a tree on disk so that it is as a snapshot says.

Everything that a snapshot needs is known and found to be there before anything is touched. Then, in this order: what is
too much goes, folders are made, files and links are made, modes are set, inner ones first. Whatever of it has been done
when the process dies, a restore of the same snapshot does the rest, since it begins by looking at what is there.
"""

from __future__ import annotations

import re
import stat
from dataclasses import dataclass, field

from handrail.errors import SnapshotError
from handrail.filesystem.paths import ROOT, join
from handrail.filesystem.shadow.checkout import DiskTree
from handrail.filesystem.shadow.git import Reader, objects_missing
from handrail.filesystem.shadow.tree import Entry, Folder, decode_tree

ABOVE = "root"
"""The name of the root in the tree object of a snapshot, where it stands alone, so that its mode is kept too."""

_ID = re.compile("[0-9a-f]{40}")


@dataclass(slots=True)
class Plan:
    """The steps of a restore, each in the order in which it is done; folders stand before what they hold."""

    surplus: list[str] = field(default_factory=list[str])
    folders: list[str] = field(default_factory=list[str])
    leaves: list[tuple[str, Entry]] = field(default_factory=list[tuple[str, Entry]])
    modes: list[tuple[str, int]] = field(default_factory=list[tuple[str, int]])


def wanted_root(reader: Reader, snapshot: str) -> Entry:
    """The root as a snapshot has it.

    Raises:
        SnapshotError: it is no snapshot of this repository.
    """
    content = reader.tree(snapshot) if _ID.fullmatch(snapshot) else None
    entries = list(decode_tree(content or b""))
    if [entry.name for entry in entries] != [ABOVE]:
        msg = f"{snapshot!r} is no snapshot of this shadow repository; restore what its `snapshot` returned"
        raise SnapshotError(msg)
    return entries[0]


def plan(reader: Reader, wanted: Entry, present: Folder) -> Plan:
    """What leads from what is present to what is wanted.

    Raises:
        JournalError: the objects of the snapshot have been lost.
    """
    steps = Plan()
    _plan(reader, ROOT, wanted, present, steps)
    return steps


def carry_out(steps: Plan, reader: Reader, disk: DiskTree) -> None:
    """Do what was planned.

    Raises:
        FilesystemError: the disk does not let us; the rest has not been done, and the same snapshot can be restored
            again.
    """
    for path in steps.surplus:
        disk.remove(path)
    for path in steps.folders:
        disk.make_folder(path)
    for path, leaf in steps.leaves:
        content = reader.blob(leaf.id)
        if stat.S_ISLNK(leaf.mode):
            disk.make_link(path, b"".join(content))
        else:
            disk.make_file(path, leaf.mode, content)
    for path, mode in reversed(steps.modes):
        disk.set_mode(path, mode)


def _plan(reader: Reader, path: str, wanted: Entry, present: Folder | None, steps: Plan) -> None:
    if present is None:
        steps.folders.append(path)
        present = Folder(stat.S_IFDIR | stat.S_IRWXU)
    if present.mode != wanted.mode:
        steps.modes.append((path, wanted.mode))
    if present.id == wanted.id:
        return
    content = reader.tree(wanted.id)
    if content is None:
        raise objects_missing([wanted.id])
    entries = list(decode_tree(content))
    names = {entry.name for entry in entries}
    steps.surplus += [join(path, name) for name in (*present.leaves, *present.folders) if name not in names]
    for entry in entries:
        inner = join(path, entry.name)
        if stat.S_ISDIR(entry.mode):
            _plan(reader, inner, entry, present.folders.get(entry.name), steps)
            continue
        leaf = present.leaves.get(entry.name)
        if leaf is None or leaf.id != entry.id or stat.S_IFMT(leaf.mode) != stat.S_IFMT(entry.mode):
            steps.leaves.append((inner, entry))
        elif leaf.mode != entry.mode:
            steps.modes.append((inner, entry.mode))
