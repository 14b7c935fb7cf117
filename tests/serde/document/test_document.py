"""`handrail.serde.document`: texts in files, and what is no such file."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from handrail.errors import DocumentError
from handrail.serde.document import LARGEST, document_text, read_document
from tests.kit import refusal
from tests.wording import Wording

WHAT = "a note is a text file"


def refused(path: Path) -> str:
    """Why a file is no document."""
    with pytest.raises(DocumentError) as caught:
        read_document(path, file="note", what=WHAT)
    cause = caught.value.__cause__  # of which Python has other words in each version
    return str(caught.value).replace(str(cause), "<cause>") if type(cause) is ValueError else str(caught.value)


def test_a_document_is_its_text_up_to_the_largest_size(tmp_path: Path) -> None:
    """Line breaks and a byte order mark stay; also through a link."""
    (tmp_path / "note").write_bytes("\ufeffcaf\u00e9\r\n".encode())
    (tmp_path / "link").symlink_to("note")
    (tmp_path / "large").write_bytes(b"x" * LARGEST)
    assert read_document(tmp_path / "link", file="note", what=WHAT) == "\ufeffcaf\u00e9\r\n"
    assert len(read_document(tmp_path / "large", file="note", what=WHAT)) == LARGEST


def test_what_is_no_document_is_told_at_once(tmp_path: Path, wording: Wording) -> None:
    """Nobody waits for a pipe, and nothing without an end is read."""
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "gone").symlink_to("nowhere")
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "large").write_bytes(b"x" * (LARGEST + 1))
    (tmp_path / "latin").write_bytes(b"a\r\nb\xe9")
    assert refused(tmp_path) == wording
    assert refused(tmp_path / "pipe") == wording
    assert refused(Path("/dev/zero")) == wording
    assert refused(tmp_path / "none") == wording
    assert refused(tmp_path / "gone") == wording
    assert refused(tmp_path / "loop") == wording
    assert refused(tmp_path / "a\0b") == wording
    assert refused(tmp_path / "latin") == wording
    assert refused(tmp_path / "large") == wording


def test_callers_who_know_what_to_do_get_the_systems_error(tmp_path: Path) -> None:
    """A file that is not there is no fault of a document."""
    refusal(FileNotFoundError, document_text, tmp_path / "none", file="note", what=WHAT)
