"""Reads the text of documents that people write: regular files of no great size, in UTF-8.

A folder, a pipe or a device in the place of a document is told at once; nobody waits for what it may send.
"""

from __future__ import annotations

import re
import stat
from pathlib import Path

from handrail.errors import DocumentError
from handrail.serde.formatting import shortened
from handrail.serde.near_paths import did_you_mean, files_in
from handrail.serde.yaml_tree import ErrorFactory

LARGEST = 1_000_000
"""How many bytes a document may have."""

_LINE_BREAK = re.compile(r"\r\n?|\n")
_LONGEST_SHOWN = 120


def read_document(path: Path, *, file: str, what: str, refusal: ErrorFactory = DocumentError, suffix: str = "") -> str:
    """The text of a document.

    Args:
        path: where it lies.
        file: what errors call it.
        what: what it is to be, as a sentence without its stop: `an agent file is a text file`.
        refusal: makes the error.
        suffix: how the names of such documents end, e.g. `.agent`, for proposals; empty if they have no suffix of their
            own.

    Raises:
        DocumentError: as `refusal` makes it: there is no such file, or it cannot be read; or as for `document_text`.
    """
    try:
        return document_text(path, file=file, what=what, refusal=refusal, suffix=suffix)
    except FileNotFoundError as error:
        if path.is_symlink():
            raise refusal("this is a link that leads nowhere; mend or remove it", file=file) from error
        near = did_you_mean(path, suffix=suffix)
        raise refusal(f"there is no such file{'.' if near else ''}{near}", file=file) from error
    except OSError as error:
        raise refusal(f"the file cannot be read: {error.strerror}", file=file) from error
    except ValueError as error:
        if isinstance(error, DocumentError):
            raise
        shown = shortened(repr(file), _LONGEST_SHOWN)  # a NUL in the path
        raise refusal(f"this cannot be the path of a file: {error}", file=shown) from error


def document_text(path: Path, *, file: str, what: str, refusal: ErrorFactory = DocumentError, suffix: str = "") -> str:
    """As `read_document`, for callers who know what to do with a file that is not there or cannot be opened.

    Raises:
        DocumentError: as `refusal` makes it: it is no regular file, has more than a million bytes, or is no UTF-8.
        OSError: it cannot be opened.
        ValueError: the path is none.
    """
    mode = path.stat().st_mode
    if not stat.S_ISREG(mode):
        if not stat.S_ISDIR(mode):
            raise refusal(f"this is a device or pipe; {what}", file=file)
        inside = files_in(path, suffix=suffix) if suffix else ""
        raise refusal(f"this is a folder; {what}{f'. Name one of those in it: {inside}' if inside else ''}", file=file)
    with path.open("rb") as opened:
        content = opened.read(LARGEST + 1)
    if len(content) > LARGEST:
        raise refusal(f"the file has more than {LARGEST:,} bytes; {what} of that size at most", file=file)
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        before = _LINE_BREAK.split(content[: error.start].decode("utf-8"))
        told = f"the byte 0x{content[error.start]:02X} is no UTF-8; save the file as UTF-8"
        raise refusal(told, file=file, line=len(before), column=len(before[-1]) + 1) from error
