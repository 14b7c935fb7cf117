"""The name of a process: written, read back, and shown to people."""

from __future__ import annotations

import os

from handrail.process_identity import ProcessName, is_running, own_name, process_in_words


def test_name_is_read_back() -> None:
    """And is shown to people without what only the kernel needs."""
    own = own_name()
    assert ProcessName.parse(str(own)) == own
    assert ProcessName.parse(str(own._replace(boot=""))) == own._replace(boot="")
    assert process_in_words(str(own)) == f"process {os.getpid()} on {own.host}"
    assert process_in_words("call 1") == "call 1"
    assert process_in_words("") == ""


def test_a_process_of_which_the_system_says_nothing_has_a_name_of_its_own() -> None:
    """As where `/proc` shows the processes of another namespace: such a name proves nothing."""
    first, second = own_name.__wrapped__(0), own_name.__wrapped__(0)
    assert (first.boot, first.pid) == ("", 0)
    assert first.started != second.started
    assert ProcessName.parse(str(first)) == first


def test_a_process_that_cannot_be_looked_for_is_taken_to_run() -> None:
    """No process wrote this name, so that nothing shows that one has ended."""
    assert is_running(own_name()._replace(pid=0))


def test_a_name_with_a_pid_that_no_system_gives_is_not_a_name() -> None:
    """It was written by hand, and proves nothing."""
    assert ProcessName.parse(str(own_name()._replace(pid=10**30))) is None
