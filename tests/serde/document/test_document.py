"""`handrail.serde.document`: texts in files, and what is no such file."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from handrail.errors import DocumentError
from handrail.serde.document import LARGEST, document_text, read_document

WHAT = "a note is a text file"


def refused(path: Path) -> str:
    """Why a file is no document."""
    with pytest.raises(DocumentError) as caught:
        read_document(path, file="note", what=WHAT)
    return str(caught.value)


def test_a_document_is_its_text_up_to_the_largest_size(tmp_path: Path) -> None:
    """Line breaks and a byte order mark stay; also through a link."""
    (tmp_path / "note").write_bytes("\ufeffcaf\u00e9\r\n".encode())
    (tmp_path / "link").symlink_to("note")
    (tmp_path / "large").write_bytes(b"x" * LARGEST)
    assert read_document(tmp_path / "link", file="note", what=WHAT) == "\ufeffcaf\u00e9\r\n"
    assert len(read_document(tmp_path / "large", file="note", what=WHAT)) == LARGEST


def test_what_is_no_document_is_told_at_once(tmp_path: Path) -> None:
    """Nobody waits for a pipe, and nothing without an end is read."""
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "gone").symlink_to("nowhere")
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "large").write_bytes(b"x" * (LARGEST + 1))
    (tmp_path / "latin").write_bytes(b"a\r\nb\xe9")
    assert refused(tmp_path) == "note: this is a folder; a note is a text file"
    assert refused(tmp_path / "pipe") == "note: this is a device or pipe; a note is a text file"
    assert refused(Path("/dev/zero")) == "note: this is a device or pipe; a note is a text file"
    assert refused(tmp_path / "none") == "note: the file does not exist"
    assert refused(tmp_path / "gone") == "note: this is a link that leads nowhere; fix or remove it"
    assert refused(tmp_path / "loop") == "note: the file cannot be read: Too many levels of symbolic links"
    assert refused(tmp_path / "a\0b").startswith("'note': this cannot be the path of a file: ")
    assert refused(tmp_path / "latin") == "note:2:2: the byte 0xE9 is not UTF-8; save the file as UTF-8"
    assert refused(tmp_path / "large") == (
        "note: the file has more than 1,000,000 bytes; a note is a text file of that size at most"
    )


def test_callers_who_know_what_to_do_get_the_systems_error(tmp_path: Path) -> None:
    """A file that is not there is no fault of a document."""
    with pytest.raises(FileNotFoundError):
        document_text(tmp_path / "none", file="note", what=WHAT)
