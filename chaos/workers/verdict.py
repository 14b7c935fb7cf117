"""The verdict on runs whose workers were killed, stopped and cut off, from their books and their store.

| of each run must hold | by |
|---|---|
| it is finished; one whose call kills its process has failed, with the reason | its row |
| nothing was paid twice; what was answered as done was paid | the books of the bank |
| each note is in the session once; what a model was told once is answered so for good | the session |
| its conversation is that of a run which nothing has disturbed, but for unknown outcomes | the session |
| a model was asked again at most once for each attempt that was broken off | the books of the models |
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any, NamedTuple, TypeAlias

from chaos.books import Books
from chaos.engines.scene import read_answer
from chaos.workers.agents import AGENTS, CALLS, POISON, Note
from chaos.workers.storm import HEARTBEAT, Death
from handrail.operations.runs import find_run
from handrail.session import Session
from handrail.session.conversation import ConversationPart
from handrail.store import Store

Entries: TypeAlias = Sequence[Mapping[str, Any]]
"""Entries of a book."""

_KEYS = ("role", "part_kind", "tool_name", "tool_call_id", "args", "calls", "content")


@dataclass
class Count:
    """What came of the runs.

    Attributes:
        finished: how many runs are finished.
        happened: what was done to the workers, by its name.
        calls: how the calls were answered.
        made: how many payments were made.
        twice: how many of them were made more than once.
        lost: how many answers are lost.
        poisoned: how often the run was begun, without coming further, whose call kills its process.
        attempts: how often runs were begun.
        repeats: how many requests to a model were made again.
        takeovers: after how many seconds a run of a worker that was killed or stopped was begun by another one.
        seconds: how long it took.
        faults: what must not be.
    """

    finished: int = 0
    happened: Counter[str] = field(default_factory=Counter[str])
    calls: Counter[str] = field(default_factory=Counter[str])
    made: int = 0
    twice: int = 0
    lost: int = 0
    poisoned: int = 0
    attempts: int = 0
    repeats: int = 0
    takeovers: dict[str, list[float]] = field(default_factory=lambda: defaultdict[str, list[float]](list))
    seconds: float = 0.0
    faults: list[str] = field(default_factory=list[str])

    @property
    def table(self) -> list[str]:
        """Lines for people."""
        return [
            f"{self.finished} runs finished after {self.seconds:.0f} s, in {self.attempts} attempts",
            f"happened: {_describe(self.happened)}",
            f"calls: {_describe(self.calls)}; {self.made} payments made, {self.twice} of them twice",
            f"answers lost: {self.lost}; requests to a model made again: {self.repeats}",
            *(
                f"taken over after a {blow}: {len(seconds)} runs, median {median(seconds):.1f} s, at most "
                f"{max(seconds):.1f} s; {sum(value <= 2 * HEARTBEAT for value in seconds)} within 2 heartbeats"
                for blow, seconds in sorted(self.takeovers.items())
            ),
            f"{len(self.faults)} faults",
        ]


class _Run(NamedTuple):
    """What a session has: its messages by names that are the same in each run of its agent, and its notes."""

    answers: Mapping[str, str]
    others: Sequence[str]
    notes: Counter[int]


def judge(store: Store, books: Books, count: Count, *, ids: Sequence[str], deaths: Sequence[Death]) -> None:
    """Counts what came of the runs, whose agents take turns; nothing has disturbed the first one of each agent."""
    paid, begun = Counter(entry["order"] for entry in books.read("paid")), _by_session(books.read("begun"))
    asked = _by_session(books.read("asked"))
    count.made, count.attempts = paid.total(), sum(map(len, begun.values()))
    count.twice = sum(times > 1 for times in paid.values())
    for place, session_id in enumerate(ids):
        requests, undisturbed = asked[session_id], _read(store, ids[place % len(AGENTS)])
        again = len(requests) - len({entry["place"] for entry in requests})
        count.repeats += again
        faults = [*_judge_run(store, session_id, count, undisturbed=undisturbed, requests=requests, paid=paid)]
        if again > max(len(begun[session_id]) - 1, 0):
            faults.append(f"{again} requests were made again in {len(begun[session_id])} attempts")
        count.faults += [f"{session_id}: {fault}" for fault in faults]
    poison = find_run(store, POISON)
    if poison is not None:
        count.poisoned = poison.data.attempts
        if poison.row.status != "failed" or "came no further" not in poison.data.text:
            count.faults.append(f"{POISON}: {poison.row.status}, {poison.data.text}")
    _measure_takeovers(count, begun, _by_session(books.read("left")), deaths)


def _judge_run(  # noqa: PLR0913 - what is known of a run
    store: Store,
    session_id: str,
    count: Count,
    *,
    undisturbed: _Run,
    requests: Entries,
    paid: Mapping[str, int],
) -> Generator[str]:
    run = find_run(store, session_id)
    if run is None or run.row.status != "finished":
        yield f"its run is {run and (run.row.status, run.data)}"
        return
    count.finished += 1
    own = _read(store, session_id)
    if (own.others, len(own.answers)) != (undisturbed.others, CALLS):
        yield f"its conversation is {own}, undisturbed it is {undisturbed}"
    for name, text in own.answers.items():
        number, answer = int(name.removeprefix("call-")), read_answer(text, success=text == undisturbed.answers[name])
        count.calls[answer] += 1
        is_note = number % 2
        times = own.notes[number] if is_note else paid[f"{session_id}.{number}"]
        if times > 1 or not (times if answer == "done" else answer == "unknown" and not is_note):
            yield f"{name}: {text}; it happened {times} times"
        contents = {entry["answers"].get(name, text).replace(session_id, "ID") for entry in requests}
        if contents != {text}:
            count.lost += 1
            yield f"{name}: {text}; a model was told {contents}"


def _read(store: Store, session_id: str) -> _Run:
    answers, others = dict[str, str](), list[str]()
    with Session.open(store, session_id) as session:
        notes = Counter(note.number for note in session[Note].all())
        messages = [message for part in session[ConversationPart].all() for message in part.messages]
    for piece in (piece for message in messages for piece in message.get("parts", [message])):
        if "tool_call_id" in piece and "content" in piece:
            answers[piece["tool_call_id"]] = piece["content"].replace(session_id, "ID")
        else:
            others.append(str({key: piece[key] for key in _KEYS if key in piece}))
    return _Run(answers, others, notes)


def _measure_takeovers(
    count: Count, begun: Mapping[str, Entries], left: Mapping[str, Entries], deaths: Sequence[Death]
) -> None:
    for death in deaths:
        for session_id, attempts in begun.items():
            before = [entry for entry in attempts if entry["at"] < death.at]
            if not before or before[-1]["pid"] != death.pid:
                continue
            ends = (entry["at"] for entry in left[session_id] if entry["pid"] == death.pid)
            if any(before[-1]["at"] < end < death.at for end in ends):
                continue
            others = (entry["at"] for entry in attempts if entry["at"] > death.at and entry["pid"] != death.pid)
            if (takeover := next(others, None)) is not None:
                count.takeovers[death.blow].append(takeover - death.at)
            else:
                count.happened[f"not taken over after a {death.blow}"] += 1


def _by_session(entries: Entries) -> Mapping[str, Entries]:
    sessions = defaultdict[str, list[Mapping[str, Any]]](list)
    for entry in entries:
        sessions[entry["session"]].append(entry)
    return sessions


def _describe(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{number} {name}" for name, number in sorted(counts.items()))
