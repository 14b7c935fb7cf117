"""Approval rules on paths hold for every file that a call reaches, by links too."""

from __future__ import annotations

import os
import re
import subprocess
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from handrail.agents import Answer, ApprovalRules, shell_toolset
from handrail.contrib.tools import GIT_READING, READING, ShellRule, VfsToolsSection
from handrail.filesystem import Filesystem, HostFilesystem
from handrail.testing import Call
from tests.agents.kit import (
    CallLog,
    Person,
    answers,
    called,
    desk,
    move,
    play,
    put,
    read,
    remove,
    ruled,
    running,
    write,
)
from tests.contrib.tools.vfs.section.test_exclude import CHANGES, LOOKS, PLACES, PLAIN, SECRET, Where
from tests.filesystem.kit import tree_of
from tests.wording import Wording

pytestmark = pytest.mark.anyio

BY_TOOL = """\
deny:
  - {tool: read_file, arguments: {path: "**/.env"}}
  - {tool: write_file, arguments: {path: "**/.env"}}
  - {tool: "[rw]*_file", arguments: {path: "**/*.key"}}
  - {tool: read_file, arguments: {path: "**/secrets/**"}}
  - {tool: edit_file, arguments: {path: "**/secrets/**"}}
"""
"""Rules that name a tool that reads and one that writes, and not the many others."""


FOR_ALL = """\
deny:
  - {tool: "*", arguments: {path: "**/.env"}}
  - {tool: "*", arguments: {path: "**/*.key"}}
  - {tool: "*", arguments: {path: "**/secrets/**"}}
"""


def secrets(filesystem: Filesystem) -> dict[str, bytes | None]:
    """What is at the paths that are denied, and in `.git`."""
    held = ("secrets", ".git")
    return {
        path: data
        for path, data in tree_of(filesystem).items()
        if path.endswith((".env", ".key")) or not set(held).isdisjoint(path.split("/"))
    }


# ---------------------------------------------------------------------------------------- 95 attempts by the file tools


@pytest.mark.parametrize("rules", [BY_TOOL, FOR_ALL], ids=["by tool", "for all"])
@pytest.mark.parametrize("where", PLACES.values(), ids=PLACES)
@pytest.mark.short(2)
async def test_no_file_tool_shows_what_a_rule_denies(where: Where, rules: str, tmp_path: Path) -> None:
    """By links, case, other spellings, globs and searches; nor what is in `.git`."""
    with where(PLAIN | SECRET, tmp_path / "files") as filesystem:
        agent = desk(tmp_path / "project", toolsets={"kept": VfsToolsSection(filesystem)})
        calls = [Call(tool, given) for tool, given in LOOKS]
        told = await answers(agent, *calls, rules=ruled(rules))
    assert len(told) == len(LOOKS)
    assert [call for call, text in zip(LOOKS, told, strict=True) if "hunter2" in text] == []


@pytest.mark.parametrize("rules", [BY_TOOL, FOR_ALL], ids=["by tool", "for all"])
@pytest.mark.parametrize("where", PLACES.values(), ids=PLACES)
@pytest.mark.short(2)
async def test_no_file_tool_changes_what_a_rule_denies(where: Where, rules: str, tmp_path: Path) -> None:
    """Nor moves it to where it could be read."""
    with where(PLAIN | SECRET, tmp_path / "files") as filesystem:
        agent = desk(tmp_path / "project", toolsets={"kept": VfsToolsSection(filesystem)})
        before = secrets(filesystem)
        calls = [Call(tool, given) for tool, given in CHANGES]
        told = await answers(agent, *calls, rules=ruled(rules))
        assert secrets(filesystem) == before
    assert not any("hunter2" in text for text in told)


# ------------------------------------------------------------------------------------------------- what the rules say


async def told(at: Path, rules: ApprovalRules | str, *calls: Call, also: str = "files", **options: Any) -> list[str]:
    """What the model reads after each call of an agent whose run works on `work`; who is asked decides if anyone is."""
    toolsets = options.pop("toolsets", {})
    agent = desk(at / "project", toolsets=toolsets, also=[] if toolsets else [also])
    asked = {"mode": "ask"} if "asker" in options else {}
    given = ruled(rules) if isinstance(rules, str) else rules
    return await answers(agent, *calls, root=at / "work", rules=given, **asked, **options)


def programs(folder: Path, *allow: ShellRule | Sequence[str]) -> dict[str, Any]:
    """A shell of the program over `work`."""
    return {"programs": shell_toolset(folder / "work", allow=allow)}


