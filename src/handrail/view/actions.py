"""What a person does on the pages: answer a question about a call, and settle an effect that may have happened.

A form is bound to what its page has shown, by a token: of a question the session, the call and its exact arguments; of
an effect the row, as it stood then. If that has changed since, nothing is recorded, and the person is shown how it
stands now. What is recorded is what the commands record (`handrail.operations`), with the name of the person.
"""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import sha256
from hmac import compare_digest, digest
from secrets import token_bytes
from typing import Final, TypeAlias
from urllib.parse import parse_qsl, quote, unquote, urlencode

from starlette.exceptions import HTTPException
from starlette.requests import Request

from handrail.errors import LedgerError, SessionError
from handrail.operations.answers import give_answer, user_name
from handrail.operations.effects import EffectView, concurrent_change, make_finding, settle_effect
from handrail.operations.questions import StoredQuestion
from handrail.operations.sessions import name_call
from handrail.redaction import redacted
from handrail.session.calls import CallRef
from handrail.session.open_calls import GivenAnswer
from handrail.store import EffectRow, Store
from handrail.store.protocol import prove_owner
from handrail.view.lists import MAY_HAVE_HAPPENED, questions_about

FormFields: TypeAlias = Mapping[str, str]
"""The fields of a form that was sent, by their names."""

_ANY: Final = frozenset[str]()
_BOTH: Final = {"name": _ANY, "token": _ANY, "page": frozenset({"list", "run"})}

FORMS: Final[Mapping[str, Mapping[str, frozenset[str]]]] = {
    "/answer": {"session": _ANY, "call": _ANY, "answer": frozenset({"yes", "no"}), "reason": _ANY} | _BOTH,
    "/settle": {"partition": _ANY, "key": _ANY, "outcome": frozenset({"happened", "not happened"}), "why": _ANY}
    | _BOTH,
}
"""The forms, by the addresses that they are sent to: their fields, each with its values, none for any text."""

# Quoted in the page, because browsers change the ends of lines in what they send.
_HIDDEN: Final = {"session", "call", "partition", "key"}
_MOST_BYTES: Final = 65_536
_FORM: Final = "application/x-www-form-urlencoded"


class PageActions:
    """Lets pages have forms, and carries out what they say.

    Attributes:
        user: the name with which the user of this process is logged in; empty if there is none.
    """

    def __init__(self, store: Store) -> None:
        self.user: str = user_name()
        self._store = store
        self._key = token_bytes(32)  # of this start

    def question_token(self, question: StoredQuestion) -> str:
        """The token of the form about a question."""
        call = name_call(question.call)
        return self._seal("question", question.session_id, question.call_session, call, question.digest, *question.asks)

    def effect_token(self, row: EffectRow) -> str:
        """The token of the form about an effect."""
        return self._seal("effect", row.partition, row.key, row.effect_id, str(row.fence), row.status)

    def _seal(self, *shown: str) -> str:
        parts = b"\0".join(sha256(part.encode(errors="surrogatepass")).digest() for part in shown)
        return digest(self._key, parts, "sha256").hex()

    def can_settle(self, row: EffectRow) -> bool:
        """Returns whether a person has to find out whether an effect has happened."""
        now = self._store.now()
        return EffectView(prove_owner(self._store, row, now), now).state in MAY_HAVE_HAPPENED

    def find_questions(self, session_id: str) -> list[StoredQuestion]:
        """The questions about calls of a session, open and answered.

        Raises:
            StoreError: they cannot be read.
        """
        row = self._store.find(session_id)
        questions = [] if row is None else questions_about(self._store, row)
        return [item for item in questions if item.call_session == session_id]

    def answer(self, fields: FormFields) -> str:
        """Records the answer of a form; returns the address of the page that shows it.

        Raises:
            SessionError: what was shown has changed, or the answer cannot be used; nothing was recorded.
            StoreError: it cannot be recorded.
        """
        session_id, call = fields["session"], fields["call"]
        question = next((item for item in self.find_questions(session_id) if name_call(item.call) == call), None)
        if question is None or not _is_same(fields["token"], self.question_token(question)):
            raise SessionError(
                f"call {call} of session {session_id} has been decided since it was shown, or something else is asked, "
                "so nothing was recorded; this is how it stands now"
            )
        answer = GivenAnswer(approved=fields["answer"] == "yes", reason=fields["reason"].strip(), by=fields["name"])
        give_answer(self._store, question, answer)
        return _address(session_id, question.call.outermost) if fields["page"] == "run" else "/questions"

    def settle(self, fields: FormFields) -> str:
        """Records what a person has found out about an effect; returns the address of the page that shows it.

        Raises:
            LedgerError: the effect has changed since it was shown; nothing was recorded.
            StoreError: it cannot be recorded.
        """
        key = fields["key"]
        row = self._store.get(fields["partition"], key)
        if row is None:
            raise LedgerError(f"there is no effect {key} any more, so nothing was recorded", key=key, status="absent")
        if not _is_same(fields["token"], self.effect_token(row)):
            raise concurrent_change(row)
        happened = fields["outcome"] == "happened"
        why = (
            redacted(fields["why"].strip())
            or f"a person has found that it {'happened' if happened else 'did not happen'}"
        )
        finding = make_finding(row, "happened" if happened else "not happened", why=f"{why} ({fields['name']})")
        settle_effect(self._store, row, finding)
        return _address(row.owner.session_id, row.owner.call) if fields["page"] == "run" else "/effects"


async def read_form(request: Request, form: Mapping[str, frozenset[str]]) -> FormFields:
    """The fields that were sent: those of a form, each once, and no others.

    Raises:
        HTTPException: it is not such a form, or has more than 64 KiB.
    """
    if request.headers.get("content-type", "").partition(";")[0] != _FORM:
        raise HTTPException(415, f"a form is sent as {_FORM}")
    body = b""
    async for piece in request.stream():
        body += piece
        if len(body) > _MOST_BYTES:
            raise HTTPException(413, f"a form has at most {_MOST_BYTES:,} bytes")
    try:
        pairs = parse_qsl(body.decode(), keep_blank_values=True, strict_parsing=True, errors="strict")
    except ValueError as error:
        raise HTTPException(400, "this is not a form") from error
    fields = dict(pairs)
    if len(pairs) != len(form) or fields.keys() != form.keys():
        raise HTTPException(400, f"the form has the fields {', '.join(form)}, each once")
    for name, values in form.items():
        if values and fields[name] not in values:
            raise HTTPException(400, f"{name} is one of {', '.join(sorted(values))}")
    fields |= {name: unquote(fields[name]) for name in fields.keys() & _HIDDEN}
    fields["name"] = fields["name"].strip()
    if not fields["name"]:
        raise HTTPException(400, "say who you are: the name is recorded")
    return fields


def _is_same(token: str, expected: str) -> bool:
    return compare_digest(token.encode(errors="replace"), expected.encode())


def _address(session_id: str, call: CallRef) -> str:
    return f"/run?{urlencode({'session': session_id})}#{quote(f'{session_id}/{call.key}')}"
