"""Slices and events for the tests of sessions."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime
from decimal import Decimal
from enum import Enum
from typing import ClassVar

from handrail.session import Append, SlicePolicy, Unchanged, reducer


@dataclass(frozen=True, slots=True)
class Note:
    """A value, and an event that is appended to its own slice."""

    text: str


@dataclass(frozen=True, slots=True)
class Task:
    """A value with a key."""

    key: str
    text: str


@dataclass(frozen=True, slots=True)
class Happened:
    """An event that is logged; as the record of a call it is final, and of session `s`."""

    slice_policy: ClassVar[SlicePolicy] = SlicePolicy.LOG

    what: str

    @property
    def session_id(self) -> str:
        """The session of the call that it records."""
        return "s"

    @property
    def final(self) -> bool:
        """Whether the call is answered from it."""
        return True

    @property
    def summary(self) -> tuple[str, bool, datetime]:
        """The tool, whether the call succeeded, and when it ended."""
        return "look", True, datetime(2026, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Add:
    """An event."""

    amount: int


@dataclass(frozen=True, slots=True)
class Reset:
    """An event."""


@dataclass(frozen=True, slots=True)
class Total:
    """A state slice."""

    amount: int

    @reducer(on=Add)
    def add(self, event: Add) -> Total:
        return replace(self, amount=self.amount + event.amount)

    @reducer(on=Reset)
    def reset(self, _event: Reset) -> Append[Total] | Unchanged:
        return Append(Total(0)) if self.amount else Unchanged()


class Mood(Enum):
    """A choice."""

    GOOD = "good"
    BAD = "bad"


@dataclass(frozen=True, slots=True)
class Rich:
    """A value of many kinds of fields."""

    text: str
    number: int
    share: float
    mood: Mood
    on: date
    price: Decimal
    tasks: tuple[Task, ...] = ()
    named: dict[str, Note | None] = field(default_factory=dict[str, Note | None])


NOTES = tuple(Note(text) for text in "abcdefgh")
A, B, C, D = NOTES[:4]
