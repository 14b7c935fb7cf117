"""What the model is told about working on files."""

from __future__ import annotations

_LOOKING = """\
{purpose} A path is relative to the root of the filesystem, with forward slashes, such as
`notes/plan.md`; `.` is the root.{mounts}

**Tools to look with**

- `list_files` shows what a folder holds.
- `glob_files` finds files and folders by a pattern of their path: `*.md` in the folder itself, `**/*.md` at any depth.
- `grep_files` finds lines by a regular expression; `files` says in which files, `context` how many lines around each to
  show. It reads each line by itself, and knows no look-around and no backreferences.
- `read_file` shows the text of a file. The first line of the result says which part of the file follows and how to go
  on; it is not in the file. Everything below that line is the file's text, exactly.
- `read_kept` goes on in a result of `glob_files` or `grep_files` that was too long: the result tells key and offset."""

_CHANGING = """

**Tools to change with**

- `write_file` makes a file, or replaces all that is in it.
- `edit_file` replaces one piece of text and leaves the rest of the file as it is. To change a part of a file, prefer it
  to `write_file`.
- `remove_file` removes a file or folder, `move_file` gives one another path and replaces nothing.

**Rules**

{find}{read_first}\
- Copy `old` exactly from what `read_file` shows, with its spaces and line breaks, and take enough of it
  that it occurs only once in the file. To change every occurrence, set `replace_all`.
- Line ends are shown as LF. `edit_file` keeps those that the file has.
- A call that fails has changed nothing. Its message says what to do instead."""

_READ_FIRST = """\
- Read a file before you write to it or remove it, and again if it has changed since; what `grep_files` shows of it does
  not count. For `edit_file` it is enough to have read a part; for `write_file` and `remove_file` read all of it. A new
  file you may write at once, and what you have written yourself you need not read. To move a file you need not read it.
"""

_MOUNTS = """
The root holds {folders}, each a filesystem of its own: the root itself takes nothing else,
and nothing moves from one to another."""


_FIND = "- Find what you need with `glob_files` and `grep_files` and read that; you seldom need to read everything.\n"
_ONLY_LOOKING = """
- Nothing is ever changed here: there are no tools to write with.
- Line ends are shown as LF.
- A call that fails says what to do instead."""


def guidance(*, read_first: bool, mounts: tuple[str, ...] = ()) -> str:
    """The text of the file section, as Markdown.

    Args:
        read_first: whether files must be read before they are written to.
        mounts: the folders of the root that are filesystems of their own.
    """
    rules = _CHANGING.format(find=_FIND, read_first=_READ_FIRST if read_first else "")
    return _looking("Work on files with these tools.", mounts) + rules


def looking_guidance(*, mounts: tuple[str, ...] = ()) -> str:
    """The text of a file section without tools to write with; `mounts` as above."""
    return f"{_looking('Look at files with these tools.', mounts)}\n\n**Rules**\n\n{_FIND.rstrip()}{_ONLY_LOOKING}"


def _looking(purpose: str, mounts: tuple[str, ...]) -> str:
    folders = " and ".join(f"`{name}`" for name in mounts)
    return _LOOKING.format(purpose=purpose, mounts=_MOUNTS.format(folders=folders) if mounts else "")
