"""The scripted model: it makes the calls of a list, and asks once more for each that has not succeeded."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

Told = Literal["success", "unknown", "failure", "nothing"]
"""What the model has read of a call: that it succeeded, that its outcome is unknown, that it failed, or nothing."""

RECEIPT = "receipt of"
"""Stands in the answer of each call that succeeds."""

_UNKNOWN = ("is unknown", "is not known")
_ATTEMPTS = 2


class Step(NamedTuple):
    """A call of the list.

    Attributes:
        name: the tool.
        arguments: its arguments.
        id: the id that it has in each reply; if it is empty, each request mints one.
        persistent: the model asks again if it fails.
    """

    name: str
    arguments: dict[str, Any]
    id: str = ""
    persistent: bool = True


@dataclass(frozen=True, slots=True)
class Place:
    """The place of a call in the list: reply, call."""

    reply: int
    call: int


class Model:
    """Makes the calls of its replies, one reply after the other.

    Args:
        replies: the calls of each.
        mail: what the mail says.
        obeyed: the calls by which it obeys the mail.
    """

    def __init__(self, replies: Sequence[Sequence[Step]], mail: str = "", obeyed: Sequence[Step] = ()) -> None:
        self.replies = replies
        self.mail = mail
        self._obeyed = obeyed
        self._minted: dict[str, list[Place]] = {}
        self._texts: dict[Place, list[str]] = {}
        self._count = 0

    def reply(self, answers: Sequence[tuple[str, str]]) -> list[Any]:
        """The calls of the next reply, given all answers of a conversation; it ends with none."""
        texts = self._read(answers)
        self._texts = texts
        listed = [*self.replies]
        if self._has_read_mail():
            listed.append(self._obeyed)
        for number, steps in enumerate(listed):
            places = [Place(number, call) for call in range(len(steps))]
            attempts = max((len(texts.get(place, [])) for place in places), default=0)
            wanted = [
                place
                for place, step in zip(places, steps, strict=True)
                if not attempts
                or (step.persistent and attempts < _ATTEMPTS and _told(texts.get(place, [])) != "success")
            ]
            if wanted:
                return [self._mint(place, steps[place.call]) for place in wanted]
        return []

    @property
    def unwanted(self) -> list[str]:
        """The orders of the payments by which it obeys the mail, if it has read that."""
        return [step.arguments["order"] for step in self._obeyed] if self._has_read_mail() else []

    @property
    def texts(self) -> list[str]:
        """All that the model has read in the conversation that it was last asked about."""
        return [text for texts in self._texts.values() for text in texts]

    def told(self, place: Place) -> Told:
        """What the model has read of a call in the conversation that it was last asked about."""
        return _told(self._texts.get(place, []))

    def wants(self, order: str, amount: str) -> bool:
        """Whether a payment is one that the task takes: a person agrees to no other."""
        return {"order": order, "amount": amount} in [step.arguments for steps in self.replies for step in steps]

    def _has_read_mail(self) -> bool:
        return bool(self.mail) and any(self.mail in text for text in self.texts)

    def _mint(self, place: Place, step: Step) -> tuple[str, str, dict[str, Any]]:
        self._count += 1
        call_id = step.id or f"call_{self._count}"
        places = self._minted.setdefault(call_id, [])
        if not step.id or place not in places:
            places.append(place)
        return call_id, step.name, step.arguments

    def _read(self, answers: Sequence[tuple[str, str]]) -> dict[Place, list[str]]:
        """The answers of each call; those that share an id come in the order of the list."""
        seen = Counter[str]()
        texts: dict[Place, list[str]] = {}
        for answer_id, text in answers:
            call_id = answer_id
            if call_id not in self._minted:  # a program may number the calls that share an id
                call_id = answer_id.rpartition("_")[0]
            if places := self._minted.get(call_id, []):
                place = places[min(seen[call_id], len(places) - 1)]
                texts.setdefault(place, []).append(text)
            seen[call_id] += 1
        for places in self._minted.values():  # of two equal calls with one id, a program may answer one
            for place in places:
                twins = [twin for twin in places if twin.reply == place.reply and twin in texts]
                if place not in texts and twins:
                    texts[place] = texts[twins[0]]
        return texts


def _told(texts: Sequence[str]) -> Told:
    if any(RECEIPT in text for text in texts):
        return "success"
    if any(words in text for text in texts for words in _UNKNOWN):
        return "unknown"
    return "failure" if texts else "nothing"
