"""Rules and exclusions on files that several toolsets share, and names with a prefix."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from pydantic_ai import RunContext
from pydantic_ai.toolsets import AbstractToolset

from handrail.agents import (
    Answer,
    ApprovalRules,
    Decision,
    LoadedAgent,
    Rule,
    current_run,
    files_toolset,
    shell_toolset,
)
from handrail.agents.approval.decisions import ApprovalRecord, open_questions, record_decision
from handrail.contrib.tools import READING, VfsToolsSection
from handrail.filesystem import Filesystem, InMemoryFilesystem
from handrail.prompt import Section, Tool, ToolContext, ToolResult
from handrail.session import Session
from handrail.session.persistence.stored_types import stored_type
from handrail.store import MemoryStore
from handrail.testing import Call, Reply
from tests.agents.approval.calls import gated
from tests.agents.kit import DONE, CallLog, Person, answers, called, desk, inside, play, read, ruled, running, write
from tests.agents.kit import agent as agent_file
from tests.wording import Wording

pytestmark = pytest.mark.anyio

CALLS = (("read_file", {"path": "a/secret.txt"}), ("write_file", {"path": "a/new.txt", "content": "x"}))
"""A call that reads and one that writes, both below `a`."""


NAMED = {"with the prefix": "notes_", "without": "", "by a glob": "*"}


PLACES: dict[str, dict[str, str]] = {"any path": {}, "a path": {"path": "a/**"}}


async def outcome(folder: Path, prefix: str, tool: str, given: dict[str, Any], rules: ApprovalRules) -> str:
    """Whether a call is asked about, runs or is denied; a person who is asked says no."""
    root = folder / "notes"
    write(root, {"a/secret.txt": "hunter2\n"})
    person = Person(Answer("no"))
    agent = desk(folder / "project", toolsets={"notes": files_toolset(root, prefix=prefix)})
    name = f"{prefix}_{tool}" if prefix else tool
    [content] = await answers(agent, Call(name, given), rules=rules, mode="ask", asker=person)
    held = not (root / "a/new.txt").exists() and "hunter2" not in content
    if person.asked:
        assert held
        assert person.asked[0].tool == name
        return "asked"
    return "denied" if held else "ran"


@pytest.mark.parametrize("asked", CALLS, ids=[tool for tool, _ in CALLS])
@pytest.mark.parametrize("where", PLACES.values(), ids=PLACES)
@pytest.mark.parametrize("prefix", ["", "notes"], ids=["plain toolset", "prefixed toolset"])
@pytest.mark.parametrize("verdict", ["ask", "deny"])
@pytest.mark.short(3)
async def test_a_rule_that_asks_or_denies_holds_by_either_name(
    verdict: str, prefix: str, where: dict[str, str], asked: tuple[str, dict[str, Any]], tmp_path: Path
) -> None:
    """The name that the tool has in its suite, and the one that the model calls it by."""
    tool, given = asked
    stems = NAMED.values() if prefix else ["", "*"]
    expected = {"ask": "asked", "deny": "denied"}[verdict]
    for number, stem in enumerate(stems):
        rule = {verdict: (Rule(f"{stem}{tool}", where),), "defaults": {"state": "allow", "read": "allow"}}
        assert await outcome(tmp_path / str(number), prefix, tool, given, ApprovalRules(**rule)) == expected, stem  # type: ignore[arg-type]


@pytest.mark.parametrize("where", PLACES.values(), ids=PLACES)
@pytest.mark.parametrize("tool, given", CALLS, ids=[tool for tool, _ in CALLS])
@pytest.mark.short(2)
async def test_a_rule_that_allows_holds_by_the_name_that_is_called(
    tool: str, given: dict[str, Any], where: dict[str, str], tmp_path: Path
) -> None:
    """A toolset that has got a prefix is another toolset to whoever allows."""
    expected = {("notes", "notes_"): "ran", ("notes", ""): "denied", ("notes", "*"): "ran", ("", ""): "ran"}
    for number, ((prefix, stem), outcome_of) in enumerate(expected.items()):
        rules = ApprovalRules(allow=(Rule(f"{stem}{tool}", where),), defaults={"state": "deny", "read": "deny"})
        assert await outcome(tmp_path / str(number), prefix, tool, given, rules) == outcome_of, (prefix, stem)


async def test_an_answer_is_remembered_under_the_name_that_is_called(tmp_path: Path) -> None:
    """The same call of another toolset is another question."""
    write(tmp_path / "notes", {"a/secret.txt": "hunter2\n"})
    person = Person(Answer("yes", remember="rule"))
    toolsets = {name: files_toolset(tmp_path / "notes", prefix=name) for name in ("one", "two")}
    agent = desk(tmp_path / "project", toolsets=toolsets)
    calls = [Call(f"{name}_read_file", {"path": "a/secret.txt"}) for name in ("one", "one", "two")]
    told = await answers(agent, *calls, rules=ruled("ask: [read_file]"), mode="ask", asker=person)
    assert [call.tool for call in person.asked] == ["one_read_file", "two_read_file"]
    assert all("hunter2" in text for text in told)


async def test_an_open_question_is_asked_again_under_the_rules_for_either_name(tmp_path: Path) -> None:
    """A rule that has come to deny the tool by its own name answers it; no person is asked about what cannot run."""
    agent = desk(tmp_path / "project", toolsets={"notes": files_toolset(tmp_path / "notes", prefix="notes")})
    write(tmp_path / "notes", {"plan.md": "milk\n"})
    call = Call("notes_write_file", {"path": "new.md", "content": "x"})
    kept_in = MemoryStore()
    first, again = Person(Answer("later")), Person(Answer("no"))
    with Session.open(kept_in, "s") as session:
        waiting = await play(agent, called(call)[:1], session=session, rules=ruled(""), mode="ask", asker=first)
    assert ([each.tool for each in waiting.waiting], len(first.asked)) == (["notes_write_file"], 1)
    rules, log = ruled("deny: [write_file]"), CallLog()
    with Session.open(kept_in, "s") as session:
        await play(agent, [DONE], None, session=session, rules=rules, mode="ask", asker=again, listener=log)
    (ended,) = log.ended
    assert again.asked == []
    assert "write_file (approval.yaml:1)" in ended.content, ended.content
    assert not (tmp_path / "notes/new.md").exists()


def test_an_open_question_is_stored_with_all_that_it_is_judged_by() -> None:
    """Where a path leads and the tool's own name are part of it; an older question has no name."""
    session = Session()
    call = gated("notes_read_file", {"path": "a"}, reached={"path": "x/a"})
    call = replace(call, session_id=session.session_id, own_tool="read_file")
    record_decision(session, call, Decision("later", call.digest))
    assert open_questions(session) == (call,)
    stored = stored_type(ApprovalRecord)
    (record,) = json.loads(stored.dump(session[ApprovalRecord].all()))
    del record["call"]["own_tool"]
    (before,) = stored.load(json.dumps([record]).encode(), 1)
    assert before.call == replace(call, own_tool="")


