"""What the model is told about working on files."""

from __future__ import annotations

_TEXT = """\
Work on files with these tools. A path is relative to the root of the filesystem, with forward slashes, such as
`notes/plan.md`; `.` is the root.

**Tools**

- `list_files` shows what a folder holds; with a `pattern` such as `**/*.md`, what fits it at any depth.
- `read_file` shows the text of a file. The first line of the result says which part of the file follows and how to go
  on; it is not in the file. Everything below that line is the file's text, exactly.
- `write_file` makes a file, or replaces all that is in it.
- `edit_file` replaces one piece of text and leaves the rest of the file as it is. To change a part of a file, prefer it
  to `write_file`.

**Rules**

{read_first}- Copy `old` exactly from what `read_file` shows, with its spaces and line breaks, and take enough of it
  that it occurs only once in the file. To change every occurrence, set `replace_all`.
- Line ends are shown as LF. `edit_file` keeps those that the file has.
- A call that fails has changed nothing. Its message says what to do instead."""

_READ_FIRST = """\
- Read a file before you write to it, and again if it has changed since. A new file you may write at once, and what
  you have written yourself you need not read.
"""


def guidance(*, read_first: bool) -> str:
    """The text of the file section, as Markdown.

    Args:
        read_first: whether files must be read before they are written to.
    """
    return _TEXT.format(read_first=_READ_FIRST if read_first else "")
