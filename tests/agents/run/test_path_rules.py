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

from handrail.agents import Answer, ApprovalRules, GatedCall, Rule, shell_toolset
from handrail.contrib.tools import GIT_READING, READING, ShellRule, VfsToolsSection
from handrail.filesystem import Filesystem, HostFilesystem
from handrail.session import Session
from handrail.testing import Call, Reply
from tests.agents.kit import CallLog, Person, answers, called, desk, play, ruled, write
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


@pytest.mark.parametrize("tool", ["read_file", "*"])
async def test_rule_on_tools_that_read_leaves_writing_open(tool: str, tmp_path: Path, wording: Wording) -> None:
    """What is hidden may be replaced unseen, and refusals tell of it; a rule on all tools keeps it from both."""
    write(tmp_path / "work", {"priv/k.txt": "precious\n", "a.txt": "a\n"})
    agent = desk(tmp_path / "project", also=["files"])
    rules = ruled(f'deny: [{{tool: "{tool}", arguments: {{path: "priv/**"}}}}]')
    calls = [
        Call("write_file", {"path": "priv", "content": "x"}),
        Call("move_file", {"path": "a.txt", "new_path": "priv/k.txt"}),
        Call("write_file", {"path": "priv/k.txt", "content": "x"}),
    ]
    told = await answers(agent, *calls, root=tmp_path / "work", rules=rules)
    assert (tmp_path / "work/priv/k.txt").read_text() == ("precious\n" if tool == "*" else "x")
    assert told == wording


async def test_path_that_stays_may_be_written(tmp_path: Path, wording: Wording) -> None:
    """A rule on `remove_file` is about removing, also with a folder and by a move."""
    write(tmp_path / "work", {"logs/a.log": "1\n"})
    agent = desk(tmp_path / "project", also=["files"])
    rules = ruled('deny: [{tool: remove_file, arguments: {path: "**/*.log"}}]')
    told = await answers(
        agent,
        Call("read_file", {"path": "logs/a.log"}),
        Call("edit_file", {"path": "logs/a.log", "old": "1", "new": "3"}),
        Call("move_file", {"path": "logs/a.log", "new_path": "x"}),
        Call("move_file", {"path": "logs", "new_path": "x"}),
        Call("remove_file", {"path": "logs", "recursive": True}),
        root=tmp_path / "work",
        rules=rules,
    )
    assert told[2:4] == wording
    assert (tmp_path / "work/logs/a.log").read_text() == "3\n"


async def test_what_is_asked_about_is_left_out_of_lists_and_counted(tmp_path: Path, wording: Wording) -> None:
    """A person who is asked shows it; until then nothing does."""
    write(tmp_path / "work", {"a.md": "milk\n", "plans/b.md": "milk\n", "plans/c.md": "milk\n"})
    agent = desk(tmp_path / "project", also=["files"])
    rules, person = ruled('ask: [{tool: read_file, arguments: {path: "plans/*.md"}}]'), Person()
    calls = [
        Call("list_files", {"path": "plans"}),
        Call("glob_files", {"pattern": "**/*.md"}),
        Call("grep_files", {"pattern": "milk"}),
        Call("read_file", {"path": "plans/b.md"}),
    ]
    told = await answers(agent, *calls, root=tmp_path / "work", rules=rules, mode="ask", asker=person)
    assert told == wording
    assert ["plans/" in text for text in told] == [False, False, False, True]
    assert person.ids == ["c4"]
    told = await answers(agent, *calls, root=tmp_path / "work", rules=rules)
    assert told == wording