@dataclass(frozen=True)
class Order:
    """Parameters."""

    number: str


async def test_it_holds_for_every_tool_of_a_section_and_every_way_to_rename_it(tmp_path: Path) -> None:
    """Not for the file tools alone."""
    ran: list[str] = []

    def pay(params: Order, *, context: ToolContext) -> ToolResult[None]:
        ran.append(params.number)
        return ToolResult.ok(None, message="paid")

    def till(_: RunContext[Any]) -> AbstractToolset[Any]:
        tools = [Tool[Order, None](name="pay", description="Pays.", handler=pay, effect="external")]
        made = current_run().section_toolset(Section(title="Till", tools=tools), id="till")
        return made.renamed({"give": "pay"}).prefixed("shop")

    agent = desk(tmp_path / "project", toolsets={"till": till})
    for verdict, asked in (("ask", 1), ("deny", 0)):
        person = Person(Answer("no"))
        rules = ruled(f"defaults: {{external: allow}}\n{verdict}: [{{tool: pay, expect: unmatched}}]")
        await answers(agent, Call("shop_give", {"number": "1"}), rules=rules, mode="ask", asker=person)
        assert (len(person.asked), ran) == (asked, [])


DENY = ApprovalRules(deny=(Rule("notes_*", {"path": "secret.txt"}),))
ASK = ApprovalRules(ask=(Rule("notes_*", {"path": "secret.txt"}),))


def own(folder: Path, **options: Any) -> Callable[[RunContext[Any]], Section[Any]]:
    """A section of the program over a folder."""
    return lambda _: VfsToolsSection(current_run().filesystem(folder), **options)


