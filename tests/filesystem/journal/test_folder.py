"""The folder of a journal: whose it is, and what is left of it when it cannot be opened."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from handrail.errors import JournalError
from handrail.filesystem import HostFilesystem


def test_folder_that_a_crash_left_without_its_owner_belongs_to_the_next_root(root: Path, tmp_path: Path) -> None:
    """A crash can leave the file `root` empty. The next opening fills it in, and then no other root is accepted."""
    journal = tmp_path / "journal"
    journal.mkdir()
    (journal / "root").touch()
    HostFilesystem(root, journal=journal).close()
    assert (journal / "root").read_bytes() == os.fsencode(root)
    with pytest.raises(JournalError):
        HostFilesystem(root / "notes", journal=journal)
    HostFilesystem(root, journal=journal).close()
