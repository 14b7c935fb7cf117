"""Approval rules on paths judge the file that a path leads to, not only its spelling."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from handrail.agents import ApprovalRules, Rule
from handrail.agents.approval.decisions import Answer, Decision, GatedCall, open_questions, record_decision
from handrail.session import Session
from handrail.testing import Call, Reply
from tests.agents.approval.calls import gated
from tests.agents.desks import CallLog, Person, answers, called, desk, play
from tests.agents.folders import write
from tests.agents.run.test_path_rules import ruled

pytestmark = pytest.mark.anyio

ASK = ruled('defaults: {state: allow}\nask: [{tool: "*", arguments: {path: "x/ask/**"}}]')

BY_LINKS: list[tuple[str, dict[str, Any]]] = [
    ("read_file", {"path": "l"}),
    ("read_file", {"path": "d/q.txt"}),
    ("list_files", {"path": "d"}),
    ("glob_files", {"pattern": "**", "path": "d"}),
    ("grep_files", {"pattern": ".", "path": "l"}),
    ("grep_files", {"pattern": ".", "path": "d"}),
    ("edit_file", {"path": "l", "old": "SECRET", "new": "x"}),
    ("write_file", {"path": "l", "content": "x"}),
    ("write_file", {"path": "d/new.txt", "content": "x"}),
    ("write_file", {"path": "dangling", "content": "x"}),
    ("move_file", {"path": "d/q.txt", "new_path": "out.txt"}),
    ("remove_file", {"path": "d/q.txt"}),
]
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
        {"path": "x/ask/q.txt"},
        None,
        None,
        {"new_path": "x/ask/l"},
        None,
        None,
    ]


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


def test_a_question_that_is_left_open_keeps_where_a_path_leads() -> None:
    """For the process that puts it again."""
    session = Session()
    reached = {"path": "x/ask/q.txt"}
    call = replace(gated("read_file", {"path": "l"}, reached=reached), session_id=session.session_id)
    record_decision(session, call, Decision("later", call.digest))
    assert open_questions(session)[0].reached == reached


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
