"""One suite over both sandboxes and over programs on the host: what each of them guarantees.

The table in `docs/how-to/run-in-a-sandbox.md` says the same.
"""

from __future__ import annotations

import os
from collections.abc import Generator
from pathlib import Path
from socket import AF_UNIX, socket

import pytest

from handrail import store
from handrail.runtime import Session
from tests.contrib.tools.sandbox.grounds import EVERYWHERE, PRIVATE, SANDBOXES, Ground, Where, short_limits
from tests.wording import Wording


@pytest.fixture(scope="module", params=EVERYWHERE)
def ground(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Generator[Ground]:
    """A run over a workspace; a test leaves nothing there."""
    where: Where = request.param
    limits = short_limits(3.0)
    with Ground(where, tmp_path_factory.mktemp(where), limits) as ground:
        yield ground


def test_command_that_fails_leaves_the_tree_as_it_was(ground: Ground, wording: Wording) -> None:
    """Contents, permissions, links, empty folders, and what was made or removed."""
    before = ground.picture()
    text = ground.refused(
        "cat notes/plan.md; echo changed > notes/plan.md; rm -r notes/old; chmod 777 data.bin; ln -sf x dangling;"
        "mkdir -p new/folder; echo x > new/folder/file; mkfifo new/fifo; mv notes/run.sh run; exit 3"
    )
    assert ground.picture() == before
    assert text == wording


def test_command_that_succeeds_is_kept_and_belongs_to_the_agent(ground: Ground) -> None:
    """Its files can be read and removed outside, by their owner."""
    before = ground.picture()
    owner = ground.root.stat().st_uid
    assert "one" in ground.told("mkdir made; echo one | tee made/file; chmod 600 made/file")
    assert (ground.root / "made" / "file").read_text() == "one\n"
    assert (ground.root / "made" / "file").stat().st_uid == owner
    ground.told("rm -r made")
    assert ground.picture() == before


def test_command_reads_its_input_and_its_end(ground: Ground, wording: Wording) -> None:
    """With and without input it does not wait for a person."""
    assert "cba" in ground.told("rev", input="abc\n")
    assert ground.told("cat") == wording


def test_command_starts_in_a_folder(ground: Ground) -> None:
    """Below the workspace, and never outside, by a link either."""
    assert ground.told("ls", folder="notes/old").split() == ["a.md", "empty"]
    (ground.root / "out").symlink_to(ground.outside)
    try:
        for folder in ("..", "/", "out", "nowhere"):
            assert ground.refused("ls", folder=folder).startswith("$.folder: ")
    finally:
        (ground.root / "out").unlink()


@pytest.mark.short(1)
def test_what_a_command_leaves_ends_with_its_call(ground: Ground) -> None:
    """A process without parent and terminal, which would write later."""
    ground.told("(setsid sh -c 'sleep 1; echo late > late' > /dev/null 2>&1 &) ; true")
    ground.told("sleep 1.2; test ! -e late")
    assert not (ground.root / "late").exists()


def test_output_is_bounded(ground: Ground) -> None:
    """The beginning and the end are shown."""
    text = ground.told("echo begin; head -c 1000000 /dev/zero | tr '\\0' x; echo; echo end")
    assert len(text) < 3 * ground.limits.max_output_bytes
    assert text.startswith("begin")
    assert "\nend" in text


@pytest.mark.short(1)
def test_command_that_takes_too_long_is_killed(ground: Ground) -> None:
    """The call fails, its changes are rolled back, and the next call works."""
    before = ground.picture()
    text = ground.refused("echo x > half; sleep 600")
    assert "3 s" in text
    assert ground.picture() == before
    assert ground.told("echo next").strip() == "next"


@pytest.mark.parametrize("where", SANDBOXES)
def test_sandbox_keeps_the_host_away(where: Where, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its files, its environment, its processes and its network; a program on the host has all of them."""
    monkeypatch.setenv("HANDRAIL_TEST_PRIVATE", PRIVATE)
    look = f"cat {tmp_path}/private /proc/[0-9]*/environ 2>/dev/null; env; ls /proc; cat /proc/net/dev; true"
    with Ground(where, tmp_path) as ground:
        found = ground.told(look)
        assert PRIVATE not in found
        assert "eth" not in found
        assert ground.told("id -u") == "1000\n"
    with Ground("host", tmp_path) as ground:
        assert PRIVATE in ground.told(look)


@pytest.mark.parametrize("where", SANDBOXES)
def test_sandbox_hides_an_open_database(where: Where, tmp_path: Path) -> None:
    """Its files are empty inside and cannot be removed; also if it was opened after the sandbox was started."""
    with Ground(where, tmp_path) as ground:
        ground.told("true")
        with store.open(f"sqlite:///{ground.root}/desk.db") as opened, Session.open(opened, "one"):
            found = ground.told("cat desk.db desk.db-wal 2>/dev/null | wc -c; ls desk.db-holds | wc -l")
            assert found.split() == ["0", "0"]
            ground.told("for each in desk.db*; do ! rm -rf $each 2>/dev/null || exit 1; done")
            ground.refused("echo x > notes/plan.md; exit 3")
        assert ground.told("head -c 6 desk.db") == "SQLite"


@pytest.mark.parametrize("where", SANDBOXES)
def test_unix_socket_in_the_workspace_is_not_reached(where: Where, tmp_path: Path) -> None:
    """At any depth, by a link, and one that is made while the sandbox is there."""
    with Ground(where, tmp_path) as ground, socket(AF_UNIX) as server:
        ground.told("true")
        (ground.root / "deep").mkdir()
        server.bind(os.fspath(ground.root / "deep" / "sock"))
        server.listen()
        (ground.root / "link").symlink_to("deep/sock")
        for path in ("deep/sock", "link"):
            ground.told(f"test ! -S {path}")
