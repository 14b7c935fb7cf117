"""Questions of policies as deferred requests of PydanticAI: the caller of the run answers them.

| a call that a policy asks about | is |
|---|---|
| with an answer that a person has recorded in the store | run, or refused |
| that the approver of the executor, if there is one, answers now | run, or refused |
| in `DeferredToolResults` with `ToolApproved` | run, with the `override_args` of the answer if it has some |
| in `DeferredToolResults` with `ToolDenied` | answered by PydanticAI; `outside_answers` has its record |
| else | a deferred request: `DeferredToolRequests.approvals`, with the reason in `metadata` |
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from copy import copy
from dataclasses import replace
from types import UnionType
from typing import Any, Final, Literal, Union, cast, get_args, get_origin

from pydantic_ai import DeferredToolRequests, RunContext
from typing_extensions import override  # a dependency of pydantic; in `typing` since Python 3.12

from handrail.adapters.tool_executor import ToolExecutor
from handrail.errors import CallPostponed, InvalidArgumentError
from handrail.prompt import Approval, ApprovalRequest
from handrail.session.calls import CallRef

OnAsk = Literal["deny", "defer"]
"""What a policy's question becomes without an approver: the call is refused, or is a deferred request."""

MADE_AGAIN: Final[Mapping[str, str]] = {"handrail": "made again"}
"""The metadata of a call that is made again without having been approved."""

_ASKED: ContextVar[tuple[RunContext[Any], CallRef] | None] = ContextVar("handrail_asked_by_pydantic_ai", default=None)


@contextmanager
def asked_by(ctx: RunContext[Any], call: CallRef) -> Generator[None]:
    """Let `caller_answer` know in the block for which call PydanticAI has given a run context."""
    token = _ASKED.set((ctx, call))
    try:
        yield
    finally:
        _ASKED.reset(token)


def with_caller_answers(executor: ToolExecutor) -> ToolExecutor:
    """The same run, in which `ToolApproved` answers a question that the approver leaves open.

    Not that of an agent file, where every call that the gate has decided about is made again so, denied ones too.
    """
    environment = executor.environment
    if environment.approver is None or environment.records_questions or environment.caller_answer is caller_answer:
        return executor
    other = copy(executor)
    other.environment = replace(environment, caller_answer=caller_answer)
    return other


def caller_answer(request: ApprovalRequest) -> Approval | None:
    """What the caller of the run has said about a call with `DeferredToolResults`; `None` if that is not an approval.

    PydanticAI answers a denied call itself.
    """
    found = _ASKED.get()
    # An approval of a call is none of the calls that its handler makes.
    if found is not None and found[1] == request.call and _is_approved(found[0]):
        return Approval(approved=True)
    return None


async def defer_question(request: ApprovalRequest) -> Approval:
    """The approver that leaves every question to the caller of the run."""
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
            value="defer",
            expected="'deny', or an agent that may return deferred requests: "
            "Agent(..., output_type=[str, DeferredToolRequests])",
        )


def unanswerable(left_open: Sequence[CallPostponed], output_type: object) -> InvalidArgumentError:
    """The error of a run that cannot return the questions that its approver has left open.

    Args:
        left_open: the calls that wait.
        output_type: that of the agent.
    """
    requests = [waits.question for waits in left_open if isinstance(waits.question, ApprovalRequest)]
    tools = ", ".join(dict.fromkeys(request.tool.name for request in requests))
    # The agent's own permits them, so that of the run has taken its place; PydanticAI does not hand that one out.
    of_run = _has_deferred(output_type)
    cure = "or ask for no other output_type in the run" if of_run else "or the approver must answer"
    return InvalidArgumentError(
        function="Agent.run" if of_run else "Agent",
        argument="output_type",
        value=RunOutputType() if of_run else output_type,
        expected=f"[str, DeferredToolRequests], because a question about {tools} was left open, which the run must be "
        f"able to return; {cure}. The call is not recorded, and can be made again",
    )


class RunOutputType:
    """The output type of a run, which is not known here."""

    @override
    def __repr__(self) -> str:
        return "one without DeferredToolRequests"


def _has_deferred(output_type: object) -> bool:
    if isinstance(output_type, list | tuple):
        return any(map(_has_deferred, cast("Sequence[object]", output_type)))
    if get_origin(output_type) in {Union, UnionType}:
        return any(map(_has_deferred, get_args(output_type)))
    return output_type is DeferredToolRequests
