"""A program that is let loose on the tree that `plant` makes, and calls that start it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

from handrail.filesystem import HostFilesystem

CallOverProgram = Callable[[HostFilesystem, Path], object]

_DAMAGE = """
import os, shutil, sys
os.chdir(sys.argv[1])
again = sys.argv[2]
for path in ("data.bin", "notes/run.sh", "notes/plan.md", "by tool"):
    if os.path.lexists(path):
        with open(path, "ab") as file:  # in place, as many programs do
            file.write(b"damage " + again.encode())
shutil.rmtree("notes/old", ignore_errors=True)
os.makedirs("built/" + again + "/empty")
open("built/" + again + "/out", "w").close()
os.path.lexists("dangling") and os.unlink("dangling")
os.symlink("notes", "dangling")
os.replace("twin", "twin " + again) if os.path.exists("twin") else None
os.path.exists("notes/run.sh") and os.chmod("notes/run.sh", 0o604)
os.chmod(".", 0o755 if again == "1" else 0o711)
"""


def damage(root: Path, again: str = "1") -> None:
    """Run a program that changes something of every kind; each `again` makes another difference."""
    subprocess.run([sys.executable, "-I", "-S", "-c", _DAMAGE, root, again], check=True)


def program(fs: HostFilesystem, root: Path) -> None:
    """A program, and nothing else."""
    fs.keep_tree()
    damage(root)


def between_changes(fs: HostFilesystem, root: Path) -> None:
    """Changes before and after a program that changes the same paths, and a second program."""
    fs.write_text("notes/plan.md", "by the tool")
    fs.remove("dangling")
    fs.move("notes/old", "old")
    fs.write_text("by tool", "x")
    fs.write_text(".git/config", "before")
    fs.keep_tree()
    damage(root)
    fs.write_text("data.bin", "by the tool, after it")
    fs.remove("built", recursive=True)
    fs.write_text("built", "a file where a folder was")
    fs.write_text(".git/config", "after")
    fs.write_text(".git/index", "after")
    fs.move("notes", ".git/notes")
    fs.remove("built")
    fs.keep_tree()
    damage(root, "2")


PROGRAMS: Mapping[str, CallOverProgram] = {"a program": program, "a program between changes": between_changes}
"""Each call over programs by what it does."""
