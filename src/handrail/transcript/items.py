"""The values of a transcript: what was said, which calls were made, and where a conversation was replaced.

A transcript is a sequence of `TranscriptItem`. A message comes before the calls that it asks for, and these come in the
order in which they were asked for.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Literal, NamedTuple, TypeAlias

from handrail.session.calls import CallRef
from handrail.session.conversation import Speaker

BlockKind: TypeAlias = Literal["text", "thinking", "refusal", "data"]
"""What a block of a message is: text, the reasoning of the model, its refusal to answer, or JSON of another form."""

CallOutcome: TypeAlias = Literal[
    "ok", "refused", "failed", "unknown", "unapplied", "running", "waiting", "answered", "open"
]
"""The outcome of a call.

| outcome | means |
|---|---|
| `"ok"` | it succeeded |
| `"refused"` | it failed before its handler was started |
| `"failed"` | it failed later, and was rolled back |
| `"unknown"` | its effect may have happened |
| `"unapplied"` | its effect has happened, and the session has not applied the result |
| `"running"` | a process has claimed its effect |
| `"waiting"` | it waits for an approval |
| `"answered"` | the conversation answers it, and it has no record: it was not made by Handrail |
| `"open"` | it has neither a record nor an answer |
"""

BreakKind: TypeAlias = Literal["restarted", "removed"]
"""A conversation begins anew in the place of an earlier one; or parts of conversations were removed."""


class ConversationId(NamedTuple):
    """Whose conversation of a session it is.

    Attributes:
        speaker: the program's own loop, an agent, or a prompt.
        name: the agent or prompt; empty for the program's own loop.
    """

    speaker: Speaker
    name: str = ""


@dataclass(frozen=True, slots=True)
class MessageBlock:
    """A piece of a message.

    Attributes:
        kind: what it is.
        text: its text; for `"data"` JSON on one line.
    """

    kind: BlockKind
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TranscriptMessage:
    """A message, and who says it. The messages of one role that follow each other are one.

    Attributes:
        conversation: the conversation.
        role: who said it, in the word of the provider: `"user"`, `"assistant"`, `"system"`, and others.
        blocks: what was said, in order; empty if the message only asks for calls.
        at: when it was appended; `None` if that is not known.
    """

    conversation: ConversationId
    role: str
    blocks: tuple[MessageBlock, ...] = ()
    at: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ApprovalWait:
    """A call has waited for an approval, or was decided on by a person at once.

    Attributes:
        duration: how long it waited; `None` if it was decided at once, or that is not known.
        by: who has decided; empty if that is not known.
        approved: what was decided; `None` as long as it waits.
        since: when it was asked; `None` if that is not known.
    """

    duration: timedelta | None = None
    by: str = ""
    approved: bool | None = None
    since: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TranscriptCall:
    """A call and its outcome.

    Attributes:
        conversation: the conversation that asks for it; `None` if no message of the session does.
        call: the identity of the call.
        tool: the tool, as the model wrote it.
        arguments: as the model wrote them, decoded, with secrets masked; text if they are not JSON.
        outcome: whether it succeeded, and why not.
        content: what the model reads of it; empty if there is nothing yet.
        seconds: how long it took, waiting included; `None` without a record.
        replayed: whether the result comes from the ledger.
        at: when it ended; `None` without a record.
        wait: what it waited for, if it needed an approval of a person; else `None`.
        owner: the process that has claimed its effect, in words; empty unless `"running"`.
        key: the key of its effect, as long as the ledger has not settled it; else empty.
        has_effect: whether it has claimed an effect: of that nothing is rolled back, and a person may have settled it.
        child: the session of the agent that it calls; empty if it calls none.
        nested: the calls that its handler has made, in the order in which they ended.
    """

    conversation: ConversationId | None = None
    call: CallRef
    tool: str
    arguments: Any = None
    outcome: CallOutcome = "open"
    content: str = ""
    seconds: float | None = None
    replayed: bool = False
    at: datetime | None = None
    wait: ApprovalWait | None = None
    owner: str = ""
    key: str = ""
    has_effect: bool = False
    child: str = ""
    nested: Sequence[TranscriptCall] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class TranscriptBreak:
    """A conversation begins anew, or parts of conversations were removed.

    Attributes:
        conversation: the conversation; `None` for all of the session.
        kind: which of both.
        count: how many messages the new conversation repeats, which are not shown again; or how many parts were
            removed.
        at: when; `None` if that is not known.
    """

    conversation: ConversationId | None
    kind: BreakKind
    count: int = 0
    at: datetime | None = None


TranscriptItem: TypeAlias = TranscriptMessage | TranscriptCall | TranscriptBreak
"""An item of a transcript."""
