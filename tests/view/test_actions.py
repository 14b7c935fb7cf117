"""What a person does on the pages: only where it is allowed, by a form of the page, about exactly what was shown."""

from __future__ import annotations

from collections.abc import Generator
from datetime import timedelta
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from handrail import store as stores
from handrail.errors import CallPostponed, EffectUncertain
from handrail.operations.questions import stored_questions
from handrail.prompt import Approval, ToolContext, ToolResult
from handrail.runtime import Session
from handrail.store import EffectRow, Store
from tests.cli.approvals.loops import Loop, pay_call
from tests.cli.desk import effect
from tests.kit import ASKS, Note, call, executor, tool
from tests.store.kit import delete, insert, replace
from tests.view.client import ORIGIN, Page, PageForm, hidden, see, send, visit
from tests.wording import Wording

ANSWER = {"answer": "yes", "reason": "", "name": "Ada"}
FINDING = {"outcome": "happened", "why": "the bank says so", "name": "Ada"}


@pytest.fixture
def url(tmp_path: Path) -> str:
    """A store."""
    return f"sqlite:///{tmp_path}/desk.db"


@pytest.fixture
def loop(url: str) -> Loop:
    """A program that waits for a person."""
    loop = Loop(url)
    loop.waits()
    return loop


@pytest.fixture
def store(url: str) -> Generator[Store]:
    """The store, open for writing."""
    with stores.open(url) as store:
        yield store


@pytest.fixture
def client(store: Store) -> TestClient:
    """A browser that may act."""
    return visit(store, allow_actions=True)


def question_form(client: TestClient) -> PageForm:
    """The form about the only open question."""
    (form,) = see(client, "/questions").forms
    return form


def unknown(store: Store, key: str = "session:pay:A-1") -> EffectRow:
    """An effect that may have happened."""
    row = effect(key, "unknown", store.now(), partition="loop")
    insert(store, row)
    return row


def leave_open(_request: object) -> Approval:
    """Leave a question open."""
    return Approval.later("tomorrow")


def refused(client: TestClient, form: PageForm, **fields: str) -> Page:
    """The page that answers a form about what has changed."""
    return Page(send(client, form, **fields), 409)


def effect_form(client: TestClient) -> PageForm:
    """The form about the only unknown effect."""
    (form,) = see(client, "/effects").forms
    return form


# -------------------------------------------------------------------------------------------------------------- answers


def test_yes_lets_the_call_run(loop: Loop, client: TestClient, store: Store) -> None:
    """The name and the time are recorded with it."""
    form = question_form(client)
    assert hidden(form) == {"session": "loop", "call": "resp_1/c1", "page": "list"}
    answer = send(client, form, **ANSWER)
    assert (answer.status_code, answer.headers["location"]) == (303, "/questions")
    (question,) = stored_questions(store)
    assert question.answer is not None
    assert (question.answer.approved, question.answer.by) == (True, "Ada")
    assert question.answer.at is not None
    assert see(client, "/questions").forms == []
    assert loop.texts() == ["A-1 is paid"]


def test_model_reads_why_the_answer_is_no(loop: Loop, client: TestClient, wording: Wording) -> None:
    """The call is refused."""
    send(client, question_form(client), **ANSWER | {"answer": "no", "reason": "It was paid yesterday."})
    assert loop.texts() == wording
    assert loop.paid == []


def test_question_is_answered_in_the_details_of_its_call(loop: Loop, client: TestClient) -> None:
    """And the run is shown again after that."""
    page = see(client, "/call?session=loop&call=loop%2Fresp_1%2Fc1&part=1")
    (form,) = page.forms
    answer = send(client, form, **ANSWER)
    assert (answer.status_code, answer.headers["location"]) == (303, "/run?session=loop#loop/resp_1/c1")
    assert loop.texts() == ["A-1 is paid"]


