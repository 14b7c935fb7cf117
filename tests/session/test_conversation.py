"""Conversations, their parts, and postponed calls."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from handrail.adapters.tool_executor import PendingAnswers
from handrail.errors import InvalidArgumentError, SessionError, SessionUseError
from handrail.runtime import ToolMessage
from handrail.session import CallRef, Session, conversation, open_calls
from handrail.session.calls import ToolCall
from handrail.store import MemoryStore
from handrail.testing import FakeClock
from tests.kit import Note, echo, executor, raises, refusal, tool
from tests.session.faulty_stores import FaultyStore
from tests.wording import Wording

QUESTION: Mapping[str, Any] = {"role": "user", "content": "Pay A-1."}
REPLY: Mapping[str, Any] = {"role": "assistant", "tool_calls": [{"id": "1"}, {"id": "2"}]}
CALLS = (ToolCall("1", "note", '{"text":"a"}'), ToolCall("2", "note", {"text": "b"}))
ANSWERS: tuple[Mapping[str, Any], ...] = ({"role": "tool", "id": "1"}, {"role": "tool", "id": "2"})


@pytest.fixture
def store() -> MemoryStore:
    """A store that outlives the sessions of a test."""
    return MemoryStore(clock=FakeClock())


def run(session: Session, *calls: ToolCall, reply: str = "r1") -> None:
    """Have calls recorded."""
    executor(tool("note", echo), session=session).execute_all(calls, reply=reply)


def entries_of(store: MemoryStore, session: Session) -> int:
    """How many parts of the conversation are stored."""
    return sum(entry.type_name == "handrail.said" for entry in store.entries(session.session_id))


def test_messages_come_back_as_they_were_appended(store: MemoryStore) -> None:
    """In order, in this process and in the next one, in a session in memory too."""
    for session in (Session(), Session.open(store, "s")):
        talk = session.conversation
        talk.append(QUESTION)
        talk.append(REPLY, calls=CALLS, reply="r1")
        run(session, *CALLS)
        talk.append(*ANSWERS)
        assert talk.messages == [QUESTION, REPLY, *ANSWERS]
        assert len(talk) == 4
        session.close()
    with Session.open(store, "s") as again:
        assert again.conversation.messages == [QUESTION, REPLY, *ANSWERS]


def test_a_conversation_without_a_message_is_false() -> None:
    """Messages of another speaker are not its messages."""
    session = Session()
    desk = conversation.Conversation(session[conversation.ConversationPart], session.calls, "agent", "desk")
    assert not session.conversation
    desk.append(QUESTION)
    assert not session.conversation
    session.conversation.append(QUESTION)
    desk.append(QUESTION)
    assert session.conversation


def test_the_calls_of_the_last_reply_are_open_until_something_follows(store: MemoryStore) -> None:
    """They are those that were stated, with and without a record; `open_calls` has those without one."""
    with Session.open(store, "s") as session:
        talk = session.conversation
        assert (talk.calls, talk.reply) == ((), None)
        talk.append(REPLY, calls=CALLS, reply="r1")
        run(session, CALLS[0])
        assert (talk.calls, talk.reply) == (CALLS, "r1")
        assert [each.call for each in session.open_calls] == [CallRef("r1", "2")]
        run(session, CALLS[1])
        talk.append(*ANSWERS)
        assert (talk.calls, talk.reply, session.open_calls) == ((), None, ())


def test_a_reply_is_stored_with_the_first_record_of_its_calls(store: MemoryStore) -> None:
    """It costs no unit of its own; messages that ask for nothing are stored at once."""
    with Session.open(store, "s") as session:
        talk = session.conversation
        talk.append(QUESTION)
        assert entries_of(store, session) == 1
        talk.append(REPLY, calls=CALLS, reply="r1")
        assert entries_of(store, session) == 1
        run(session, *CALLS)
        assert entries_of(store, session) == 2
        talk.append(*ANSWERS)
        assert entries_of(store, session) == 2
        talk.append({"role": "assistant", "content": "Done."})
        assert entries_of(store, session) == 4


def test_an_answer_can_be_marked_as_the_end_of_a_run(store: MemoryStore, wording: Wording) -> None:
    """It is stored with the mark, which a reply with calls cannot have: they would not be open."""
    with Session.open(store, "s") as session:
        session.conversation.append(QUESTION)
        with raises(ValueError, wording):
            session.conversation.append(REPLY, calls=CALLS, reply="r1", ended=True)
        session.conversation.append({"role": "assistant", "content": "Done."}, ended=True)
    with Session.open(store, "s") as session:
        assert [part.ended for part in session.conversation.parts] == [False, True]


def test_what_is_deferred_is_stored_when_the_session_is_closed(store: MemoryStore) -> None:
    """A program that ends after the answers has lost nothing."""
    with Session.open(store, "s") as session:
        session.conversation.append(REPLY, calls=CALLS, reply="r1")
    with Session.open(store, "s") as session:
        assert session.conversation.calls == CALLS


def test_nothing_follows_a_call_without_a_record(store: MemoryStore, wording: Wording) -> None:
    """A message after it could not be its answer, and the provider would refuse the conversation."""
    with Session.open(store, "s") as session:
        talk = session.conversation
        talk.append(REPLY, calls=CALLS, reply="r1")
        run(session, CALLS[0])
        assert str(refusal(SessionUseError, talk.append, *ANSWERS)) == wording
        assert talk.messages == [REPLY]


def test_a_reply_does_not_get_the_name_and_the_call_of_an_earlier_one(store: MemoryStore, wording: Wording) -> None:
    """Its call would be answered from the old record; in the next process too. A number makes the name another one."""
    with Session.open(store, "s") as session:
        session.conversation.append(REPLY, calls=CALLS[:1], reply="chatcmpl-1")
        run(session, CALLS[0], reply="chatcmpl-1")
        session.conversation.append(ANSWERS[0])
    with Session.open(store, "s") as session:
        talk = session.conversation
        assert str(refusal(SessionUseError, talk.append, REPLY, calls=CALLS[:1], reply="chatcmpl-1")) == wording
        assert len(talk) == 2
        talk.append(REPLY, calls=CALLS[:1], reply=f"reply-{len(talk)}")
        (message,) = executor(tool("note", echo), session=session).execute_all(talk.calls, reply="reply-2")
        assert not message.replayed


def talk_of(session: Session, turns: int) -> list[Any]:
    """Have a conversation of that many questions, each with a reply that asks for calls, their answers and a reply."""
    talk = session.conversation
    for turn in range(turns):
        calls = (ToolCall("1", "note", {"text": "a"}),)
        talk.append({"role": "user", "content": str(turn)})
        talk.append({"role": "assistant", "tool_calls": turn}, calls=calls, reply=f"r{turn}")
        run(session, *calls, reply=f"r{turn}")
        talk.append({"role": "tool", "content": turn})
        talk.append({"role": "assistant", "content": turn})
    return talk.messages


def test_the_last_turns_begin_with_what_answers_no_call(store: MemoryStore) -> None:
    """A provider refuses an answer whose call it does not see. More turns than there are, are all of them."""
    for session in (Session(), Session.open(store, "s")):
        messages = talk_of(session, 3)
        session.close()
        talk = Session.open(store, "s").conversation if session.store else session.conversation
        found = [talk.last(turns) for turns in range(1, 12)]
        lengths = [1, 3, 4, 5, 7, 8, 9, 11, 12, 12, 12]
        assert found == [messages[-length:] for length in lengths]
        assert [found[turn][0]["role"] for turn in range(3)] == ["assistant", "assistant", "user"]
        session.close()
    assert Session().conversation.last(3) == []


def test_the_last_turns_are_those_of_one_conversation(store: MemoryStore) -> None:
    """A session may have others, whose parts stand between."""
    with Session.open(store, "s") as session:
        desk = conversation.Conversation(session[conversation.ConversationPart], session.calls, "agent", "desk")
        for number in range(9):
            session.conversation.append({"loop": number})
            desk.append({"desk": number})
        assert session.conversation.last(2) == [{"loop": 7}, {"loop": 8}]
        assert desk.last(20) == desk.messages


def test_the_last_turns_are_read_alone() -> None:
    """Of a long conversation; and turns are a number."""
    store = FaultyStore(MemoryStore(clock=FakeClock()))
    with Session.open(store, "s") as session:
        talk_of(session, 30)
    with Session.open(store, "s") as session:
        store.rows_read = 0
        assert len(session.conversation.last(3)) == 4
        assert store.rows_read == 7
        assert len(session.conversation.last(6)) == 8
        assert store.rows_read <= 14
        for turns in (0, -1):
            with pytest.raises(InvalidArgumentError) as refused:
                session.conversation.last(turns)
            assert refused.value.argument == "turns"


def test_messages_are_copied(store: MemoryStore) -> None:
    """What the program does to its own objects, or to those that it was given, does not change the conversation."""
    with Session.open(store, "s") as session:
        message = {"role": "user", "content": ["a"]}
        session.conversation.append(message)
        message["content"] = []
        session.conversation.messages[0]["content"] = []
        assert session.conversation.messages == [{"role": "user", "content": ["a"]}]


def test_text_that_is_not_unicode_is_stored_as_its_escape(store: MemoryStore) -> None:
    """A model may write a lone surrogate; the conversation goes on all the same."""
    with Session.open(store, "s") as session:
        session.conversation.append({"content": "a\ud800"})
        assert session.conversation.messages == [{"content": "a\\ud800"}]


@pytest.mark.parametrize(
    "arguments, written",
    [
        ({"text": "A \ud83d"}, '{"text": "A \\ud83d"}'),
        ('{"text": "A \ud83d"}', '{"text": "A \\ud83d"}'),
        ({"text": float("nan")}, '{"text": NaN}'),
        (b'{"text": "\xff"}', '{"text": "\\xff"}'),
    ],
)
def test_arguments_that_are_not_json_are_refused_by_their_call(
    store: MemoryStore, arguments: Any, written: str, wording: Wording
) -> None:
    """As a mapping they are treated as text is: the model reads why, and the loop goes on, also after a restart."""
    asked = ToolCall("\ud83d", "note", arguments)
    answers: list[ToolMessage] = []
    for _ in range(2):
        with Session.open(store, "s") as session:
            if not session.conversation:
                session.conversation.append(REPLY, calls=[asked], reply="r1")
            assert session.conversation.calls == (ToolCall("\\ud83d", "note", written),)
            found = executor(tool("note", echo), session=session).answer()
            assert not isinstance(found, PendingAnswers)
            answers += found
    assert [(answer.success, answer.replayed) for answer in answers] == [(False, False), (False, True)]
    assert answers[0].content == wording
    assert answers[1].content == answers[0].content


def test_what_is_no_message_is_refused(store: MemoryStore, wording: Wording) -> None:
    """At once, and nothing of it is appended."""
    with Session.open(store, "s") as session:
        talk = session.conversation
        not_a_call: Any = {"id": "1"}
        refusal(InvalidArgumentError, talk.append, REPLY, calls=[not_a_call], reply="r1")
        for name in (None, "", "@1"):
            assert str(refusal(ValueError, talk.append, REPLY, calls=CALLS, reply=name)) == wording
        for no_json in (object(), b"bytes", float("nan")):
            with pytest.raises(SessionUseError) as refused:
                talk.append({"content": no_json})
        assert str(refused.value) == wording
        no_arguments: Any = {"text": object()}
        refusal(SessionUseError, talk.append, REPLY, calls=[ToolCall("1", "note", no_arguments)], reply="r1")
        for calls in (CALLS, ()):
            assert str(refusal(ValueError, talk.append, calls=calls, reply="r1")) == wording
        talk.append()
        assert session[conversation.ConversationPart].all() == ()


def test_a_call_to_fork_at_is_named_with_its_reply(store: MemoryStore) -> None:
    """Two replies may have one of the same id."""
    with Session.open(store, "s") as session:
        run(session, CALLS[0], reply="r1")
        run(session, CALLS[0], reply="r2")
        refusal(SessionError, session.fork, at=(None, "1"))
        with session.fork(at=("r1", "1")) as fork:
            assert fork[Note].all() == (Note("a"),)


A, B = conversation.RequestedCall("a", "note", "{}"), conversation.RequestedCall("b", "pay", {"cents": 5})
ASKS = conversation.ConversationPart(({"role": "assistant"},), "r1", (A, B))
SOME = conversation.ConversationPart(({"role": "tool"},), answers=("a",))
REST = conversation.ConversationPart(({"role": "tool"},))


@pytest.mark.parametrize(
    "parts, name, calls",
    [
        *(((), None, ()), ((ASKS,), "r1", (A, B)), ((ASKS, SOME), "r1", (B,))),
        *((parts, None, ()) for parts in ((ASKS, REST), (ASKS, SOME, REST), (SOME,))),
        ((ASKS, SOME, conversation.ConversationPart((), answers=("b",))), None, ()),
        ((ASKS, conversation.ConversationPart((), ended=True)), None, ()),
    ],
)
def test_the_open_reply_is_the_last_one_that_no_part_has_ended(
    parts: tuple[conversation.ConversationPart, ...], name: str | None, calls: tuple[conversation.RequestedCall, ...]
) -> None:
    """A part that answers some of its calls leaves the others open; any other part ends it."""
    assert conversation.open_reply(reversed(parts)) == conversation.OpenReply(
        name, tuple((CallRef(name, call.id), call) for call in calls)
    )
    assert [each.call for each in conversation.ConversationPart.listed_calls(parts)] == [
        CallRef(name, call.id) for call in calls
    ]


SAYS = conversation.ConversationPart(({"role": "user"},))
ENDS = conversation.ConversationPart(({"role": "assistant"},), ended=True)
BEGINS = conversation.ConversationPart(({"role": "user"},), restarts=True)


@pytest.mark.parametrize(
    "parts, turns, length",
    [
        *(((), 3, 0), ((SAYS, ASKS), 1, 1), ((SAYS, ASKS, REST), 1, 2), ((SAYS, ASKS, SOME, REST), 1, 3)),
        *(((SAYS, ASKS, REST, ENDS), turns, length) for turns, length in ((1, 1), (2, 3), (9, 4))),
        ((SAYS, conversation.ConversationPart((), "r1", (A,), ended=True), SAYS), 1, 1),
        *(((SAYS, ASKS, SOME, SOME, REST), 2, 5), ((SAYS, ENDS, BEGINS, ASKS, REST), 9, 3)),
        *(((ASKS, BEGINS), 1, 1), ((REST, SAYS), 2, 2)),
    ],
)
def test_a_turn_begins_with_a_part_that_answers_no_call(
    parts: tuple[conversation.ConversationPart, ...], turns: int, length: int
) -> None:
    """All answers of a reply belong to its turn; the parts before a restart to no turn of the conversation."""
    assert conversation.last_turns(reversed(parts), turns) == list(parts[len(parts) - length :])


def test_each_conversation_of_a_session_has_its_open_reply() -> None:
    """They are stored in one LOG; a part of one ends nothing in another."""
    other = conversation.ConversationPart(
        (), "r2", (conversation.RequestedCall("c", "note", "{}"),), speaker="agent", name="desk"
    )
    listed = conversation.ConversationPart.listed_calls((ASKS, other, SOME))
    assert [each.call for each in listed] == [CallRef("r1", "b"), CallRef("r2", "c")]


CALL = CallRef("r1", "c1")
ASKED = open_calls.CallQuestion(arguments="{}", digest="d", asks=("ask: sure?",), effect="state", reason="tomorrow")


@pytest.fixture
def session() -> Session:
    """A session in a store whose time stands still."""
    return Session.open(MemoryStore(clock=FakeClock()), "s")


def note(session: Session, question: open_calls.CallQuestion | None = ASKED, call: CallRef = CALL) -> None:
    """Have a call postponed."""
    store = session.store
    assert store is not None
    open_calls.record_postponed(session[open_calls.PostponedCall], call, "pay", store.now(), question)


def answered(session: Session) -> None:
    """Answer the question about the call."""
    last = open_calls.postponed_call(session[open_calls.PostponedCall], CALL)
    assert last is not None
    answer = open_calls.GivenAnswer(approved=True, reason="a person said yes", by="ada", at=last.at)
    session[open_calls.PostponedCall].append(replace(last, answer=answer))


def states(session: Session) -> list[str]:
    """The states of the open calls."""
    return [call.state for call in session.open_calls]


def test_question_is_noted_once(session: Session) -> None:
    """However often it is asked, and in whatever words the approver puts it off."""
    for question in (ASKED, ASKED, replace(ASKED, reason="next week"), None):
        note(session, question)
    assert [item.question for item in session[open_calls.PostponedCall]] == [ASKED]
    assert states(session) == ["postponed"]


@pytest.mark.parametrize("other", [replace(ASKED, digest="e"), replace(ASKED, asks=("ask: really?",))])
def test_other_question_takes_its_place(session: Session, other: open_calls.CallQuestion) -> None:
    """About other arguments, or with another policy."""
    note(session)
    note(session, other)
    last = open_calls.postponed_call(session[open_calls.PostponedCall], CALL)
    assert last is not None
    assert last.question == other
    assert len(session.open_calls) == 1


def test_answered_call_waits_for_its_program_alone(session: Session) -> None:
    """Asked again, it is open again."""
    note(session)
    answered(session)
    assert states(session) == ["unrecorded"]
    note(session)
    assert states(session) == ["postponed"]


def test_item_of_another_session_holds_for_no_call_of_this_one(session: Session) -> None:
    """A fork has copies of them."""
    note(session)
    with session.fork(session_id="branch") as fork:
        assert open_calls.postponed_call(fork[open_calls.PostponedCall], CALL) is None
        assert len(fork[open_calls.PostponedCall]) == 1


def test_call_without_a_name_is_not_noted(session: Session) -> None:
    """No record of it could be found."""
    note(session, call=CallRef(None, ""))
    assert session[open_calls.PostponedCall].all() == ()
