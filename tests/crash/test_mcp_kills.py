"""Clients, proxies and servers of MCP that are killed in the middle of calls: a short form of `make chaos`."""

from __future__ import annotations

import random

import pytest

from chaos.mcp import kills
from chaos.mcp.client import Setup
from chaos.mcp.kills import Kind
from tests.extent import FULL

_SOME = (
    Kind("keys of calls", ("proxy",)),
    Kind("find", ("client", "bank")),
    Kind("serve", ("client", "proxy")),
    Kind("keys of arguments", ("bank",)),
)
_ROUNDS = kills.KINDS if FULL else _SOME


# A kill costs a start of three programs.
@pytest.mark.timeout(300)
@pytest.mark.parametrize("setup", dict.fromkeys(kind.setup for kind in _ROUNDS))
@pytest.mark.short(2)
def test_no_payment_is_made_twice_and_each_call_is_done_or_not_or_unknown(setup: Setup) -> None:
    """What the client was answered, what the bank has paid and what the ledger says agree; no process is left."""
    kinds = [kind for kind in _ROUNDS if kind.setup == setup]
    count = kills.play(setup, kinds, random.Random(f"0 {setup}"))  # noqa: S311
    assert count.faults == []
    assert count.twice == 0
    assert count.signals >= count.rounds == len(kinds)
    assert sum(count.answers.values()) == count.calls > 0
