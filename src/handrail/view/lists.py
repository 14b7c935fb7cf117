"""What the pages show that list: sessions, effects and questions; values, and no HTML.

A page begins after the place of the last row of the page before, which is its time and its id, so that the page of a
store of any size costs the same. What the store cannot select is looked for in a bounded number of rows; then the page
has fewer rows than it could, and the place of the next one.

| selected | by |
|---|---|
| sessions that are running | the locks |
| sessions with an unknown effect | the ledger |
| sessions that have failed or wait, or have a text; all questions | reading sessions, the newest first |
| effects of a state, a tool or a text | reading the ledger, what is not settled first, then by age |
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import chain
from operator import attrgetter
from typing import Final, Generic, Literal, NamedTuple, TypeAlias, TypeVar, get_args

from pydantic_core import from_json

from handrail.errors import StoreCorruptError, UnknownTypeError
from handrail.operations import skip_unreadable
from handrail.operations.effects import EffectState, EffectView
from handrail.operations.questions import StoredQuestion, agents_asking, questions_in, stored_questions
from handrail.operations.sessions import agent_of_session
from handrail.runtime import ToolInvoked
from handrail.session.calls import OpenCall
from handrail.session.persistence.protocol import SessionRow
from handrail.session.persistence.stored_types import stored_type
from handrail.store import EffectRow, Store
from handrail.store.protocol import prove_owner

ListedState: TypeAlias = Literal["running", "waiting", "unknown", "failed", "unreadable"]
"""A state of a session in the list.

