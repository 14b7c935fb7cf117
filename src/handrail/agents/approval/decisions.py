"""What approval is about: a call that is judged, what the rules say of it, what a person is asked, and the answer."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal

from handrail.prompt.effect import Effect
from handrail.redaction import redacted
from handrail.session.calls import CallRef
from handrail.session.open_calls import answer_in_words

Verdict = Literal["allow", "ask", "deny"]
"""What rules say of a call. Where several apply, `deny` wins over `ask`, and `ask` over `allow`."""

ApprovalMode = Literal["ask", "approve-all", "deny-all"]
"""How questions are answered: by a person, all with yes, or all with no, and reads that no rule allows as well."""

CallKey = tuple[str, CallRef]
"""What names a call in all sessions: its session, and its identity there."""

Remember = Literal["nothing", "arguments", "rule"]
"""What an answer holds for: this call, later calls with exactly these arguments, or all that fit a rule."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GatedCall:
    """A call as it is judged: its arguments are validated, nothing has run, and nothing is open.

    Attributes:
        path: the agents that called each other, the first one first: `("desk", "research")`.
        session_id: the session of the call.
        call_id: the id of the call; with the session and the reply it names the call everywhere.
        tool: the name of the tool.
        effect: what the tool does to the world.
        origin: where the tool comes from, in words; empty if it is not known.
        arguments: the arguments that will run, as JSON has them.
        digest: names exactly these arguments, validated and as the model wrote them.
        written: the arguments as the model wrote them, decoded; `None` if that is not known. A schema and a validator
            may show the same thing under two names, so rules look at both.
        asks: what policies of the tool's sections want to have asked about this call.
        default: what the tool's own declaration says, if it says something; rules come before it, and the default for
            its effect after it. `"ask"` for a tool that PydanticAI knows to require approval.
        reply: the reply of the model that asked for the call; `None` if it was not given.
        reached: of a file tool, the paths among its arguments that lead through links to other paths, and those other
            paths, by argument; `None` if there are none. Rules look at both, and the digest names these too.
        own_tool: the name that the tool has in its section, where a prefix or another name has been given to it; empty
            where it has the same. Rules that ask or deny go by both.
        description: what the model reads of the tool; empty if it is not known.
    """

    path: tuple[str, ...]
    session_id: str
    call_id: str
    tool: str
    effect: Effect
    arguments: Mapping[str, Any]
    digest: str
    origin: str = ""
    asks: tuple[str, ...] = ()
    default: Verdict | None = None
    written: Mapping[str, Any] | None = None
    reply: str | None = None
    reached: Mapping[str, str] | None = None
    own_tool: str = ""
    description: str = ""

    @property
    def ref(self) -> CallRef:
        """The identity of the call within its session."""
        return CallRef(self.reply, self.call_id)

    @property
    def key(self) -> CallKey:
        """What names the call: its session, and its identity there."""
        return self.session_id, self.ref


@dataclass(frozen=True, slots=True)
class Judgement:
    """What the rules say of a call.

    Attributes:
        verdict: whether it may run.
        reason: the rule or default that decided, in words.
        explicit: whether a rule decided, and not a default.
        final: whether the same call is answered so from now on; not if there was no decision.
    """

    verdict: Verdict
    reason: str
    explicit: bool = False
    final: bool = True


@dataclass(frozen=True, slots=True)
class Answer:
    """What a person, or a program in their place, says to a question.

    Attributes:
        verdict: `"later"` leaves the question open: the run is stored without the call, and resumed another time.
        remember: what else the answer holds for.
        reason: for a no, what the model reads.
    """

    verdict: Literal["yes", "no", "later"]
    remember: Remember = "nothing"
    reason: str = ""


Asker = Callable[["GatedCall"], Answer | Awaitable[Answer]]
"""Asks about a call, and waits for the answer; plain (it is run on a thread) or `async`. One question at a time."""


@dataclass(frozen=True, slots=True)
class Decision:
    """What has been decided about a call. It holds for exactly the arguments that it names.

    Attributes:
        verdict: whether the call may run; `"later"` if the question is open.
        digest: the arguments that it was decided about.
        reason: why, in words; for a denial the model reads it.
        by: who decided: a rule or default, the mode, a person, an earlier answer, or `"nobody"` if no person can
            be asked.
        answered_by: who has given an answer outside of a run; empty if that is not known, and for other decisions.
        answered_at: when such an answer was given.
    """

    verdict: Literal["allow", "deny", "later"]
    digest: str
    reason: str = ""
    by: Literal["rule", "mode", "person", "remembered", "nobody"] = "rule"
    answered_by: str = ""
    answered_at: datetime | None = None

    @property
    def final(self) -> bool:
        """Whether a person or a rule has decided."""
        return self.by != "nobody"


@dataclass(frozen=True, slots=True)
class Grant:
    """An answer that holds for later calls: exactly these arguments, or every call of the tool.

    Attributes:
        tool: the tool.
        digest: the arguments; `None` for whatever fits `arguments`.
        arguments: globs by argument, for a rule; empty for every call of the tool.
        origin: where the tool comes from, in words. A tool of that name from elsewhere is another one.
        verdict: whether those calls may run.
        reason: what was said, in words; for a no the model reads it.
        asks: what policies asked when these arguments were allowed: a yes answers nothing else that they ask.
    """

    tool: str
    digest: str | None
    arguments: Mapping[str, str] = field(default_factory=dict[str, str])
    origin: str = ""
    verdict: Literal["allow", "deny"] = "allow"
    reason: str = ""
    asks: tuple[str, ...] = ()


def decision_of(
    call: GatedCall, answer: Answer, *, by: str = "", at: datetime | None = None
) -> tuple[Decision, Grant | None]:
    """What a yes or a no to the question about a call decides, and what it holds for beside the call.

    Args:
        call: the call.
        answer: the answer.
        by: who has given it outside of a run.
        at: when.
    """
    verdict: Literal["allow", "deny"] = "allow" if answer.verdict == "yes" else "deny"
    reason = redacted(answer_in_words(answer.verdict == "yes", answer.reason))
    grant = None
    if answer.remember != "nothing":
        digest = call.digest if answer.remember == "arguments" else None
        # A yes for the whole tool is given without knowing what a policy would ask about other arguments.
        asks = () if digest is None or verdict == "deny" else call.asks
        grant = Grant(call.tool, digest, origin=call.origin, verdict=verdict, reason=reason, asks=asks)
    return Decision(verdict, call.digest, reason, "person", by, at), grant