def over(folder: Path, order: Sequence[str]) -> dict[str, Any]:
    """Toolsets over one folder, in this order."""
    toolsets = {
        "notes": files_toolset(folder, prefix="notes"),
        "two": files_toolset(folder, prefix="two"),
        "own": own(folder),
        "programs": shell_toolset(folder, allow=READING),
    }
    return {name: toolsets[name] for name in order}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a file that rules are about."""
    write(tmp_path / "notes", {"secret.txt": "hunter2\n", "open.txt": "milk\n"})
    return tmp_path / "notes"


AROUND = [
    Call("two_read_file", {"path": "secret.txt"}), Call("two_grep_files", {"pattern": "hunter"}),
    Call("two_grep_files", {"pattern": "hunter", "path": "secret.txt"}),
    Call("two_move_file", {"path": "secret.txt", "new_path": "x.txt"}), Call("two_read_file", {"path": "x.txt"}),
    Call("read_file", {"path": "secret.txt"}), Call("grep_files", {"pattern": "hunter"}),
    Call("move_file", {"path": "secret.txt", "new_path": "y.txt"}), Call("read_file", {"path": "y.txt"}),
    Call("shell_run", {"command": ["cat", "secret.txt"]}),
    Call("shell_run", {"command": ["grep", "-r", "hunter", "."]}), Call("notes_grep_files", {"pattern": "hunter"}),
]  # fmt: skip
"""Calls that reach the file without its toolset, and one that searches with it."""


@pytest.mark.parametrize("rules", [DENY, ASK], ids=["denied", "asked"])
@pytest.mark.parametrize("order", [["notes", "two", "own", "programs"], ["programs", "own", "two", "notes"]])
@pytest.mark.short(2)
async def test_a_rule_on_a_toolset_holds_for_its_files_whatever_reaches_them(
    order: Sequence[str], rules: ApprovalRules, folder: Path, tmp_path: Path
) -> None:
    """Whichever toolset is made first. A rule that asks denies where it cannot ask."""
    agent = desk(tmp_path / "project", toolsets=over(folder, order))
    told = await answers(agent, *AROUND, rules=rules, mode="ask", asker=Person())
    assert len(told) == len(AROUND)
    assert [call for call, text in zip(AROUND, told, strict=True) if "hunter2" in text] == []
    assert (folder / "secret.txt").read_text() == "hunter2\n"


async def test_files_that_no_rule_is_about_stay_in_reach(folder: Path, tmp_path: Path) -> None:
    """Of the same folder, and of the same name elsewhere."""
    write(tmp_path / "work", {"secret.txt": "mine\n"})
    agent = desk(tmp_path / "project", toolsets=over(folder, ["notes", "two"]), also=["files", "shell"])
    calls = [Call("two_read_file", {"path": "open.txt"}), read("secret.txt"), *running(["grep", "-r", "mine", "."])]
    told = await answers(agent, *calls, rules=DENY, root=tmp_path / "work")
    assert ["milk" in told[0], "mine" in told[1], "mine" in told[2]] == [True] * 3


async def test_an_agent_that_is_called_reaches_them_neither(folder: Path, tmp_path: Path, wording: Wording) -> None:
    """Whether or not it has the toolset that the rule names."""
    others = {"clerk.agent": agent_file("clerk", toolsets="[two]")}
    agent = desk(tmp_path / "project", toolsets=over(folder, ["notes", "two"]), also=["clerk"], others=others)
    log = CallLog()
    ask = Reply(calls=[Call("clerk", {"input": "Look."}, id="c1")])
    look = [Reply(calls=[Call("two_read_file", {"path": "secret.txt"}, id="d1")]), Reply(text="Looked.")]
    await play(agent, [ask, *inside("c1", look), Reply(text="Done.")], listener=log, rules=DENY)
    assert log.told["d1"] == wording


def toolset_over(filesystem: Filesystem, prefix: str) -> Callable[[RunContext[Any]], AbstractToolset[Any]]:
    """A toolset of the program over files of its own."""

    def make(_: RunContext[Any]) -> AbstractToolset[Any]:
        made = current_run().section_toolset(VfsToolsSection(filesystem), id=prefix, prefix=f"{prefix}_")
        return made.prefixed(prefix)

    return make


async def test_files_of_the_program_are_kept_back_in_the_same_way(tmp_path: Path, wording: Wording) -> None:
    """They are the same files behind any filter."""
    files = InMemoryFilesystem({"secret.txt": "hunter2\n"})
    toolsets = {name: toolset_over(files, name) for name in ("two", "notes")}
    agent = desk(tmp_path / "project", toolsets=toolsets)
    (told,) = await answers(agent, Call("two_read_file", {"path": "secret.txt"}), rules=DENY)
    assert told == wording


# ----------------------------------------------------------------------------------------------- `exclude` of a toolset


def excluding(folder: Path, tmp_path: Path, **toolsets: Any) -> LoadedAgent:
    """An agent with a toolset that excludes a file of a folder, and others."""
    notes = files_toolset(folder, prefix="notes", exclude=["secret*"])
    toolsets |= {"programs": shell_toolset(folder, allow=READING), "notes": notes}
    return desk(tmp_path / "project", toolsets=toolsets)


async def test_what_a_toolset_excludes_is_out_of_reach_of_programs_in_its_folder(
    folder: Path, tmp_path: Path, wording: Wording
) -> None:
    """Named, or read with other files; what else is there may be named."""
    calls = running(["cat", "secret.txt"], ["ls"], ["cat", "open.txt"])
    assert await answers(excluding(folder, tmp_path), *calls) == [wording, wording, "milk\n"]


async def test_what_a_section_of_the_program_excludes_is_out_of_reach_of_programs_in_the_folder(
    folder: Path, tmp_path: Path, wording: Wording
) -> None:
    """As what a built-in toolset excludes."""
    programs = shell_toolset(folder, allow=READING)
    agent = desk(tmp_path / "project", toolsets={"programs": programs, "own": own(folder, exclude=["secret.txt"])})
    calls = running(["cat", "secret.txt"], ["cat", "open.txt"])
    assert await answers(agent, *calls) == [wording, "milk\n"]


async def test_other_toolsets_keep_their_own_view_of_what_one_excludes(folder: Path, tmp_path: Path) -> None:
    """`exclude` says what the tools of one toolset see."""
    agent = excluding(folder, tmp_path, two=files_toolset(folder, prefix="two"))
    (told,) = await answers(agent, Call("two_read_file", {"path": "secret.txt"}))
    assert "hunter2" in told