| state | means |
|---|---|
| `"running"` | a process holds it |
| `"waiting"` | a question about a call is open |
| `"unknown"` | it has an effect that may have happened |
| `"failed"` | one of its last calls has failed |
| `"unreadable"` | its values are damaged, or of a class that is not known here |
"""

SESSION_STATES: Final[tuple[ListedState, ...]] = get_args(ListedState)
"""The states of sessions."""

EFFECT_STATES: Final[tuple[EffectState, ...]] = get_args(EffectState)
"""The states of effects."""

ROWS_OF_PAGE: Final = 50
"""The most rows of a page."""

MOST_READ: Final = 1_000
"""The most rows that are read for a page."""

_LAST_CALLS = 50
_FIRST_ENTRIES = 20  # among them is the first of a conversation

MAY_HAVE_HAPPENED: Final = frozenset[EffectState]({"unknown", "lapsed"})
"""The states of effects of which a person has to find out whether they have happened."""

_UNSETTLED: Final = MAY_HAVE_HAPPENED | {"running"}

ListPlace = tuple[datetime, str]
"""The place of a row in a list by age: its time, and its id."""

T = TypeVar("T")


class InvalidListError(Exception):
    """What was asked for is not a list: it has another state, or another place to begin at."""


@dataclass(frozen=True)  # `typing` sets an attribute of one that is generic
class ListPage(Generic[T]):
    """A page of a list.

    Attributes:
        rows: what is on it.
        after: the place at which the next page begins, as text; empty at the end.
        reads: how many rows were read for it.
        faults: what could not be read, in words.
    """

    rows: Sequence[T]
    after: str = ""
    reads: int = 0
    faults: Sequence[str] = ()


class SessionLine(NamedTuple):
    """A session in the list."""

    row: SessionRow
    states: tuple[ListedState, ...]
    agent: str = ""


class QuestionLine(NamedTuple):
    """A question in the list, and the agents that called each other down to the one that asks."""

    question: StoredQuestion
    agents: tuple[str, ...]


# ------------------------------------------------------------------------------------------------------------- sessions


def read_session_page(store: Store, *, state: str = "", text: str = "", after: str = "") -> ListPage[SessionLine]:
    """The sessions in a state, the newest first; with a text in their ids, tags or agents.

    Raises:
        InvalidListError: there is no such state, or `after` is not a place.
        StoreError: the store cannot be read.
    """
    if state and state not in SESSION_STATES:
        raise InvalidListError(f"state is one of {', '.join(SESSION_STATES)}")
    place, in_use = _read_place(after), store.held_sessions()
    faults: list[str] = []
    rows: Iterable[SessionRow] = skip_unreadable(store.sessions(after=place), faults)
    if state == "running":
        rows = _by_age(store, in_use, place)
    elif state == "unknown":
        rows = _by_age(store, _unknown_sessions(store), place)
    if text and (exact := store.find(text)) is not None:  # it comes first, however old it is
        others = (row for row in rows if row.session_id != text)
        rows = others if place else chain([exact], others)

    def read(row: SessionRow) -> SessionLine | None:
        line = _read_line(store, row, in_use, state)
        texts = (row.session_id, line.agent, *row.tags, *row.tags.values())
        return line if (not state or state in line.states) and _has_text(text, texts) else None

    return replace(_fill(rows, read, lambda row: _write_place(row.created_at, row.session_id)), faults=faults)


def _by_age(store: Store, session_ids: Iterable[str], place: ListPlace | None) -> list[SessionRow]:
    rows = [row for session_id in session_ids if (row := store.find(session_id)) is not None]
    in_order = sorted(rows, key=attrgetter("created_at", "session_id"), reverse=True)
    return [row for row in in_order if place is None or (row.created_at, row.session_id) < place]


def _unknown_sessions(store: Store) -> set[str]:
    now = store.now()
    views = (EffectView(prove_owner(store, row, now), now) for row in store.rows_by_age(is_settled=False))
    return {view.row.partition or view.row.owner.session_id for view in views if view.state in MAY_HAVE_HAPPENED}


def _read_line(store: Store, row: SessionRow, in_use: frozenset[str], filter_state: str) -> SessionLine:
    is_held = row.session_id in in_use
    tests: dict[ListedState, Callable[[], bool]] = {
        "running": lambda: is_held,
        "waiting": lambda: any(question.answer is None for question in questions_about(store, row)),
        "unknown": lambda: any(_may_have_happened(store, call) for call in store.open_claims(row.session_id)),
        "failed": lambda: _has_failed(store, row),
    }
    try:
        # What the filter selects is looked for first: most sessions are not shown.
        if any(name == filter_state and not test() for name, test in tests.items()):
            return SessionLine(row, ())
        states: tuple[ListedState, ...] = tuple(name for name, test in tests.items() if test())
        # Not all of a long session is read for the name of its agent.
        agent = agent_of_session(store, row._replace(head=min(row.head, _FIRST_ENTRIES)))
        return SessionLine(row, states, agent)
    # One session does not hide the others.
    except (StoreCorruptError, UnknownTypeError, ImportError, ValueError, AttributeError):
        return SessionLine(row, ("running", "unreadable") if is_held else ("unreadable",))


def _may_have_happened(store: Store, call: OpenCall) -> bool:
    is_lapsed = call.state == "running" and (call.lease_until is None or call.lease_until <= store.now())
    return call.state == "unknown" or is_lapsed


def _has_failed(store: Store, row: SessionRow) -> bool:
    name = stored_type(ToolInvoked).name
    entries = store.newest_changes(row.session_id, name, after=0, until=row.head, limit=_LAST_CALLS)
    # Most calls have succeeded, and their records are not decoded.
    items = (item for entry in entries if b"false" in entry.items for item in from_json(entry.items))
    # A call that was refused before its handler was started has not failed.
    return any(item.get("success") is False and item.get("handler_seconds") is not None for item in items)


# ------------------------------------------------------------------------------------------------------------ questions


def read_question_page(store: Store, *, session: str = "", text: str = "", after: str = "") -> ListPage[QuestionLine]:
    """The open questions, the oldest first; of some sessions, the newest first.

    Of one session, and of those below it, the questions that have been answered are listed, too, until their calls have
    been carried out.

    Raises:
        InvalidListError: `after` is not a place.
        StoreError: the store cannot be read.
    """
    faults: list[str] = []

    def read(row: SessionRow) -> list[StoredQuestion]:
        try:
            return [question for question in questions_about(store, row) if question.session_id == row.session_id]
        except (StoreCorruptError, UnknownTypeError, ImportError) as error:
            faults.append(f"the questions of session {row.session_id} cannot be read: {error}")
            return []

    if session:
        page = ListPage(stored_questions(store, session))
    else:
        rows = skip_unreadable(store.sessions(after=_read_place(after)), faults)
        groups = _fill(rows, lambda row: read(row) or None, lambda row: _write_place(row.created_at, row.session_id))
        page = ListPage([*chain.from_iterable(groups.rows)], groups.after, groups.reads)
    questions = [question for question in page.rows if session or question.answer is None]
    lines = [QuestionLine(question, agents_asking(store, question)) for question in questions]
    fitting = [
        line for line in lines if _has_text(text, (line.question.tool, line.question.call_session, *line.agents))
    ]
    return ListPage(
        sorted(fitting, key=lambda line: line.question.asked_at), page.after, page.reads, [*page.faults, *faults]
    )


def questions_about(store: Store, row: SessionRow) -> list[StoredQuestion]:
    """The questions that a session stores, and those about its calls that the sessions above it store.

    Raises:
        StoreError: they cannot be read.
        UnknownTypeError: they are of a class that is not known here.
        ImportError: they are of an agent, and agents are not installed here.
    """
    rows, session_id = [row], row.session_id
    while (parent := rows[-1].parent) is not None and session_id.startswith(f"{parent}/"):
        if (above := store.find(parent)) is None:
            break
        rows.append(above)
    return [item for item in questions_in(store, rows) if session_id in {item.session_id, item.call_session}]


# -------------------------------------------------------------------------------------------------------------- effects


def read_effect_page(
    store: Store, *, state: str = "", tool: str = "", text: str = "", after: str = ""
) -> ListPage[EffectView]:
    """The effects in a state, of a tool, with a text: those that are not settled first, then by age.

    With the state `"unknown"` come those whose lease has expired, which may have happened, too.

    Raises:
        InvalidListError: there is no such state, or `after` is not a place.
        StoreError: the store cannot be read.
    """
    if state and state not in EFFECT_STATES:
        raise InvalidListError(f"state is one of {', '.join(EFFECT_STATES)}")
    now = store.now()

    def read(row: EffectRow) -> EffectView | None:
        view = EffectView(prove_owner(store, row, now), now)
        is_wanted = state in {"", view.state} or (state == "unknown" and view.state == "lapsed")
        texts = (row.key, row.tool, row.partition, row.owner.session_id, row.note)
        return view if is_wanted and tool in {"", row.tool} and _has_text(text, texts) else None

    def write(row: EffectRow) -> str:
        stage = "settled" if row.status in {"done", "failed"} else "open"
        return f"{stage} {_write_place(row.created_at, row.effect_id)}"

    page = _fill(_effect_rows(store, state, after), read, write)
    # What a person has to settle comes before what runs.
    return replace(page, rows=sorted(page.rows, key=lambda view: _rank(view.state)))


def _effect_rows(store: Store, state: str, after: str) -> Iterator[EffectRow]:
    stage, _, text = after.partition(" ")
    if stage not in {"", "open", "settled"}:
        raise InvalidListError("after is not the place of an effect")
    place = _read_place(text)
    if stage != "settled" and state in {"", *_UNSETTLED}:
        yield from store.rows_by_age(is_settled=False, after=place)
        place = None
    if state not in _UNSETTLED:
        yield from store.rows_by_age(is_settled=True, after=place)


def _rank(state: EffectState) -> int:
    return 0 if state in MAY_HAVE_HAPPENED else 1 if state == "running" else 2


# --------------------------------------------------------------------------------------------------------------- places


R = TypeVar("R")


def _fill(rows: Iterable[R], read: Callable[[R], T | None], write: Callable[[R], str]) -> ListPage[T]:
    lines, reads, last = list[T](), 0, None
    for row in rows:
        if len(lines) == ROWS_OF_PAGE or reads == MOST_READ:
            return ListPage(lines, "" if last is None else write(last), reads)
        last, reads = row, reads + 1
        if (line := read(row)) is not None:
            lines.append(line)
    return ListPage(lines, "", reads)


def _write_place(at: datetime, name: str) -> str:
    return f"{at.isoformat()} {name}"


def _read_place(text: str) -> ListPlace | None:
    moment, _, name = text.partition(" ")
    if not text:
        return None
    try:
        at = datetime.fromisoformat(moment).astimezone(UTC)
    except (ValueError, OverflowError) as error:
        raise InvalidListError("after is the place of a row: its time, a blank, and its id") from error
    return at, name


def _has_text(text: str, texts: Iterable[str]) -> bool:
    return not text or any(text.casefold() in one.casefold() for one in texts)
