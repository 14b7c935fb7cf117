"""How the results of searching files read."""

from __future__ import annotations

from inline_snapshot import snapshot

from handrail.contrib.tools import FilesFound, GrepFiles, KeptText, LinesFound
from handrail.contrib.tools.vfs.files import LeftOut
from handrail.contrib.tools.vfs.search import Unsearched
from handrail.filesystem import FileStat

FILES = tuple(FileStat(f"notes/{name}.md", "file", 12) for name in "abc")


def kept(lines: int) -> KeptText:
    """A kept text of so many lines."""
    return KeptText("3f9a0c12", "glob_files", "line\n" * lines)


def test_files_read_as_one_line_each() -> None:
    """Below a line that says how many they are."""
    assert FilesFound("*.md", "notes", FILES, 3).render() == snapshot("""\
*.md in notes: 3 entries.
notes/a.md (12 bytes)
notes/b.md (12 bytes)
notes/c.md (12 bytes)\
""")


def test_long_list_says_how_to_go_on() -> None:
    """And how much of it is kept, if that is not all."""
    assert FilesFound("*.md", "notes", FILES[:1], 3, kept(3)).render() == snapshot("""\
*.md in notes: 3 entries, the first 1 of them shown. Continue with read_kept, key='3f9a0c12', offset=2, or narrow it \
down with pattern.
notes/a.md (12 bytes)\
""")
    assert FilesFound("*.md", "notes", FILES[:1], 9, kept(3)).render() == snapshot("""\
*.md in notes: 9 entries, the first 1 of them shown, the first 3 kept. Continue with read_kept, key='3f9a0c12', \
offset=2, or narrow it down with pattern.
notes/a.md (12 bytes)\
""")
    assert FilesFound("*.md", "notes", FILES[:1], 9, kept(1)).render() == snapshot("""\
*.md in notes: 9 entries, the first 1 of them shown, the first 1 kept. Narrow it down with pattern.
notes/a.md (12 bytes)\
""")


def test_no_file_is_told_with_how_to_look_deeper() -> None:
    """`*.py` is often meant to be anywhere."""
    assert FilesFound("*.py", ".", (), 0).render() == snapshot(
        "*.py in .: nothing fits. To look at any depth, write **/*.py."
    )
    assert FilesFound("src/*.py", ".", (), 0).render() == snapshot("src/*.py in .: nothing fits.")
    assert FilesFound("**", ".", (), 0).render() == snapshot("** in .: nothing fits.")


def test_entries_that_were_left_out_are_not_said_not_to_fit() -> None:
    """They may fit."""
    assert FilesFound("**", ".", (), 0, left_out=LeftOut(ignored=1)).render() == snapshot(
        "** in .: nothing to show. 1 entry that ignore files hide is left out; include_ignored=true shows them."
    )


def test_lines_read_below_what_is_said_of_them() -> None:
    """First how many there are, then how to go on, then what was left out."""
    found = LinesFound(
        GrepFiles("TODO", "src"),
        ("src/a.py:1: # TODO",),
        matches=1_200,
        files=2,
        searched=30,
        left=1,
        stopped="time",
        cut=2,
        unsearched=(Unsearched("not text", ("src/a.bin",), 1), Unsearched("cannot be read", ("src/b", "src/c"), 4)),
        kept=kept(900),
    )
    assert found.render() == snapshot("""\
TODO in src: 1,200 lines match in 2 files (30 files searched). Shown are the first 1. Continue with read_kept, \
key='3f9a0c12', offset=2. The search stopped because the time for it was over, and 1 file was not looked at. Narrow \
it down with pattern, path or files. 2 very long lines were searched up to character 10,000 only. Not searched: \
src/a.bin (not text), src/b, src/c and 2 more (cannot be read).
src/a.py:1: # TODO\
""")
