"""A run that loses its session to another process: it ends with a code of its own, and the same command resumes it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.agent_folders import call, script, write
from tests.cli.desk import Run
from tests.store.postgres_server import fresh_url

AGENT = "---\nname: desk\ntools: [pay, wait]\n---\nYou pay.\n"

TOOLS = """
    import os
    from pathlib import Path
    from handrail import store, tool
    from handrail.runtime import Session

    @tool(effect="external")
    def pay(order: str) -> str:
        "Pays."
        with Path("paid").open("a") as book:
            book.write(order)
        return "paid"

    @tool
    def wait() -> str:
        "Another machine holds this one for dead, once."
        if not Path("evicted").exists():
            Path("evicted").touch()
            with store.open(os.environ["DESK"]) as other, Session.open(other, "monday", evict=True):
                pass
        return "waited"

    TOOLS = [pay, wait]
    """


def test_a_run_that_loses_its_session_ends_with_75_and_is_resumed(
    folder: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its model is not asked again, and what it has paid is not paid again."""
    write(folder, desk__agent=AGENT, tools__py=TOOLS)
    calls = {"calls": [call("pay", order="A")]}, {"calls": [call("wait", "two")]}
    with fresh_url() as url:
        monkeypatch.setenv("DESK", url)
        kept = ("--store", url, "--session", "monday", "--approve", "approve-all", "--model")
        lost = run("pay it", *kept, script(folder, *calls, {"text": "Never said."}))
        assert (lost.code, lost.out) == (75, "")
        assert "another process" in lost.err
        resumed = run(*kept, script(folder, {"text": "Done."}))
        assert (resumed.code, resumed.out) == (0, "Done.\n")
    assert (folder / "paid").read_text() == "A"
