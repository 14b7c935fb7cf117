"""What a model sends comes back to it cut: no message for a call repeats a megabyte of its arguments."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, cast

from handrail.contrib.tools import PlanningToolsSection, ShellRule, ShellToolsSection, VfsToolsSection
from handrail.filesystem import InMemoryFilesystem
from handrail.prompt import Section
from handrail.runtime import Session, ToolCall
from tests.contrib.suites import SuiteRun
from tests.extent import FULL

MEGABYTE = 1_000_000
LENGTH = 100_000 if FULL else 8_000
"""How long the other texts are: most tools look further into what is not quite so long."""

MOST = 4_000
"""The longest message, in characters."""

LONG = {
    "letters": "x" * MEGABYTE, "words": "a long word " * (LENGTH // 12), "lines": "x\n" * (LENGTH // 2),
    "quotes": "'\"" * (LENGTH // 2), "names": "ab/" * (LENGTH // 3), "upwards": "../" * (LENGTH // 3),
    "absolute": "/" + "x" * LENGTH, "choices": "{a,b}" * (LENGTH // 5),
    **{f"of {mark!r}": mark * LENGTH for mark in "*[(\0\\-\u00fc\ud800\x1b"},
    "a long path": "\x01/" + "d\x02/" * 126 + "f" * 200, "a long name": "\x03" * 255,
}  # fmt: skip
VALID: dict[str, dict[str, Any]] = {
    "list_files": {"path": "a.md"}, "glob_files": {"pattern": "**", "path": "."}, "read_file": {"path": "a.md"},
    "grep_files": {"pattern": "x", "path": ".", "files": "**"}, "write_file": {"path": "new.md", "content": "x"},
    "edit_file": {"path": "a.md", "old": "one", "new": "two"}, "remove_file": {"path": "a.md"},
    "move_file": {"path": "a.md", "new_path": "b.md"}, "planning_add_step": {"steps": ["next"]},
    "planning_setup_plan": {"objective": "win", "initial_steps": ["begin"]}, "planning_read_plan": {},
    "planning_update_step": {"step_id": 1, "title": "next", "status": "done"},
    "shell_run": {"command": ["ls", "-l", "a.md"], "folder": ".", "input": "x"},
}  # fmt: skip
_LETTERS = LONG["letters"]
NUMBERS: tuple[Any, ...] = (10**4_000, -(10**4_000), 1e300)
OTHERS: tuple[Any, ...] = (*NUMBERS, [_LETTERS] * 2, {_LETTERS: _LETTERS}, [""] * 5_000, [*range(20)], [], {}, None)


def sections(root: Path) -> Iterator[Section[Any]]:
    """The suites, the file tools over a plain filesystem."""
    files = {"a.md": "one\ntwo\n", "d/b.md": "one\n"}
    yield VfsToolsSection(InMemoryFilesystem(files))
    yield PlanningToolsSection(session=Session())
    yield ShellToolsSection(root, allow=[ShellRule(("ls",), options=("-l",))], max_output_bytes=1_000)


def varied(valid: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """Arguments of which one is too long, or is something else altogether; and one argument too many."""
    for name, value in valid.items():
        for long in (*LONG.values(), *OTHERS):
            yield {**valid, name: long}
        if isinstance(value, list):
            items = cast("list[object]", value)  # of a table above
            for number in range(len(items)):
                for long in LONG.values():
                    yield {**valid, name: [*items[:number], long, *items[number + 1 :]]}
    for long in LONG.values():
        yield {**valid, long: 1}


def calls() -> Iterator[tuple[str, Mapping[str, Any] | str]]:
    """A call of every tool for each of the arguments, of text that is none, and of tools that there are not."""
    for tool, valid in VALID.items():
        yield from ((tool, arguments) for arguments in varied(valid))
        yield from ((tool, text) for text in LONG.values())
        yield from ((tool, json.dumps(long)) for long in LONG.values())
    yield from ((name, "{}") for name in LONG.values())


def test_no_message_repeats_what_was_sent_at_length(tmp_path: Path) -> None:
    """Every tool of the suites, each of its arguments, and names of tools."""
    (tmp_path / "a.md").write_text("one\n")
    for section in sections(tmp_path):
        names = {tool.name for tool in section.tools}
        run = SuiteRun(section)
        for name in names & {"read_file"}:
            run.call(name, path="a.md")
        for number, (tool, arguments) in enumerate(calls()):
            if tool in VALID and tool not in names:
                continue
            message = run.executor.execute(ToolCall(f"long-{number}", tool, arguments))
            sent = ascii(arguments)[:100]
            assert len(message.content) <= MOST, f"{tool} {sent}: {message.content[:300]} ... {message.content[-300:]}"


def test_every_tool_of_the_suites_is_called(tmp_path: Path) -> None:
    """The table of valid arguments has them all."""
    assert {tool.name for section in sections(tmp_path) for tool in section.tools} == VALID.keys()
