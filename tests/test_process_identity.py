"""The name of a process: written, read back, and shown to people."""

from __future__ import annotations

import os

from handrail.process_identity import ProcessName, own_name, process_in_words


def test_name_is_read_back() -> None:
    """And is shown to people without what only the kernel needs."""
    own = own_name(os.getpid())
    assert ProcessName.parse(str(own)) == own
    assert ProcessName.parse(str(own._replace(boot=""))) == own._replace(boot="")
    assert process_in_words(str(own)) == f"process {os.getpid()} on {own.host}"
    assert process_in_words("call 1") == "call 1"
    assert process_in_words("") == ""
