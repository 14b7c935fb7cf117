"""`handrail approvals answer` for calls of agents: what is recorded, who may answer, and what the resumed run does."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from dataclasses import replace
from datetime import timedelta

import pytest

from handrail import store as stores
from handrail.agents import Answer
from handrail.agents.approval.decisions import ApprovalRecord, Grant
from handrail.agents.run.interface import CallEnded, RunEvent
from handrail.cli.approvals import GivenVerdict, answer_question
from handrail.cli.options import StoreOptions
from handrail.errors import SessionError
from handrail.operations.answers import give_answer
from handrail.operations.questions import find_question
from handrail.session import Session
from handrail.session.open_calls import GivenAnswer
from tests.agents.stored_desks import Asked, Clerk, Desk, Doomed, Reader, Replies
from tests.cli.approvals.loops import Loop
from tests.cli.desk import Command
from tests.store.kit import at_point
from tests.wording import Wording

PAY = Asked("d2", "pay", {"order": "tea"})
ONE: Replies = {"desk": [[Asked("d1", "note", {"text": "a"}), PAY], "Done."]}
NESTED: Replies = {
    "desk": [[Asked("d1", "helper", {"input": "Help."}), Asked("d2", "sign", {"text": "a"})], "Done."],
    "helper": [[Asked("h1", "pay", {"order": "tea"})], "Helped."],
}
NOBODY = Clerk({})
"""Fails the test if it is asked."""


def left_open(desk: Desk, replies: Replies = ONE, *, session_id: str = "s") -> None:
    """Run a desk, and leave every question open."""
    later = Clerk(dict.fromkeys(("pay", "sign"), Answer("later")))
    assert desk.run(Reader(replies), "Do it.", asker=later, session_id=session_id).status == "waiting"


def test_yes_carries_the_call_out_once(handrail: Command, desk: Desk, wording: Wording) -> None:
    """The resumed run does not ask again; the answer says who gave it, when and why."""
    left_open(desk)
    ran = handrail("approvals", "answer", "s", "d2", "yes", "--by", "ada", "--reason", "It is due.")
    assert (ran.code, ran.err) == (0, "")
    assert ran.out.splitlines()[:2] == wording
    # A program began the run, so the command is a guess, and says so.
    assert ran.out.splitlines()[2].startswith("  handrail run FOLDER/desk.agent --store ")
    assert ran.out.splitlines()[3] == wording
    assert desk.world == []
    assert desk.run(Reader(ONE), asker=NOBODY).output == "Done."
    assert desk.world == ["tea"]
    last = desk.values(ApprovalRecord)[-1]
    said = last.decision
    assert (said.verdict, said.by, said.answered_by, said.reason) == ("allow", "person", "ada", wording)
    assert last.at is not None


def test_call_of_an_agent_that_was_called_is_answered_in_the_outermost_session(
    handrail: Command, desk: Desk, wording: Wording
) -> None:
    """It is found by either session; other questions of the run stay open."""
    left_open(desk, NESTED)
    child = desk.child("d1")
    lines = handrail.rows("approvals", "list")
    assert sorted((line["session_id"], line["call_id"], line["agents"]) for line in lines) == [
        ("s", "d2", ["desk"]),
        ("s", "h1", ["desk", "helper"]),
    ]
    ran = handrail("approvals", "answer", child, "h1", "yes")
    assert "handrail run FOLDER/desk.agent --approve later --store" in ran.out
    assert [line for line in ran.out.splitlines() if line.startswith("1 ")] == wording
    assert handrail("approvals", "answer", "s", "d2", "yes").code == 0
    assert desk.run(Reader(NESTED), asker=NOBODY).output == "Done."
    assert (desk.world, desk.notes()) == (["tea"], ["a"])


@pytest.mark.parametrize("remember", ["arguments", "rule"])
@pytest.mark.short(2)
def test_answer_may_hold_for_later_calls(remember: str, handrail: Command, desk: Desk) -> None:
    """As that of a person before a terminal."""
    twice: Replies = {"desk": [[PAY], [Asked("d3", "pay", {"order": "tea"})], "Done."]}
    left_open(desk, twice)
    assert handrail("approvals", "answer", "s", "d2", "yes", "--remember", remember).code == 0
    assert desk.run(Reader(twice), asker=NOBODY).output == "Done."
    assert desk.world == ["tea", "tea"]
    (grant,) = desk.values(Grant)
    assert (grant.digest is None) == (remember == "rule")


def test_answer_does_not_stand_against_a_rule_that_denies(handrail: Command, desk: Desk) -> None:
    """A rule that was written since."""
    left_open(desk)
    handrail("approvals", "answer", "s", "d2", "yes")
    (desk.folder / "approval.yaml").write_text("deny: [pay]\n")
    assert desk.run(Reader(ONE)).output == "Done."
    assert desk.world == []


def test_question_is_answered_once(handrail: Command, desk: Desk, wording: Wording) -> None:
    """The first answer stands; after the call there is nothing to answer."""
    left_open(desk)
    assert handrail("approvals", "answer", "s", "d2", "no", "--by", "ada").code == 0
    ran = handrail("approvals", "answer", "s", "d2", "yes")
    assert (ran.code, ran.out) == (1, "")
    assert ran.err.replace(_reply(desk), "REPLY") == wording
    desk.run(Reader(ONE))
    ran = handrail("approvals", "answer", "s", "d2", "yes")
    assert (ran.code, ran.out, ran.err) == (1, "", wording)


def test_of_two_answers_at_the_same_time_one_counts(url: str, desk: Desk) -> None:
    """The other one is refused, and records nothing."""
    left_open(desk)
    codes: list[int] = []

    def answer(verdict: GivenVerdict) -> None:
        try:
            answer_question("s", "d2", verdict, options=StoreOptions(store=url))
            codes.append(0)
        except SessionError:
            codes.append(1)

    threads = [threading.Thread(target=answer, args=(verdict,)) for verdict in ("yes", "no")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(codes) == [0, 1]
    with stores.open(url) as store:
        assert len(store.answers("s")) == 1


@pytest.mark.parametrize("change", ["answered", "changed", "decided"])
@pytest.mark.short(2)
def test_question_that_has_changed_is_left(change: str, desk: Desk, wording: Wording) -> None:
    """It is looked at again before the answer is written."""
    left_open(desk)
    with stores.open(desk.url) as store:
        question = find_question(store, "s", "d2")
        with Session.open(store, "s") as session:
            (record,) = session[ApprovalRecord]
            was = record.decision
            no = replace(was, verdict="deny", reason="a person said no", answered_by="ada")
            others = {
                "answered": replace(record, decision=no),
                "changed": replace(record, call=replace(record.call, digest="0" * 64)),
                "decided": replace(record, decision=replace(was, verdict="deny", by="rule")),
            }
            session[ApprovalRecord].append(others[change])
        with pytest.raises(SessionError) as refused:
            give_answer(store, question, GivenAnswer(approved=True))
    assert str(refused.value).replace(_reply(desk), "REPLY") == wording
    assert len(desk.values(ApprovalRecord)) == 2


@pytest.mark.parametrize("point, given", [("unit-begun", 0), ("unit-after-commit", 1)])
@pytest.mark.short(2)
def test_answer_is_recorded_as_a_whole(point: str, given: int, url: str, desk: Desk) -> None:
    """With what it holds for. The process that makes the call takes it in."""
    left_open(desk)

    class Ends(BaseException):
        pass

    def end() -> None:
        raise Ends

    with pytest.raises(Ends), at_point(point, end):
        answer_question("s", "d2", "yes", remember="arguments", options=StoreOptions(store=url))
    assert (desk.values(Grant), len(desk.values(ApprovalRecord))) == ([], 1)
    with stores.open(url) as store:
        assert len(store.answers("s")) == given
    assert desk.run(Reader(ONE), asker=NOBODY if given else Clerk({"pay": Answer("no")})).output == "Done."
    assert (desk.world, len(desk.values(Grant))) == (["tea"] * given, given)


def test_session_that_a_process_has_open_is_answered(handrail: Command, desk: Desk, wording: Wording) -> None:
    """Once, by a row of the store; the run that is resumed takes it in, with who has given it."""
    left_open(desk)
    with stores.open(desk.url) as store, Session.open(store, "s", wait=timedelta(0)):
        ran = handrail("approvals", "answer", "s", "d2", "yes", "--by", "ada")
        assert (ran.code, ran.err) == (0, "")
        assert ran.out.splitlines()[:2] == wording
        assert handrail("approvals", "list", "--format", "json").out == ""
        shown = handrail.document("approvals", "show", "s", "d2")
        assert (shown["answer"]["by"], shown["answer"]["reason"]) == ("ada", wording)
        assert handrail("approvals", "answer", "s", "d2", "no").code == 1
    assert desk.run(Reader(ONE), asker=NOBODY).output == "Done."
    assert desk.world == ["tea"]
    last = desk.values(ApprovalRecord)[-1]
    said = last.decision
    assert (said.by, said.answered_by, said.reason) == ("person", "ada", wording)
    assert last.at is not None


@pytest.mark.short(1)
def test_run_takes_in_an_answer_that_another_process_gives_meanwhile(desk: Desk) -> None:
    """The question is left open, another call of the reply runs while a person answers, and the run continues."""
    replies: Replies = {"desk": [[PAY, Asked("d1", "note", {"text": "a"})], "Done."]}

    def answer(event: RunEvent) -> None:
        if isinstance(event, CallEnded) and event.tool == "note":
            command = [sys.executable, "-m", "handrail", "approvals", "answer", "s", "d2", "yes", "--store", desk.url]
            assert subprocess.run(command, check=False).returncode == 0

    asker = Clerk({"pay": Answer("later")})
    result = desk.run(Reader(replies), "Do it.", asker=asker, listener=answer)
    assert asker.ids == ["d2"]
    assert (result.status, result.output) == ("done", "Done.")
    assert (desk.world, desk.calls()) == (["tea"], [("d1", True), ("d2", True)])


def test_unknown_session_and_call_are_reported(handrail: Command, desk: Desk, wording: Wording) -> None:
    """With those that there are."""
    left_open(desk)
    # After the name of the store, which is another one in each run.
    assert handrail("approvals", "answer", "nobody", "d2", "yes").err.split(" ", 2)[2] == wording
    ran = handrail("approvals", "answer", "s", "d9", "yes")
    assert (ran.code, ran.out) == (1, "")
    assert ran.err.replace(_reply(desk), "REPLY") == wording
    ran = handrail("approvals", "answer", "s", "d1", "yes")
    assert (ran.code, ran.err) == (1, wording)


@pytest.mark.parametrize("point", ["before-handler", "before-commit", "after-commit"])
@pytest.mark.short(1)
def test_killed_run_finds_the_answer_again(point: str, handrail: Command, desk: Desk) -> None:
    """The call is carried out once, by that run or by the next one, without a question."""
    sign: Replies = {"desk": [[Asked("d2", "sign", {"text": "a"})], "Done."]}
    left_open(desk, sign)
    assert handrail("approvals", "answer", "s", "d2", "yes").code == 0
    assert Doomed().run(desk, sign, None, point)
    assert desk.run(Reader(sign), asker=NOBODY).output == "Done."
    assert desk.notes() == ["a"]


def test_program_reads_the_answer(handrail: Command, loop: Loop) -> None:
    """With how many questions of the session are still open."""
    loop.waits()
    ran = handrail("approvals", "answer", "loop", "c1", "yes", "--format", "json", "--by", " ")
    assert json.loads(ran.out)["answer"]["by"] is None
    assert json.loads(ran.out)["open_questions"] == 0


def _reply(desk: Desk, session_id: str = "s") -> str:
    """The name of the only reply of a session that was asked about."""
    (reply,) = {str(record.call.reply) for record in desk.values(ApprovalRecord, session_id)}
    return reply