def test_question_about_a_call_of_a_handler_is_answered_at_the_call_of_the_model(
    client: TestClient, store: Store
) -> None:
    """The call of the handler has no record yet, and so no page."""

    def order(params: Note, *, context: ToolContext) -> ToolResult[Note]:
        desk = executor(tool("pay"), policies=[ASKS], session=context.session, approver=leave_open)
        return ToolResult.error(desk.execute(call("pay", id="p1")).content)

    with Session.open(store, "s") as session:
        session.conversation.append({"role": "assistant"}, calls=[call("order")], reply="r1")
        with pytest.raises(CallPostponed):
            executor(tool("order", order), session=session).execute(call("order"), reply="r1")
    page = see(client, see(client, "/questions").links["pay"])
    assert "Question about pay p1 of r1/call-1" in page.words
    answer = send(client, page.forms[0], **ANSWER)
    assert (answer.status_code, answer.headers["location"]) == (303, "/run?session=s#s/r1/call-1")
    (question,) = stored_questions(store)
    assert question.answer is not None


def test_question_that_was_answered_meanwhile_is_shown_as_it_is(
    loop: Loop, client: TestClient, store: Store, wording: Wording
) -> None:
    """The first answer counts."""
    form = question_form(client)
    send(client, form, **ANSWER | {"answer": "no"})
    page = refused(client, form, **ANSWER)
    assert page.faults == wording
    assert "a person said no (Ada) ·" in page.words
    (question,) = stored_questions(store)
    assert question.answer is not None
    assert not question.answer.approved


def test_form_is_bound_to_the_exact_arguments(
    loop: Loop, url: str, client: TestClient, store: Store, wording: Wording
) -> None:
    """The same call asks about something else since: what is asked now was not shown."""
    form = question_form(client)
    store.delete_session(lock := store.acquire("loop", wait=timedelta(0)))
    store.release(lock)
    Loop(url, calls=(pay_call("A-2"),)).waits()
    page = refused(client, form, **ANSWER)
    assert page.faults == wording
    assert "A-2" in page.words
    (question,) = stored_questions(store)
    assert question.answer is None


def test_token_of_another_question_fits_no_other(loop: Loop, url: str, client: TestClient, store: Store) -> None:
    """Nor one that is made up."""
    Loop(url, session_id="other").waits()
    forms = {hidden(form)["session"]: form for form in see(client, "/questions").forms}
    stolen = PageForm("/answer", forms["loop"].fields | {"token": forms["other"].fields["token"]})
    assert send(client, stolen, **ANSWER).status_code == 409
    assert send(client, PageForm("/answer", stolen.fields | {"token": "ü"}), **ANSWER).status_code == 409
    assert all(question.answer is None for question in stored_questions(store))


# ------------------------------------------------------------------------------------------------------------- findings


@pytest.mark.parametrize("outcome,status", [("happened", "done"), ("not happened", "failed")])
def test_effect_is_settled(client: TestClient, store: Store, outcome: str, status: str) -> None:
    """Who says so, and why, is in its note; the time is that of its end."""
    row = unknown(store)
    answer = send(client, effect_form(client), **FINDING | {"outcome": outcome})
    assert (answer.status_code, answer.headers["location"]) == (303, "/effects")
    settled = store.get(row.partition, row.key)
    assert settled is not None
    assert (settled.status, settled.note) == (status, "the bank says so (Ada)")
    assert settled.completed_at is not None
    assert see(client, "/effects").forms == []


def test_effect_is_settled_in_the_details_of_its_call(client: TestClient, store: Store, wording: Wording) -> None:
    """And the run is shown again after that; the call says what is known by now."""

    def pay(params: Note, *, context: ToolContext) -> ToolResult[Note]:
        raise EffectUncertain("the bank has\nnot answered")

    with Session.open(store, "s") as session:
        executor(tool("pay", pay, effect="external"), session=session).execute(call("pay"), reply="r1")
    address = "/call?session=s&call=s%2Fr1%2Fcall-1"
    (form,) = see(client, f"{address}&part=1").forms
    answer = send(client, form, **FINDING | {"outcome": "not happened", "why": ""})
    assert (answer.status_code, answer.headers["location"]) == (303, "/run?session=s#s/r1/call-1")
    (row,) = store.rows()
    assert (row.status, row.note) == ("failed", wording)
    assert see(client, address).words.partition("Since then ")[2].partition(" Effect key ")[0] == wording
    assert "when it ended: the bank has not answered" in see(client, "/run?session=s").words


