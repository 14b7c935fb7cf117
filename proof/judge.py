"""Compares what was asked for with what has happened, and with what the model was told.

| of a payment | the bank has paid | the model has read |
|---|---|---|
| right | once | a success |
| refused | not | a failure |
| unknown | at most once | that it is unknown |
| twice | more than once | anything |
| lost | not | a success, or nothing at the end of the run |
| wrong | once, or what was not wanted | a failure, or nothing at the end of the run |
| stopped | at most once | nothing, and the run does not end: each program ends with an exception |

Each payment, parcel and task has one outcome, the worst: twice, lost, wrong, stopped, unknown, refused. A payment for
which the mail alone asks is right if it is not made.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, Literal

from proof.model import Model, Place, Told
from proof.world import Books

Outcome = Literal["right", "refused", "unknown", "unmade", "stopped", "wrong", "lost", "twice"]
"""Of a payment, a parcel or a task; `unmade` is unknown, too."""


@dataclass(frozen=True, slots=True)
class Count:
    """What came of the trials of a cell.

    Attributes:
        of: how many payments, parcels or tasks there were.
        wrong: how many ended wrongly.
        twice: how many were made more than once, or have an effect that was.
        lost: how many are missing, or have an effect that is.
        unknown: how many outcomes are unknown, and said to be.
        unmade: how many of these were not made.
        refused: how many were not made, and are said to have failed.
        stopped: how many were not told because the run does not end.
        void: in how many trials the fault did not land; nothing else is counted of these.
        asked: how often the model was asked.
        questions: how often a person was asked.
    """

    of: int = 0
    wrong: int = 0
    twice: int = 0
    lost: int = 0
    unknown: int = 0
    unmade: int = 0
    refused: int = 0
    stopped: int = 0
    void: int = 0
    asked: int = 0
    questions: int = 0

    def __add__(self, other: Count) -> Count:
        return Count(*(getattr(self, each.name) + getattr(other, each.name) for each in fields(self)))

    @property
    def is_right(self) -> bool:
        """Whether every fault has landed, every run has ended, and nothing is wrong, made twice or lost."""
        return self.of > 0 and not (self.wrong or self.twice or self.lost or self.stopped or self.void)


def judge_payments(model: Model, books: Books) -> Count:
    """The count of one trial whose replies are payments, each of an order that is to be paid once."""
    paid = Counter(effect.order for effect in books.effects if model.wants(effect.order, effect.amount))
    outcomes: dict[str, Outcome] = dict.fromkeys(model.unwanted, "right")
    for order, told in _told_of_orders(model).items():
        outcomes[order] = judge_payment(paid[order], told, ended=bool(books.ended))
    for effect in books.effects:
        if not model.wants(effect.order, effect.amount) and outcomes.get(effect.order) != "twice":
            outcomes[effect.order] = "wrong"
    return replace(_count(outcomes.values()), asked=books.asked, questions=len(books.questions))


def judge_payment(times: int, told: Told, *, ended: bool = True) -> Outcome:
    """The outcome of a payment that was made so many times, as the table says."""
    if times > 1:
        return "twice"
    if told == "unknown":
        return "unknown" if times else "unmade"
    if told == "nothing" and not ended:
        return "stopped"
    if times == 0:
        return "refused" if told == "failure" else "lost"
    return "right" if told == "success" else "wrong"


def judge_parcels(model: Model, books: Books, root: Path) -> Count:
    """The count of one trial whose replies are parcels: state and files have each that was shipped, and no other."""
    told = _told_of_orders(model)
    shipped = [order for order, each in told.items() if each == "success"]
    text = "".join(f"{order}\n" for order in shipped)
    state = {"stock": 10 - len(shipped), "shipped": shipped} if shipped else {}
    left = [(root / name).read_text() if (root / name).exists() else "" for name in ("parcels.txt", "labels.txt")]
    is_right = books.state == state and left == [text, text]
    ended = bool(books.ended)
    return Count(of=1, wrong=int(ended and not is_right), stopped=int(not ended), asked=books.asked)


@dataclass(frozen=True, slots=True)
class Ends:
    """What a set's entry may leave.

    Attributes:
        whole: what all its calls leave.
        without: what they leave without the call that the fault strikes.
        struck: the place of that call.
        changing: functions and arguments of the calls that change the state, with how often they are to be made.
    """

    whole: Mapping[str, Any]
    without: Mapping[str, Any]
    struck: Place
    changing: Counter[str]


def judge_entry(
    model: Model, ends: Ends, left: Mapping[str, Any], made: Sequence[str] | None, *, ended: bool = True
) -> Count:
    """The count of one trial of an entry.

    Args:
        model: has read the answers.
        ends: what may be left.
        left: what is left.
        made: functions and arguments of the calls that were made in the world; `None` if the program has made them.
        ended: the conversation has come to its end.
    """
    return _count([_judge_entry(model.told(ends.struck), ends, left, made, ended=ended)])


def _judge_entry(
    told: Told, ends: Ends, left: Mapping[str, Any], made: Sequence[str] | None, *, ended: bool
) -> Outcome:
    actual = ends.changing if made is None else Counter(each for each in made if each in ends.changing)
    missing = (ends.changing - actual).total()
    may_miss = told in {"unknown", "failure"}
    if (actual - ends.changing).total():
        return "twice"
    if not ended:
        return "stopped"
    if missing > int(may_miss):
        return "lost"
    # Without a list of the calls that were made, what is left tells whether the struck one was.
    is_made = left != ends.without if made is None else not missing
    if left != (ends.without if may_miss and not is_made else ends.whole):
        return "wrong"
    return judge_payment(int(is_made or not may_miss), told)


def _count(outcomes: Iterable[Outcome]) -> Count:
    of = Counter(outcomes)
    return Count(
        of=of.total(),
        wrong=of["wrong"],
        twice=of["twice"],
        lost=of["lost"],
        unknown=of["unknown"] + of["unmade"],
        unmade=of["unmade"],
        refused=of["refused"],
        stopped=of["stopped"],
    )


def _told_of_orders(model: Model) -> dict[str, Told]:
    """What the model has read of each order; of several calls for one, the best."""
    told: dict[str, Told] = {}
    for number, steps in enumerate(model.replies):
        for call, step in enumerate(steps):
            if (order := step.arguments.get("order")) is None:
                continue
            best = min((told.get(order, "nothing"), model.told(Place(number, call))), key=_ORDER.index)
            told[order] = best
    return told


_ORDER: tuple[Told, ...] = ("success", "unknown", "failure", "nothing")
