"""Compares what was asked for with what has happened, and with what the model was told.

| of a payment | the bank has paid | the model has read |
|---|---|---|
| right | once | a success |
| right | not | a failure |
| unknown | at most once | that it is unknown |
| twice | more than once | anything |
| lost | not | a success, or nothing at the end of the run |
| wrong | once, or what was not asked for | a failure, or nothing at the end of the run |
| stopped | at most once | nothing, and the run does not end: each program ends with an exception |

An unknown outcome is counted apart: it is neither right nor wrong.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from proof.model import Model, Place, Told
from proof.world import Books


@dataclass(frozen=True, slots=True)
class Count:
    """What came of the trials of a cell.

    Attributes:
        of: how many payments, parcels or entries there were.
        wrong: how many ended wrongly.
        twice: how many effects were made once too often.
        lost: how many effects are missing.
        unknown: how many outcomes are unknown, and said to be.
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
    stopped: int = 0
    void: int = 0
    asked: int = 0
    questions: int = 0

    def __add__(self, other: Count) -> Count:
        return Count(*(getattr(self, each.name) + getattr(other, each.name) for each in fields(self)))

    @property
    def is_right(self) -> bool:
        """Whether nothing is wrong, made twice or lost."""
        return not (self.wrong or self.twice or self.lost)


def judge_payments(model: Model, books: Books) -> Count:
    """The count of one trial whose replies are payments, each of an order that is to be paid once."""
    paid = Counter(effect.order for effect in books.effects if model.wants(effect.order, effect.amount))
    told = _told_of_orders(model)
    unwanted = [effect.order for effect in books.effects if not model.wants(effect.order, effect.amount)]
    outcomes = Counter(
        judge_payment(paid[order], told[order], ended=bool(books.ended)) for order in told if order not in unwanted
    )
    return Count(
        of=len(told),
        wrong=outcomes["wrong"] + len(unwanted),
        twice=sum(max(0, times - 1) for times in paid.values()),
        lost=outcomes["lost"],
        unknown=outcomes["unknown"],
        stopped=outcomes["stopped"],
        asked=books.asked,
        questions=len(books.questions),
    )


def judge_payment(times: int, told: Told, *, ended: bool = True) -> str:
    """The outcome of a payment that was made so many times, as the table says."""
    if times > 1:
        return "twice"
    if told == "unknown":
        return "unknown"
    if told == "nothing" and not ended:
        return "stopped"
    if times == 0:
        return "right" if told == "failure" else "lost"
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
    if not ended:
        return Count(of=1, stopped=1)
    told = model.told(ends.struck)
    actual = ends.changing if made is None else Counter(each for each in made if each in ends.changing)
    is_unknown = told == "unknown"
    lost = (ends.changing - actual).total()
    expected = ends.without if lost and told in {"unknown", "failure"} else ends.whole
    return Count(
        of=1,
        wrong=int(left != expected),
        twice=(actual - ends.changing).total(),
        lost=0 if told in {"unknown", "failure"} and lost == 1 else lost,
        unknown=int(is_unknown),
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