@pytest.mark.parametrize("glob", ["x/ask/**", "*/ask/*.txt"])
async def test_what_is_asked_about_is_not_moved_or_removed_with_the_folder_above(
    glob: str, tmp_path: Path, wording: Wording
) -> None:
    """Nobody was asked about it; under its own name it goes, once somebody was."""
    write(tmp_path / "work", {"x/ask/q.txt": "milk\n", "x/b.txt": "b\n", "new/q.txt": "q\n"})
    agent, person = desk(tmp_path / "project", also=["files"]), Person()
    rules = ruled(f'defaults: {{state: allow}}\nask: [{{tool: "*", arguments: {{"*": "{glob}"}}}}]')
    calls = [
        Call("move_file", {"path": "x", "new_path": "y"}),
        Call("remove_file", {"path": "x", "recursive": True}),
        Call("move_file", {"path": "x/ask/q.txt", "new_path": "q.txt"}),
        Call("move_file", {"path": "new", "new_path": "x/ask/new"}),
        Call("remove_file", {"path": "x/ask"}),
        Call("move_file", {"path": "new", "new_path": "x/ask"}),
    ]
    told = await answers(agent, *calls, root=tmp_path / "work", rules=rules, mode="ask", asker=person)
    assert told == wording
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
    agent = desk(tmp_path / "project", also=["files"])
    paths = (".", "x", "x/f.txt", "l", "d", "d/f.txt")
    calls = [Call("grep_files", {"pattern": "hunter", "path": path}) for path in paths]
    calls += [Call("move_file", {"path": path, "new_path": "y"}) for path in ("x", "x/f.txt", "d/f.txt")]
    calls += [Call("grep_files", {"pattern": "hunter", "path": path}) for path in (".", "y")]
    rules = ruled(f"defaults: {{state: allow}}\n{text}")
    told = await answers(agent, *calls, root=tmp_path / "work", rules=rules, mode="ask")
    assert len(told) == len(calls)
    assert [each for each in told if "hunter2" in each] == []
    assert (tmp_path / "work/x/f.txt").read_text() == "hunter2\n"


async def test_rules_hold_for_filesystems_of_the_program(tmp_path: Path) -> None:
    """Whatever type they are bound under."""
    write(tmp_path / "work", {".env": "hunter2\n"})
    with HostFilesystem(tmp_path / "work", journal=tmp_path / "journal") as files:
        section = VfsToolsSection(None, resources={HostFilesystem: files})
        agent = desk(tmp_path / "project", toolsets={"kept": section})
        rules = ruled(BY_TOOL)
        told = await answers(agent, Call("grep_files", {"pattern": "hunter"}), rules=rules)
    assert "hunter2" not in told[0]


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
    programs = {"programs": shell_toolset(work, allow=[*READING, *GIT_READING])}
    agent = desk(tmp_path / "project", toolsets=programs, also=["files"], front=front)
    calls = [Call("shell_run", {"command": list(command)}) for command in ATTEMPTS]
    calls += [Call("shell_run", {"command": ["cat", "b.txt"], "folder": folder}) for folder in ("secrets/a", "up")]
    log = CallLog()
    rules = ApprovalRules() if exclude else ruled(BY_TOOL)
    (tmp_path / "other").mkdir()
    await play(agent, called(*calls), listener=log, rules=rules, root=tmp_path / "other")
    assert [event.call_id for event in log.ended if event.success or "hunter2" in event.content] == []
    told = Counter(re.sub(r"\$\.command\[\d\]: '[^']*'|`[^`]*`", "IT", event.content) for event in log.ended)
    assert sorted(f"{number} times: {text}" for text, number in told.items()) == wording


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
    agent = desk(tmp_path / "project", also=["shell"])
    named = [["cat", "plan.md"], ["grep", "-n", "milk", "plan.md"], ["wc", "-l", "src/a.py"]]
    calls = [Call("shell_run", {"command": command}) for command in named]
    told = await answers(agent, *calls, root=tmp_path / "work", rules=ruled(FOR_ALL))
    assert told == ["buy milk\n", "1:buy milk\n", "1 src/a.py\n"]
    free = [["grep", "-rh", "x =", "src"], ["ls", "src"], ["cat", ".git/config"]]
    calls = [Call("shell_run", {"command": command}) for command in free]
    told = await answers(agent, *calls, root=tmp_path / "work")
    assert told[:2] == ["x = 1\n", "a.py\nsite.key\n"]
    assert told[2] == wording