@pytest.mark.parametrize("tool", ["read_file", "*"])
async def test_rule_on_tools_that_read_leaves_writing_open(tool: str, tmp_path: Path, wording: Wording) -> None:
    """What is hidden may be replaced unseen, and refusals tell of it; a rule on all tools keeps it from both."""
    write(tmp_path / "work", {"priv/k.txt": "precious\n", "a.txt": "a\n"})
    rules = f'deny: [{{tool: "{tool}", arguments: {{path: "priv/**"}}}}]'
    assert await told(tmp_path, rules, put("priv"), move("a.txt", "priv/k.txt"), put("priv/k.txt")) == wording
    assert (tmp_path / "work/priv/k.txt").read_text() == ("precious\n" if tool == "*" else "x")


async def test_path_that_stays_may_be_written(tmp_path: Path, wording: Wording) -> None:
    """A rule on `remove_file` is about removing, also with a folder and by a move."""
    write(tmp_path / "work", {"logs/a.log": "1\n"})
    edit = Call("edit_file", {"path": "logs/a.log", "old": "1", "new": "3"})
    calls = [read("logs/a.log"), edit, move("logs/a.log", "x"), move("logs", "x"), remove("logs", recursive=True)]
    found = await told(tmp_path, 'deny: [{tool: remove_file, arguments: {path: "**/*.log"}}]', *calls)
    assert found[2:4] == wording
    assert (tmp_path / "work/logs/a.log").read_text() == "3\n"


async def test_what_is_asked_about_is_left_out_of_lists_and_counted(tmp_path: Path, wording: Wording) -> None:
    """A person who is asked shows it; until then nothing does."""
    write(tmp_path / "work", {"a.md": "milk\n", "plans/b.md": "milk\n", "plans/c.md": "milk\n"})
    rules, person = 'ask: [{tool: read_file, arguments: {path: "plans/*.md"}}]', Person()
    calls = [Call("list_files", {"path": "plans"}), Call("glob_files", {"pattern": "**/*.md"})]
    calls += [Call("grep_files", {"pattern": "milk"}), read("plans/b.md")]
    found = await told(tmp_path, rules, *calls, asker=person)
    assert found == wording
    assert ["plans/" in text for text in found] == [False, False, False, True]
    assert person.ids == ["c4"]
    assert await told(tmp_path, rules, *calls) == wording


@pytest.mark.parametrize("glob", ["x/ask/**", "*/ask/*.txt"])
async def test_what_is_asked_about_is_not_moved_or_removed_with_the_folder_above(
    glob: str, tmp_path: Path, wording: Wording
) -> None:
    """Nobody was asked about it; under its own name it goes, once somebody was."""
    write(tmp_path / "work", {"x/ask/q.txt": "milk\n", "x/b.txt": "b\n", "new/q.txt": "q\n"})
    person = Person()
    calls = [move("x", "y"), remove("x", recursive=True), move("x/ask/q.txt", "q.txt")]
    calls += [move("new", "x/ask/new"), remove("x/ask"), move("new", "x/ask")]
    rules = f'defaults: {{state: allow}}\nask: [{{tool: "*", arguments: {{"*": "{glob}"}}}}]'
    assert await told(tmp_path, rules, *calls, asker=person) == wording
    assert person.ids == (["c3", "c4", "c5", "c6"] if glob.endswith("**") else ["c3"])
    assert (tmp_path / "work/q.txt").read_text() == "milk\n"


NO_SEARCH = {
    "read asked": 'ask: [{tool: read_file, arguments: {path: "x/**"}}]',
    "lists denied": 'deny: [{tool: list_files, arguments: {path: "x/**"}}]',
    "searches denied": 'deny: [{tool: grep_files, arguments: {path: "x/**"}}]',
}
"""Rules on looking that a search which names a file would get around."""


@pytest.mark.parametrize("text", NO_SEARCH.values(), ids=NO_SEARCH)
async def test_no_search_shows_what_rules_leave_out(text: str, tmp_path: Path) -> None:
    """Though it names the file, reaches it by a link, or looks for it where it was moved to."""
    write(tmp_path / "work", {"x/f.txt": "hunter2\n"})
    (tmp_path / "work/l").symlink_to("x/f.txt")
    (tmp_path / "work/d").symlink_to("x")
    paths = (".", "x", "x/f.txt", "l", "d", "d/f.txt")
    calls = [Call("grep_files", {"pattern": "hunter", "path": path}) for path in paths]
    calls += [move(path, "y") for path in ("x", "x/f.txt", "d/f.txt")]
    calls += [Call("grep_files", {"pattern": "hunter", "path": path}) for path in (".", "y")]
    found = await told(tmp_path, f"defaults: {{state: allow}}\n{text}", *calls, asker=None)
    assert (len(found), [each for each in found if "hunter2" in each]) == (len(calls), [])
    assert (tmp_path / "work/x/f.txt").read_text() == "hunter2\n"


