"""What is recorded of a program: read back, and used only where it counts."""

from __future__ import annotations

import os

import pytest

from handrail.process_identity import ProcessName, own_name
from handrail.programs.launch import ProgramIdentity

OWN = own_name(os.getpid())


@pytest.mark.parametrize("supervisor", [None, OWN])
def test_identity_is_read_back(supervisor: object) -> None:
    """With and without a supervisor."""
    identity = ProgramIdentity("call", OWN, OWN if supervisor else None)
    assert ProgramIdentity.from_json(identity.to_json()) == identity
    assert identity.is_supervised() == bool(supervisor)


@pytest.mark.parametrize("data", [b"", b"[", b"{}", b"[]", b'["call", "a program", ""]', b'["call", 1, ""]'])
def test_part_of_a_record_is_none(data: bytes) -> None:
    """Its process was killed while it wrote."""
    assert ProgramIdentity.from_json(data) is None


@pytest.mark.parametrize("program", [OWN._replace(boot=""), OWN._replace(boot="another"), OWN._replace(started="")])
def test_program_of_another_boot_is_not_looked_for(program: ProcessName) -> None:
    """Its pid and its start time name another process here."""
    identity = ProgramIdentity("call", program, OWN)
    assert not identity.is_of_this_boot()
    assert not ProgramIdentity("call", program, program).is_supervised()
    assert identity.kill() == set()