async def test_an_excluded_git_folder_is_kept_from_programs_that_find_it_by_themselves(
    tmp_path: Path, wording: Wording
) -> None:
    """Without `exclude: [.git]` it may only not be named."""
    work = tmp_path / "work"
    write(work, {**PLAIN, ".git/config": "x"})
    repository(work)
    status = Call("shell_run", {"command": ["git", "status", "-s"]})
    programs = {"programs": shell_toolset(work, allow=GIT_READING)}
    for front in ("", "exclude: [.git]"):
        agent = desk(tmp_path / "project", toolsets=programs, front=front)
        (told,) = await answers(agent, status)
        assert told == wording


async def test_a_rule_that_asks_about_changes_is_not_bypassed_by_a_program(tmp_path: Path, wording: Wording) -> None:
    """The program is not judged for the file, so it may not be named; what the rule does not fit may be."""
    write(tmp_path / "work", {"final.md": "milk\n", "plan.md": "milk\n"})
    allow: list[ShellRule | Sequence[str]] = [*READING, ("sed",)]
    agent = desk(tmp_path / "project", toolsets={"programs": shell_toolset(tmp_path / "work", allow=allow)})
    rules = ruled("allow: [shell_run]\nask: [{tool: write_file, arguments: {path: final.md}}]\n")
    commands = [["sed", "-i", "s/milk/tea/", name] for name in ("final.md", "plan.md")]
    calls = [Call("shell_run", {"command": command}) for command in (*commands, ["cat", "final.md", "plan.md"])]
    told = await answers(agent, *calls, rules=rules, mode="ask", asker=Person())
    assert told == wording


async def test_an_approval_rule_may_let_its_calls_read_everything(tmp_path: Path, wording: Wording) -> None:
    """Its own calls, and no others."""
    write(tmp_path / "work", {**PLAIN, ".env": "hunter2\n"})
    agent = desk(tmp_path / "project", also=["shell"])
    text = BY_TOOL + 'allow: [{tool: shell_run, arguments: {command: "grep -rh milk*"}, reads_everything: true}]\n'
    calls = [
        Call("shell_run", {"command": ["grep", "-rh", "milk", "."]}),
        Call("shell_run", {"command": ["grep", "-rh", "hunter", "."]}),
        Call("shell_run", {"command": ["ls"]}),
    ]
    told = await answers(agent, *calls, root=tmp_path / "work", rules=ruled(text))
    assert told[0] == "buy milk\n"
    assert told[1:] == wording


async def test_an_approval_rule_may_let_changes_stay_whatever_the_exit_code(tmp_path: Path, wording: Wording) -> None:
    """Of its own calls, and with its own exit codes; whether or not files are kept back."""
    write(tmp_path / "work", PLAIN)
    allow = [ShellRule(("sh", "-c"), confined=False)]
    agent = desk(tmp_path / "project", toolsets={"programs": shell_toolset(tmp_path / "work", allow=allow)})
    text = 'allow: [{tool: shell_run, arguments: {command: "sh -c*fix*"}, commit_on: [1]}, shell_run]\n'
    calls = [
        Call("shell_run", {"command": ["sh", "-c", "touch fix1; exit 1"]}),
        Call("shell_run", {"command": ["sh", "-c", "touch fix2; exit 2"]}),
        Call("shell_run", {"command": ["sh", "-c", "touch other; exit 1"]}),
    ]
    told = await answers(agent, *calls, rules=ruled(text))
    assert told == wording
    assert {each.name for each in (tmp_path / "work").iterdir()} & {"fix1", "fix2", "other"} == {"fix1"}


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
async def test_a_call_that_reaches_by_a_link_what_is_asked_about_is_asked_about(
    tool: str, arguments: dict[str, Any], tmp_path: Path
) -> None:
    """And without an answer nothing is shown or changed."""
    root = linked(tmp_path / "work")
    person = Person(Answer("no"))
    agent = desk(tmp_path / "project", also=["files"])
    told = await answers(agent, Call(tool, arguments), root=root, rules=ASK, mode="ask", asker=person)
    assert person.ids == ["c1"]
    assert "SECRET" not in told[0]
    assert (root / "x/ask/q.txt").read_text() == "SECRET\n"
    assert sorted(path.name for path in (root / "x/ask").iterdir()) == ["q.txt"]


