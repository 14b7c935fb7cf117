"""What a person, or a rule of the program, is asked when a policy says `ask`, and what the answer is."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from handrail.prompt.tool_definition import Tool
from handrail.session.calls import CallRef


@dataclass(frozen=True, slots=True)
class PolicyQuestion:
    """What one policy wants to have asked.

    Attributes:
        policy: name of the policy.
        text: the question.
    """

    policy: str
    text: str


@dataclass(frozen=True, slots=True)
class ApprovalRequest:
    """A call that waits for approval. Nothing has run, and nothing is open while the answer is awaited.

    Attributes:
        call_id: the id of the call.
        tool: the tool that is called.
        params: its parsed arguments.
        questions: what the policies want to have asked; there is at least one.
        session_id: the session of the call.
        reply: the reply of the model that asked for the call; `None` if the program did not say.
    """

    call_id: str
    tool: Tool[Any, Any]
    params: Any
    questions: tuple[PolicyQuestion, ...]
    session_id: str
    reply: str | None = None

    @property
    def call(self) -> CallRef:
        """The identity of the call within its session."""
        return CallRef(self.reply, self.call_id)


@dataclass(frozen=True, slots=True)
class Approval:
    """The answer.

    Attributes:
        approved: whether the call may run.
        reason: what the model is told when it may not; may be empty.
        final: for a no, whether the same call, asked again, is refused without being judged again; `False` if nobody
            has decided.
    """

    approved: bool
    reason: str = ""
    final: bool = True


Approver = Callable[[ApprovalRequest], Approval | bool | Awaitable[Approval | bool]]
"""Answers requests: a plain function, or an `async` one.

One that raises refuses the call, which is judged again when it is asked again; with `CallPostponed` it puts the call
off, which is undone and made again later.
"""