def test_effect_of_another_call_says_so(client: TestClient, store: Store) -> None:
    """The second of two calls has the result of the first."""
    with Session.open(store, "s") as session:
        pay = executor(tool("pay", effect="external", idempotency=True), session=session)
        for reply in ("r1", "r2"):
            pay.execute(call("pay"), reply=reply)
    words = [see(client, f"/call?session=s&call=s%2F{reply}%2Fcall-1").words for reply in ("r1", "r2")]
    assert "owner this call" in words[0]
    assert "owner another call: r1/call-1 in s" in words[1]


def test_effect_that_was_settled_meanwhile_is_shown_as_it_is(
    client: TestClient, store: Store, wording: Wording
) -> None:
    """What a person has found out is not about another state."""
    row = unknown(store)
    form = effect_form(client)
    assert replace(store, row, row._replace(fence=2))
    page = refused(client, form, **FINDING)
    assert page.faults == wording
    assert page.rows[0].startswith("session:pay:A-1 pay unknown")
    present = store.get(row.partition, row.key)
    assert present is not None
    assert present.status == "unknown"


def test_effect_that_is_not_there_any_more_is_not_settled(client: TestClient, store: Store, wording: Wording) -> None:
    """Its session was deleted, say."""
    row = unknown(store)
    form = effect_form(client)
    assert delete(store, row)
    page = refused(client, form, **FINDING)
    assert page.faults == wording
    assert page.rows == []


def test_key_of_an_effect_may_have_any_characters(client: TestClient, store: Store) -> None:
    """A browser would send other ends of lines."""
    row = unknown(store, "session:pay:\na\r\nb&<\x1b%41")
    assert send(client, effect_form(client), **FINDING).status_code == 303
    settled = store.get(row.partition, row.key)
    assert settled is not None
    assert settled.status == "done"


# --------------------------------------------------------------------------------------------------------------- guards


def test_pages_without_actions_have_no_forms(loop: Loop, store: Store) -> None:
    """And nothing answers what would be sent."""
    unknown(store)
    client = visit(store)
    assert see(client, "/questions").forms == see(client, "/effects").forms == []
    assert see(client, "/call?session=loop&call=loop%2Fresp_1%2Fc1").forms == []
    for address in ("/answer", "/settle"):
        assert client.post(address, headers={"origin": ORIGIN}).status_code == 404


@pytest.mark.parametrize(
    "change,status",
    [
        ({"name": " "}, 400),
        ({"answer": "perhaps"}, 400),
        ({"page": "//evil.example"}, 400),
        ({"more": "1"}, 400),
        ({"reason": "x" * 70_000}, 413),
    ],
)
def test_form_is_sent_as_it_is_made(
    loop: Loop, client: TestClient, store: Store, change: dict[str, str], status: int
) -> None:
    """Anything else records nothing."""
    answer = send(client, question_form(client), **ANSWER | change)
    assert answer.status_code == status
    (question,) = stored_questions(store)
    assert question.answer is None


def test_field_is_sent_once(loop: Loop, client: TestClient) -> None:
    """Of two values it would not be clear which one counts."""
    fields = {**question_form(client).fields, **ANSWER}
    twice = [*fields.items(), ("answer", "no")]
    body = "&".join(f"{name}={value.replace('%', '%25')}" for name, value in twice)
    headers = {"origin": ORIGIN, "content-type": "application/x-www-form-urlencoded"}
    assert client.post("/answer", content=body, headers=headers).status_code == 400
    assert client.post("/answer", content=b"\xff=1", headers=headers).status_code == 400


def test_form_is_not_sent_as_another_type(loop: Loop, client: TestClient) -> None:
    """A script of another site may send some types without asking."""
    assert client.post("/answer", json=ANSWER, headers={"origin": ORIGIN}).status_code == 415
    assert client.get("/answer").status_code == 405


def test_form_of_another_site_is_refused(loop: Loop, client: TestClient, store: Store) -> None:
    """Though the browser has the cookie."""
    form = question_form(client)
    answer = client.post("/answer", data=form.fields | ANSWER, headers={"origin": "http://evil.example"})
    assert answer.status_code == 403
    (question,) = stored_questions(store)
    assert question.answer is None