async def test_a_person_is_shown_where_a_path_leads(tmp_path: Path) -> None:
    """Only where it is another path; a link that is moved or removed itself leads nowhere."""
    root = linked(tmp_path / "work")
    person = Person(Answer("no"))
    agent = desk(tmp_path / "project", also=["files"])
    rules = ApprovalRules(ask=(Rule("*_file"),))
    calls = [
        Call("read_file", {"path": "l"}),
        Call("read_file", {"path": "x/ask/q.txt"}),
        Call("read_file", {"path": "./plan.md"}),
        Call("move_file", {"path": "l", "new_path": "d/l"}),
        Call("remove_file", {"path": "d"}),
        Call("read_file", {"path": "../out"}),
    ]
    await answers(agent, *calls, root=root, rules=rules, mode="ask", asker=person)
    reached = [call.reached for call in person.asked]
    assert [dict(each) if each else None for each in reached] == [
        {"path": "x/ask/q.txt"}, None, None, {"new_path": "x/ask/l"}, None, None,
    ]  # fmt: skip


async def test_an_allow_rule_on_a_link_does_not_allow_what_it_leads_to(tmp_path: Path) -> None:
    """Every look at the path must fit."""
    root = linked(tmp_path / "work")
    write(root, {"tmp/a.txt": "a\n"})
    (root / "tmp/out").symlink_to("../plan.md")
    (root / "tmp/in").symlink_to("a.txt")
    agent = desk(tmp_path / "project", also=["files"])
    rules = ruled('allow: [read_file, {tool: edit_file, arguments: {path: "tmp/**"}}]')
    calls: list[Call] = []
    for path, old in {"tmp/out": "milk", "tmp/in": "a"}.items():
        calls += [Call("read_file", {"path": path}), Call("edit_file", {"path": path, "old": old, "new": "x"})]
    person = Person(Answer("no"))
    await answers(agent, *calls, root=root, rules=rules, mode="ask", asker=person)
    assert person.ids == ["c2"]
    assert ((root / "plan.md").read_text(), (root / "tmp/a.txt").read_text()) == ("milk\n", "x\n")


async def test_an_answer_holds_for_the_file_that_the_link_led_to(tmp_path: Path) -> None:
    """Not for another one to which the same path leads later."""
    root = linked(tmp_path / "work")
    write(root, {"x/ask/other.txt": "OTHER\n"})
    person, session = Person(Answer("yes", remember="arguments")), Session()
    agent = desk(tmp_path / "project", also=["files"])
    read = Call("read_file", {"path": "l"})

    async def again(id: str) -> str:
        (told,) = await answers(
            agent, Call("read_file", read.arguments, id=id), root=root, rules=ASK, mode="ask", asker=person,
            session=session,
        )  # fmt: skip
        return told

    assert "SECRET" in await again("a1")
    assert "SECRET" in await again("a2")
    assert person.ids == ["a1"]
    (root / "l").unlink()
    (root / "l").symlink_to("x/ask/other.txt")
    assert "OTHER" in await again("a3")
    assert person.ids == ["a1", "a3"]
    assert person.asked[0].digest != person.asked[1].digest


async def test_a_link_that_changes_after_the_answer_is_asked_about_anew(tmp_path: Path) -> None:
    """As are arguments that change: the pipeline looks again before the call runs."""
    root = linked(tmp_path / "work")
    write(root, {"x/ask/other.txt": "OTHER\n"})

    class Swaps(Person):
        async def __call__(self, call: GatedCall) -> Answer:
            if not self.asked:
                (root / "l").unlink()
                (root / "l").symlink_to("x/ask/other.txt")
            return await super().__call__(call)

    person, log = Swaps(), CallLog()
    agent = desk(tmp_path / "project", also=["files"])
    replies: list[Reply] = called(Call("read_file", {"path": "l"}))
    await play(agent, replies, root=root, rules=ASK, mode="ask", asker=person, listener=log)
    assert [dict(call.reached or {}) for call in person.asked] == [{"path": "x/ask/q.txt"}, {"path": "x/ask/other.txt"}]
    assert "OTHER" in log.ended[0].content
