"""The outside world of the crash tests: what it counts, and how it helps."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Generator

import pytest

from chaos import service
from chaos.service import Client, Report
from tests.architecture.sources import ROOT


@pytest.fixture
def client() -> Generator[Client]:
    """A client of a service of its own."""
    with service.running() as address:
        speaking = Client(address)
        yield speaking
        speaking.close()


def test_every_charge_counts_unless_it_is_asked_to_know_the_key(client: Client) -> None:
    """A service that honours keys answers with the receipt of the first time."""
    assert client.charge("tea", "k1", 1, once=False) == 1
    assert client.charge("tea", "k1", 1, once=False) == 2
    assert client.charge("bun", "k2", 1, once=True) == 3
    assert client.charge("bun", "k2", 2, once=True) == 3
    assert client.report() == Report({"tea": 2, "bun": 1}, {}, {"k1": 1, "k2": 1}, stale=0, repeated=1)


def test_an_older_fence_is_refused_after_a_newer_one_was_seen(client: Client) -> None:
    """In a charge, or in a question: whoever asked was told that it did not happen, so it must not happen later."""
    assert client.find("k1", 2) is None
    assert client.charge("tea", "k1", 1, once=False) is None
    assert client.charge("tea", "k1", 3, once=False) == 1
    assert client.charge("tea", "k1", 2, once=False) is None
    assert client.find("k1", 0) == 1
    assert client.report() == Report({"tea": 1}, {"k1": 2}, {"k1": 3}, stale=2, repeated=0)


def test_what_a_process_asked_before_it_was_killed_is_known_to_who_asks_after_it() -> None:
    """Requests are taken in the order in which they were sent; the answer to a dead one goes nowhere."""
    with service.running() as address:
        request = json.dumps({"do": "charge", "order": "tea", "key": "k1", "fence": 1, "once": False})
        code = (
            "import os, signal, socket, sys\n"
            "speaking = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)\n"
            "speaking.bind(sys.argv[1] + '.dead')\n"
            "speaking.sendto(sys.argv[2].encode(), sys.argv[1])\n"
            "os.kill(os.getpid(), signal.SIGKILL)\n"
        )
        dead = subprocess.run([sys.executable, "-c", code, address, request], check=False, cwd=ROOT)
        assert dead.returncode == -signal.SIGKILL
        client = Client(address)
        assert client.find("k1", 2) == 1
        client.close()
