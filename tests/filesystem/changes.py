"""One change of each kind, over the tree that `plant` makes."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from handrail.filesystem import Filesystem

Change = Callable[[Filesystem], object]


def several(fs: Filesystem) -> None:
    """Changes that meet at the same paths."""
    fs.write_text("notes/plan.md", "first")
    fs.write_text("notes/plan.md", "second")
    fs.remove("notes/old", recursive=True)
    fs.write_text("notes/old", "a file where a folder was")
    fs.move("notes", "archive/notes")
    fs.write_text("notes/plan.md/deep/new", "a folder where a file was")


CHANGES: Mapping[str, Change] = {
    "write a new file": lambda fs: fs.write_text("new/deep/file", "x"),
    "replace a file": lambda fs: fs.write_text("notes/run.sh", "echo\n"),
    "replace a file of two names": lambda fs: fs.write_bytes("data.bin", b"other"),
    "write through a link": lambda fs: fs.write_text("notes/to plan", "2. think\n"),
    "write a name that is no UTF-8": lambda fs: fs.write_text("caf␛E9", "changed"),
    "make folders": lambda fs: fs.make_folder("new/deep"),
    "remove a file": lambda fs: fs.remove("notes/plan.md"),
    "remove a link": lambda fs: fs.remove("dangling"),
    "remove a folder": lambda fs: fs.remove("notes", recursive=True),
    "move a file": lambda fs: fs.move("notes/run.sh", "new/run.sh"),
    "move a link": lambda fs: fs.move("dangling", "new/dangling"),
    "move a folder": lambda fs: fs.move("notes", "new/notes"),
    "several": several,
}
"""Each kind of change by what it is."""
