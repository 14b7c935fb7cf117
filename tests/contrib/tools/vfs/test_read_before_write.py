"""The file suite under its default policy: what must be read before it is written to."""

from __future__ import annotations

import asyncio
import os
import threading
from pathlib import Path

import pytest

from handrail.contrib.tools import VfsLimits, VfsToolsSection
from handrail.filesystem import HostFilesystem, InMemoryFilesystem
from handrail.runtime import ToolCall
from tests.contrib.suites import SuiteRun
from tests.filesystem.kit import WatchedDisk
from tests.wording import Wording


def files() -> InMemoryFilesystem:
    """A filesystem with a plan in it."""
    filesystem = InMemoryFilesystem()
    filesystem.write_text("notes/plan.md", "# Plan\n- buy milk\n- sell bread\n")
    return filesystem


def test_existing_file_must_be_read_before_it_is_written_to(wording: Wording) -> None:
    """Refused, read, allowed."""
    run = SuiteRun(VfsToolsSection(files()))
    edit = {"path": "notes/plan.md", "old": "milk", "new": "oat milk"}
    assert run.refused("edit_file", **edit) == wording
    assert run.refused("write_file", path="./notes/plan.md", content="") == wording
    run.told("read_file", path="notes/plan.md", limit=1)
    run.told("edit_file", **edit)


TEN_LINES = "".join(f"line {number}\n" for number in range(1, 11))


def test_part_of_a_file_is_enough_to_edit_it_and_not_to_replace_or_remove_it(wording: Wording) -> None:
    """An edit leaves alone what has not been seen; the refusal says what is missing."""
    filesystem = InMemoryFilesystem({"a.md": TEN_LINES})
    run = SuiteRun(VfsToolsSection(filesystem))
    run.told("read_file", path="a.md", limit=4)
    assert run.refused("write_file", path="a.md", content="") == wording
    assert run.refused("remove_file", path="a.md") == wording
    run.told("edit_file", path="a.md", old="line 9", new="line nine")
    assert filesystem.read_text("a.md") == TEN_LINES.replace("line 9", "line nine")


def test_line_that_is_shown_in_parts_is_shown_when_all_of_them_are() -> None:
    """What fits in no single result is read by its columns."""
    section = VfsToolsSection(InMemoryFilesystem({"a.md": "first\nabcdefgh\nlast"}), limits=VfsLimits(characters=6))
    run = SuiteRun(section)
    for offset, column in ((1, 1), (2, 1), (2, 7)):
        run.told("read_file", path="a.md", offset=offset, column=column)
        assert run.refused("write_file", path="a.md", content="")
    run.told("read_file", path="a.md", offset=3)
    run.told("write_file", path="a.md", content="")


def test_file_that_was_described_and_not_shown_is_not_known(wording: Wording) -> None:
    """A binary one, a large one, one in another encoding; an empty file has nothing that could be shown."""
    files: dict[str, str | bytes] = {"logo.png": b"a\0", "disk.img": b"\0" * 101, "old.txt": b"\xff" * 101}
    run = SuiteRun(VfsToolsSection(InMemoryFilesystem({**files, "a": ""}), limits=VfsLimits(file_bytes=100)))
    for path in files:
        run.told("read_file", path=path)
        assert run.refused("write_file", path=path, content="new") == wording
        assert run.refused("remove_file", path=path) == wording
    run.told("read_file", path="a")
    run.told("write_file", path="a", content="new")


def test_large_file_is_described_without_being_read(tmp_path: Path, wording: Wording) -> None:
    """4 GB, of which no more than the first 64 KiB are read: what identifies it is size, time and inode."""
    root = tmp_path / "root"
    root.mkdir()
    with (root / "disk.img").open("wb") as file:
        file.truncate(4 << 30)
    read: list[str] = []
    disk = WatchedDisk(lambda call: read.append(call) if call in {"chunks", "start"} else None)
    with HostFilesystem(root, journal=tmp_path / "journal", disk=disk) as filesystem:
        run = SuiteRun(VfsToolsSection(filesystem))
        assert run.told("read_file", path="disk.img") == wording
        os.utime(root / "disk.img", ns=(1, 1))
        assert run.refused("write_file", path="disk.img", content="") == wording
    assert "chunks" not in read


def test_something_special_is_described(tmp_path: Path, wording: Wording) -> None:
    """Looking at it is no failure; that it cannot be changed, the filesystem says."""
    root = tmp_path / "root"
    root.mkdir()
    os.mkfifo(root / "pipe")
    with HostFilesystem(root, journal=tmp_path / "journal") as filesystem:
        run = SuiteRun(VfsToolsSection(filesystem))
        assert run.told("read_file", path="pipe") == wording
        assert "read_before_write" not in run.refused("remove_file", path="pipe")


@pytest.mark.anyio
async def test_write_after_read_in_one_reply_is_judged_after_the_read(wording: Wording) -> None:
    """A model may ask for both at once."""
    filesystem = files()
    run = SuiteRun(VfsToolsSection(filesystem))
    reading, first = dict[str, str](), {"old": "milk", "new": "oat milk"}
    second = {"old": "milk\n", "new": "milk, bread\n"}
    given = [("read_file", reading), ("edit_file", first), ("read_file", reading), ("edit_file", second)]
    calls = [ToolCall(f"{n}", name, {"path": "notes/plan.md", **more}) for n, (name, more) in enumerate(given)]
    messages = await run.executor.execute_all_async(calls)
    assert [message.success for message in messages] == [True] * 4
    assert messages[2].content == wording
    assert filesystem.read_text("notes/plan.md") == "# Plan\n- buy oat milk, bread\n- sell bread\n"


class Awaiting(InMemoryFilesystem):
    """Files whose identity is known only when the event loop has gone on."""

    loop: asyncio.AbstractEventLoop

    def identity(self, path: str) -> str:
        gone_on = threading.Event()
        self.loop.call_soon_threadsafe(gone_on.set)
        assert gone_on.wait(30), "the event loop was held up"
        return super().identity(path)


@pytest.mark.anyio
async def test_looking_at_a_file_does_not_hold_up_the_event_loop() -> None:
    """Neither when a call is judged nor when its success is noted, and what is noted belongs to the call."""
    filesystem = Awaiting({"a.md": "one"})
    filesystem.loop = asyncio.get_running_loop()
    run = SuiteRun(VfsToolsSection(filesystem))
    more = {"read_file": {}, "write_file": {"content": "two"}, "remove_file": dict[str, str]()}
    calls = [ToolCall(name, name, {"path": "a.md", **more[name]}) for name in more]
    messages = await run.executor.execute_all_async(calls)
    assert [message.success for message in messages] == [True] * 3, [message.content for message in messages]