async def test_rules_hold_for_filesystems_of_the_program(tmp_path: Path) -> None:
    """Whatever type they are bound under."""
    write(tmp_path / "work", {".env": "hunter2\n"})
    with HostFilesystem(tmp_path / "work", journal=tmp_path / "journal") as files:
        section = VfsToolsSection(None, resources={HostFilesystem: files})
        found = await told(tmp_path, BY_TOOL, Call("grep_files", {"pattern": "hunter"}), toolsets={"kept": section})
    assert "hunter2" not in found[0]


# ----------------------------------------------------------------------------------------------------------- programs

ATTEMPTS: Sequence[tuple[str, ...]] = [
    ("cat", ".env"), ("cat", "./.env"), ("cat", "src//../.env"), ("cat", ".ENV"), ("cat", "to env"),
    ("cat", "up/b.txt"), ("cat", "plan.md", ".env"), ("cat", "--", ".env"), ("cat", "src/site.key"),
    ("cat", ".git/config"), ("cat", "secrets/a/b.txt"), ("head", "-n", "1", ".env"),
    ("head", "--lines=1", "SECRETS/a/b.txt"), ("tail", "-c", "9", ".env"), ("wc", "-c", ".env"), ("ls",), ("ls", "-a"),
    ("ls", "secrets"), ("ls", "to secrets"), ("ls", "-R", "."), ("grep", "hunter", ".env"),
    ("grep", "-e", "hunter", "to env"), ("grep", "-r", "hunter", "."), ("grep", "-rn", "hunter"),
    ("grep", "-nr", "hunter"), ("grep", "--recursive", "hunter", "."), ("grep", "-r", "--include=*", "hunter", "."),
    ("rg", "hunter"), ("rg", "--hidden", "hunter"), ("rg", "--files", "--hidden"), ("find", "."),
    ("find", ".", "-name", ".env"), ("find", "secrets", "-type", "f"), ("git", "show", "HEAD:.env"),
    ("git", "log", "-p"), ("git", "diff", "HEAD~1"), ("git", "status", "-s"),
]  # fmt: skip


@pytest.mark.parametrize("exclude", [True, False], ids=["excluded", "denied"])
async def test_no_ready_program_shows_what_is_out_of_reach(exclude: bool, tmp_path: Path, wording: Wording) -> None:
    """Programs that read files which nobody has named are not run at all."""
    work = tmp_path / "work"
    write(work, {**PLAIN, **SECRET, "secrets/a/b.txt": "hunter2\n"})
    for link, target in {"to env": ".env", "to secrets": "secrets", "up": "secrets/a"}.items():
        (work / link).symlink_to(target)
    repository(work)
    front = "exclude: [.env, '*.key', 'secrets/**']" if exclude else ""
    toolsets = programs(tmp_path, *READING, *GIT_READING)
    agent = desk(tmp_path / "project", toolsets=toolsets, also=["files"], front=front)
    calls = running(*ATTEMPTS)
    calls += [Call("shell_run", {"command": ["cat", "b.txt"], "folder": folder}) for folder in ("secrets/a", "up")]
    log = CallLog()
    rules = ApprovalRules() if exclude else ruled(BY_TOOL)
    (tmp_path / "other").mkdir()
    await play(agent, called(*calls), listener=log, rules=rules, root=tmp_path / "other")
    assert [event.call_id for event in log.ended if event.success or "hunter2" in event.content] == []
    counts = Counter(re.sub(r"\$\.command\[\d\]: '[^']*'|`[^`]*`", "IT", event.content) for event in log.ended)
    assert sorted(f"{number} times: {text}" for text, number in counts.items()) == wording


def repository(root: Path) -> None:
    """Make a folder a repository whose history has the secrets."""
    environment = {"PATH": os.environ["PATH"], "GIT_CONFIG_NOSYSTEM": "1", "GIT_CONFIG_GLOBAL": os.devnull}
    (root / ".git/config").unlink()
    who = ("-c", "user.name=a", "-c", "user.email=a@b.c")
    for arguments in (("init",), ("add", "-A"), ("commit", "-m", "first")):
        subprocess.run(["git", *who, *arguments], cwd=root, env=environment, check=True, capture_output=True)


