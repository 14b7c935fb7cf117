"""Questions of policies as deferred requests of PydanticAI: the caller of the run answers them.

| a call that a policy asks about | is |
|---|---|
| with an answer that a person has recorded in the store | run, or refused |
| in `DeferredToolResults` with `ToolApproved` | run |
| in `DeferredToolResults` with `ToolDenied` | answered by PydanticAI, and not recorded: it did not reach the pipeline |
| else | a deferred request: `DeferredToolRequests.approvals`, with the reason in `metadata` |
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from types import UnionType
from typing import Any, Final, Literal, Union, cast, get_args, get_origin

from pydantic_ai import DeferredToolRequests, RunContext

from handrail.errors import InvalidArgumentError
from handrail.prompt import Approval, ApprovalRequest
from handrail.session.call_ref import CallRef

OnAsk = Literal["deny", "defer"]
"""What a policy's question becomes without an approver: the call is refused, or is a deferred request."""

MADE_AGAIN: Final[Mapping[str, str]] = {"handrail": "made again"}
"""The metadata of a call that is made again without having been approved."""

_ASKED: ContextVar[tuple[RunContext[Any], CallRef] | None] = ContextVar("handrail_asked_by_pydantic_ai", default=None)


@contextmanager
def asked_by(ctx: RunContext[Any], call: CallRef) -> Generator[None]:
    """Let `defer_question` know in the block for which call PydanticAI has given a run context."""
    token = _ASKED.set((ctx, call))
    try:
        yield
    finally:
        _ASKED.reset(token)


async def defer_question(request: ApprovalRequest) -> Approval:
    """The approver that leaves every question to the caller of the run, and takes the answer from PydanticAI."""
    found = _ASKED.get()
    # An approval of a call is none of the calls that its handler makes.
    if found is not None and found[1] == request.call and _is_approved(found[0]):
        return Approval(approved=True)
    asks = "; ".join(question.text for question in request.questions)
    return Approval.later(f"{request.tool.name} waits for approval: {asks}")


def _is_approved(ctx: RunContext[Any]) -> bool:
    return ctx.tool_call_approved and ctx.tool_call_metadata != MADE_AGAIN


def check_permits_deferred(output_type: object) -> None:
    """Refuse an agent that could not return deferred requests.

    Args:
        output_type: that of the agent.

    Raises:
        InvalidArgumentError: `DeferredToolRequests` is not in it.
    """
    if not _has_deferred(output_type):
        raise InvalidArgumentError(
            function="HandrailCapability",
            argument="on_ask",
            given="defer",
            expected="'deny', or an agent that may return deferred requests: "
            "Agent(..., output_type=[str, DeferredToolRequests])",
        )


def _has_deferred(output_type: object) -> bool:
    if isinstance(output_type, list | tuple):
        return any(map(_has_deferred, cast("Sequence[object]", output_type)))
    if get_origin(output_type) in {Union, UnionType}:
        return any(map(_has_deferred, get_args(output_type)))
    return output_type is DeferredToolRequests
