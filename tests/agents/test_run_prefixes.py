"""Rules and prefixes of toolsets: `ask` and `deny` go by either name of a tool, `allow` by the one that is called."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from pydantic_ai import RunContext
from pydantic_ai.toolsets import AbstractToolset

from handrail.agents import ApprovalRules, Rule, current_run
from handrail.agents.approval.decisions import Answer, ApprovalRecord, Decision, open_questions, record_decision
from handrail.agents.toolsets.builtin import files_toolset
from handrail.prompt import Section, Tool, ToolContext, ToolResult
from handrail.session import Session
from handrail.session.persistence.stored_types import stored_type
from handrail.store import MemoryStore
from handrail.testing import Call
from tests.agents.approval.calls import gated
from tests.agents.desks import DONE, CallLog, Person, answers, called, desk, play
from tests.agents.folders import write
from tests.agents.run.test_path_rules import ruled

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
    """The tool's own name is part of it; a question of a version that did not record it has none."""
    session = Session()
    call = replace(gated("notes_read_file", {"path": "a"}), session_id=session.session_id, own_tool="read_file")
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
