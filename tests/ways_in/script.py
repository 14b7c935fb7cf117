"""The script of the suite: what a model asks for in each case, what a person answers, and what the calls leave.

A case is the same for every way in. A record is a line: the call, its tool, and its outcome; the words of an outcome
are `ok`, or the step that has refused it; `replayed`; and `not final`, if the call may be made again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

Verdict = Literal["yes", "no", "later", "fails", "is cancelled", "exits"]
"""What a person answers, or how asking ends."""


class Ask(NamedTuple):
    """A call of the model; its id is its position in the case, `c1`, `c2` and so on, unless it has one."""

    tool: str
    arguments: Mapping[str, Any] | str  # text is not changed, and need not be JSON
    id: str = ""


@dataclass(frozen=True, kw_only=True)
class Left:
    """What the calls have left.

    Attributes:
        notes: the state of the session.
        file: the text of a file that rolls back.
        paid: the effects outside.
        records: the items of `ToolInvoked`, in the order of the calls.
        ledger: the rows of the ledger, each as its tool and its status.
        events: how many events of each class a subscriber got; of the run that is resumed, none.
        waits: the calls that are open, each with its state.
    """

    notes: list[str] = field(default_factory=list[str])
    file: str = ""
    paid: list[str] = field(default_factory=list[str])
    records: list[str] = field(default_factory=list[str])
    ledger: list[str] = field(default_factory=list[str])
    events: Mapping[str, int] = field(default_factory=dict[str, int])
    waits: list[str] = field(default_factory=list[str])


@dataclass(frozen=True, kw_only=True)
class Case:
    """A row of the script.

    Attributes:
        replies: the calls of each reply of the model; after the last one it says that it is done.
        verdict: what a person answers who is asked.
        left: what the calls leave.
        about: the row, in words for the page, if its name does not say it.
        resumed: what is left when the run has been resumed, and the person says yes; `None` if it has ended.
        is_cancelled: the run is cancelled while a handler waits.
        taints: a server behind a proxy is untrusted.
        is_slow: a server behind a proxy has a timeout.
    """

    replies: Sequence[Sequence[Ask]]
    left: Left
    about: str = ""
    verdict: Verdict = "yes"
    resumed: Left | None = None
    is_cancelled: bool = False
    taints: bool = False
    is_slow: bool = False

    def ids(self, number: int) -> list[str]:
        """The ids of the calls of a reply, counted from 0."""
        before = sum(len(reply) for reply in self.replies[:number])
        return [ask.id or f"c{before + position}" for position, ask in enumerate(self.replies[number], start=1)]


def _note(text: str, id: str = "") -> Ask:
    return Ask("note", {"text": text}, id)


def _pay(order: str) -> Ask:
    return Ask("pay", {"order": order})


_TWENTY = ("look", "look", "note", "look", "spoil") * 4

CASES: dict[str, Case] = {
    "success": Case(
        about="A tool writes, another pays.",
        replies=[[_note("a"), _pay("A-1")]],
        left=Left(
            notes=["a"],
            file="a",
            paid=["A-1"],
            records=["c1 note: ok", "c2 pay: ok"],
            ledger=["pay: done"],
            events={"ToolInvoked": 2},
        ),
    ),
    "invalid": Case(
        about="An argument has a wrong type.",
        replies=[[Ask("note", {"text": 7}), _note("a")]],
        left=Left(notes=["a"], file="a", records=["c1 note: parse", "c2 note: ok"], events={"ToolInvoked": 2}),
    ),
    "malformed": Case(
        about="The arguments are not JSON.",
        replies=[[Ask("note", '{"text": '), _note("a")]],
        left=Left(notes=["a"], file="a", records=["c1 note: parse", "c2 note: ok"], events={"ToolInvoked": 2}),
    ),
    "unknown tool": Case(
        replies=[[Ask("nope", {"text": "a"}), _note("a")]],
        left=Left(notes=["a"], file="a", records=["c1 nope: look_up", "c2 note: ok"], events={"ToolInvoked": 2}),
    ),
    "denied": Case(
        replies=[[_pay("forbidden"), _note("a")]],
        left=Left(notes=["a"], file="a", records=["c1 pay: policy", "c2 note: ok"], events={"ToolInvoked": 2}),
    ),
    "asked": Case(
        about="A person says yes.",
        replies=[[_pay("big-1")]],
        left=Left(paid=["big-1"], records=["c1 pay: ok"], ledger=["pay: done"], events={"ToolInvoked": 1}),
    ),
    "refused": Case(
        about="A person says no.",
        replies=[[_pay("big-1")]],
        verdict="no",
        left=Left(records=["c1 pay: approval"], events={"ToolInvoked": 1}),
    ),
    "asked later": Case(
        about="The question is answered later.",
        replies=[[_pay("big-1"), _note("a")]],
        verdict="later",
        left=Left(
            notes=["a"], file="a", records=["c2 note: ok"], events={"ToolInvoked": 1}, waits=["c1 pay: postponed"]
        ),
        resumed=Left(
            notes=["a"],
            file="a",
            paid=["big-1"],
            records=["c1 pay: ok", "c2 note: ok"],
            ledger=["pay: done"],
            events={"ToolInvoked": 1},
        ),
    ),
    "asking fails": Case(
        replies=[[_pay("big-1"), _note("a")]],
        verdict="fails",
        left=Left(
            notes=["a"], file="a", records=["c1 pay: approval, not final", "c2 note: ok"], events={"ToolInvoked": 2}
        ),
    ),
    "asking cancelled": Case(
        replies=[[_pay("big-1"), _note("a")]],
        verdict="is cancelled",
        left=Left(
            notes=["a"], file="a", records=["c1 pay: approval, not final", "c2 note: ok"], events={"ToolInvoked": 2}
        ),
    ),
    "asking exits": Case(
        replies=[[_pay("big-1")], [_note("a")]],
        verdict="exits",
        left=Left(waits=["c1 pay: postponed"]),
        resumed=Left(
            notes=["a"],
            file="a",
            paid=["big-1"],
            records=["c1 pay: ok", "c2 note: ok"],
            ledger=["pay: done"],
            events={"ToolInvoked": 2},
        ),
    ),
    "failed": Case(
        about="A handler writes, and fails.",
        replies=[[Ask("spoil", {"text": "a"}), _note("b")]],
        left=Left(notes=["b"], file="b", records=["c1 spoil: handler", "c2 note: ok"], events={"ToolInvoked": 2}),
    ),
    "raised": Case(
        about="A handler writes, and raises.",
        replies=[[Ask("burst", {"text": "a"}), _note("b")]],
        left=Left(
            notes=["b"],
            file="b",
            records=["c1 burst: handler, not final", "c2 note: ok"],
            events={"ToolInvoked": 2, "ToolRaised": 1},
        ),
    ),
    "replayed": Case(
        about="Two calls have one key.",
        replies=[[Ask("charge", {"order": "A-1"})], [Ask("charge", {"order": "A-1"})]],
        left=Left(
            paid=["A-1"],
            records=["c1 charge: ok", "c2 charge: ok, replayed"],
            ledger=["charge: done"],
            events={"ToolInvoked": 2},
        ),
    ),
    "unknown": Case(
        about="A handler pays, and raises.",
        replies=[[_pay("lost"), _note("a")]],
        left=Left(
            notes=["a"],
            file="a",
            paid=["lost"],
            records=["c1 pay: handler, not final", "c2 note: ok"],
            ledger=["pay: unknown"],
            events={"ToolInvoked": 2, "ToolRaised": 1, "EffectUnsettled": 1},
            waits=["c1 pay: unknown"],
        ),
    ),
    "timed out": Case(
        about="A handler pays, and takes too long.",
        replies=[[_note("a"), Ask("linger", {"order": "A-1"})]],
        is_slow=True,
        left=Left(
            notes=["a"],
            file="a",
            paid=["A-1"],
            records=["c1 note: ok", "c2 linger: handler, not final"],
            ledger=["linger: unknown"],
            events={"ToolInvoked": 2, "EffectUnsettled": 1},
            waits=["c2 linger: unknown"],
        ),
    ),
    "cancelled": Case(
        replies=[[_note("a")], [Ask("wait", {"order": "A-1"})]],
        is_cancelled=True,
        left=Left(
            notes=["a"],
            file="a",
            paid=["A-1"],
            records=["c1 note: ok", "c2 wait: handler, not final"],
            ledger=["wait: unknown"],
            events={"ToolInvoked": 2, "EffectUnsettled": 1},
            waits=["c2 wait: unknown"],
        ),
    ),
    "parallel": Case(
        about="Two reads wait for each other.",
        replies=[[Ask("meet", {"text": "a"}), Ask("meet", {"text": "b"}), _pay("A-1")]],
        left=Left(
            paid=["A-1"],
            records=["c1 meet: ok", "c2 meet: ok", "c3 pay: ok"],
            ledger=["pay: done"],
            events={"ToolInvoked": 3},
        ),
    ),
    "order": Case(
        about="Twenty calls read, write and fail.",
        replies=[[Ask(name, {"text": str(number)}) for number, name in enumerate(_TWENTY)]],
        left=Left(
            notes=["2", "7", "12", "17"],
            file="17",
            records=sorted(
                f"c{number} {name}: {'handler' if name == 'spoil' else 'ok'}" for number, name in enumerate(_TWENTY, 1)
            ),
            events={"ToolInvoked": 20},
        ),
    ),
    "nested": Case(
        replies=[[Ask("nest", {"text": "a"})]],
        left=Left(
            notes=["a"],
            file="a",
            records=["c1 nest: ok", "c1/fails spoil: handler, not final", "c1/works note: ok, not final"],
            events={"ToolInvoked": 3},
        ),
    ),
    "repeated id": Case(
        replies=[[_note("a", "c1"), _note("b", "c1")]],
        left=Left(notes=["a", "b"], file="b", records=["c1 note: ok", "c1_2 note: ok"], events={"ToolInvoked": 2}),
    ),
    "disclosure": Case(
        about="A closed section is opened.",
        replies=[
            [Ask("refund", {"order": "A-1"})],
            [Ask("open_sections", {"paths": ["refunds"], "reason": "A refund."})],
            [Ask("refund", {"order": "A-1"})],
        ],
        left=Left(
            paid=["refund A-1"],
            records=["c1 refund: look_up, not final", "c2 open_sections: handler, not final", "c3 refund: ok"],
            ledger=["refund: done"],
            events={"ToolInvoked": 3},
        ),
    ),
    "tainted": Case(
        about="An untrusted mail precedes a payment.",
        replies=[[Ask("read_mail", {})], [_pay("A-1")]],
        verdict="no",
        taints=True,
        left=Left(records=["c1 read_mail: ok", "c2 pay: approval"], events={"ToolInvoked": 2}),
    ),
}
"""The script, by the names of its cases."""

KILLED = Case(
    about="SIGKILL in a payment; another process resumes.",
    replies=[[_note("a")], [_pay("killed"), _note("b")], [_pay("A-1")]],
    left=Left(
        notes=["a", "b"],
        file="b",
        paid=["killed", "A-1"],
        records=["c1 note: ok", "c2 pay: claim, not final", "c3 note: ok", "c4 pay: ok"],
        ledger=["pay: done", "pay: unknown"],
        events={"ToolInvoked": 3},
        waits=["c2 pay: unknown"],
    ),
)
"""What each way in is killed in."""