async def test_programs_read_the_files_that_are_named_to_them(tmp_path: Path, wording: Wording) -> None:
    """And look for what they like where nothing is kept back but `.git`."""
    write(tmp_path / "work", {**PLAIN, **SECRET})
    named = running(["cat", "plan.md"], ["head", "-n1", "plan.md"], ["wc", "-l", "src/a.py"])
    assert await told(tmp_path, FOR_ALL, *named, also="shell") == ["buy milk\n", "buy milk\n", "1 src/a.py\n"]
    free = running(["grep", "-rh", "x =", "src"], ["ls", "src"], ["cat", ".git/config"])
    assert await told(tmp_path, "", *free, also="shell") == ["x = 1\n", "a.py\nsite.key\n", wording]


async def test_an_excluded_git_folder_is_kept_from_programs_that_find_it_by_themselves(
    tmp_path: Path, wording: Wording
) -> None:
    """Without `exclude: [.git]` it may only not be named."""
    write(tmp_path / "work", {**PLAIN, ".git/config": "x"})
    repository(tmp_path / "work")
    for front in ("", "exclude: [.git]"):
        agent = desk(tmp_path / "project", toolsets=programs(tmp_path, *GIT_READING), front=front)
        assert await answers(agent, *running(["git", "status", "-s"])) == [wording]


async def test_a_rule_that_asks_about_changes_is_not_bypassed_by_a_program(tmp_path: Path, wording: Wording) -> None:
    """The program is not judged for the file, so it may not be named; what the rule does not fit may be."""
    write(tmp_path / "work", {"final.md": "milk\n", "plan.md": "milk\n"})
    rules = "allow: [shell_run]\nask: [{tool: write_file, arguments: {path: final.md}}]\n"
    change = ("sed", "-i", "s/milk/tea/")
    calls = running((*change, "final.md"), (*change, "plan.md"), ["cat", "final.md", "plan.md"])
    shell = programs(tmp_path, *READING, ("sed",))
    assert await told(tmp_path, rules, *calls, toolsets=shell, asker=Person()) == wording


ASK = ruled('defaults: {state: allow}\nask: [{tool: "*", arguments: {path: "x/ask/**"}}]')


BY_LINKS: list[tuple[str, dict[str, Any]]] = [
    ("read_file", {"path": "l"}), ("read_file", {"path": "d/q.txt"}), ("list_files", {"path": "d"}),
    ("glob_files", {"pattern": "**", "path": "d"}), ("grep_files", {"pattern": ".", "path": "l"}),
    ("grep_files", {"pattern": ".", "path": "d"}), ("edit_file", {"path": "l", "old": "SECRET", "new": "x"}),
    ("write_file", {"path": "l", "content": "x"}), ("write_file", {"path": "d/new.txt", "content": "x"}),
    ("write_file", {"path": "dangling", "content": "x"}), ("move_file", {"path": "d/q.txt", "new_path": "out.txt"}),
    ("remove_file", {"path": "d/q.txt"}),
]  # fmt: skip
"""Calls whose paths lead into `x/ask`, under other names."""


def linked(root: Path) -> Path:
    """A folder with links to what is asked about."""
    write(root, {"x/ask/q.txt": "SECRET\n", "plan.md": "milk\n"})
    for link, target in {"l": "x/ask/q.txt", "d": "x/ask", "dangling": "x/ask/none.txt"}.items():
        (root / link).symlink_to(target)
    return root


@pytest.mark.parametrize("tool, arguments", BY_LINKS)
async def test_no_call_reaches_by_a_link_what_is_asked_about(
    tool: str, arguments: dict[str, Any], tmp_path: Path
) -> None:
    """No link is followed: nothing is shown or changed."""
    root, person = linked(tmp_path / "work"), Person(Answer("yes"))
    (content,) = await told(tmp_path, ASK, Call(tool, arguments), asker=person)
    assert (person.ids, "SECRET" in content) == ([], False)
    assert (root / "x/ask/q.txt").read_text() == "SECRET\n"
    assert sorted(path.name for path in (root / "x/ask").iterdir()) == ["q.txt"]


async def test_an_absolute_path_is_judged_as_the_path_in_the_folder(tmp_path: Path) -> None:
    """And a person is shown that one."""
    root, person = linked(tmp_path / "work"), Person(Answer("no"))
    calls = [read(str(root / "x/ask/q.txt")), read("x/ask/q.txt"), read(str(root / "plan.md"))]
    contents = await told(tmp_path, ASK, *calls, asker=person)
    assert [dict(call.reached or {}) for call in person.asked] == [{"path": "x/ask/q.txt"}, {}]
    assert ("SECRET" in "".join(contents), "milk" in contents[2]) == (False, True)
