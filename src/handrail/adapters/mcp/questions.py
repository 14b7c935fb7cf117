"""Questions to the person at an MCP client, in the middle of a call: approvals, and what a handler asks.

A call that has a question is undone, and made again with the answer, under the same identity. How the client is asked:

| the client | the question |
|---|---|
| speaks 2026-07-28 and has elicitation | is the result (`InputRequiredResult`), and the client makes the call again |
| is older, and has elicitation | is a request to it, in the call |
| has no elicitation | is a failed call; `handrail approvals answer` answers it, and the call is made again |

What the client carries from round to round is sealed: the identity of the call, and the answers so far. The seal binds
it to the tool, the arguments and the principal, by a key that is derived from that of the store, so that it holds after
a restart. An answer is the word of the client that a person has agreed.
"""

from __future__ import annotations

import hmac
import json
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, Final, Literal, cast

import mcp_types as t
from mcp.server.request_state import RequestStateBoundary, RequestStateSecurity
from mcp.shared.exceptions import MCPError
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import ValidationError

from handrail.adapters.mcp.content import fault_finder
from handrail.errors import CallPostponed, ToolValidationError
from handrail.prompt import Approval, ApprovalRequest
from handrail.redaction import redacted
from handrail.serde import digest, dump
from handrail.serde.formatting import shorten
from handrail.session.calls import CallRef

_DAY: Final = 86_400.0
_MOST_SHOWN: Final = 2_000  # characters of arguments in a question
_APPROVAL_FORM: Final[Mapping[str, Any]] = {
    "type": "object",
    "properties": {
        "approve": {"type": "boolean", "title": "Approve", "description": "Whether the call runs"},
        "reason": {"type": "string", "title": "Reason", "description": "For the model, if it does not run"},
    },
    "required": ["approve"],
}

Action = Literal["accept", "decline", "cancel"]
"""What a person has done with a question: answered it, refused to, or closed it."""


@dataclass(frozen=True, slots=True)
class ClientAnswer:
    """An answer of the person at the client; `content` has the fields that were asked for, if it is accepted."""

    action: Action
    content: Mapping[str, Any] = field(default_factory=dict[str, Any])


@dataclass(frozen=True, slots=True)
class ClientQuestion:
    """A question to the person at the client.

    Attributes:
        message: the text.
        schema: the JSON Schema of the answer: an object whose properties are scalars.
        about: distinguishes questions of the same text.
    """

    message: str
    schema: Mapping[str, Any]
    about: str = ""

    @property
    def id(self) -> str:
        """Identifies the question in the rounds of a call."""
        return digest([self.message, self.schema, self.about])[:16]

    @property
    def params(self) -> t.ElicitRequestFormParams:
        """The question as MCP has it."""
        return t.ElicitRequestFormParams(message=self.message, requested_schema=dict(self.schema))


Report = Callable[[float, float | None, str | None], None]
"""Sends the progress of a call to its client, from any thread."""


@dataclass(slots=True)
class ClientCall:
    """One call of a client while it is answered.

    Attributes:
        ref: its identity.
        answers: the answers to its questions so far, by their ids.
        report: sends its progress.
    """

    ref: CallRef
    answers: dict[str, ClientAnswer]
    report: Report | None = None

    @property
    def state(self) -> str:
        """What the client brings back with the next round."""
        return json.dumps([self.ref.reply, {name: dump(answer) for name, answer in self.answers.items()}])


CLIENT_CALL: Final[ContextVar[ClientCall | None]] = ContextVar("handrail_mcp_call", default=None)
"""The call of a client that is answered here."""


def has_request_span(call: CallRef) -> bool:
    """True if the SDK has opened a span for a call: it does for each request of a client."""
    current = CLIENT_CALL.get()
    return current is not None and current.ref == call


def read_state(params: t.CallToolRequestParams) -> tuple[str, dict[str, ClientAnswer]] | None:
    """The identity of a call and its answers, of the rounds before and of this one; `None` in the first round."""
    if not params.request_state:
        return None
    reply, answers = cast("tuple[str, dict[str, Any]]", json.loads(params.request_state))  # it was sealed
    read = {name: ClientAnswer(**answer) for name, answer in answers.items()}
    for name, response in (params.input_responses or {}).items():
        if isinstance(response, t.ElicitResult):
            read[name] = parse_answer(response)
    return reply, read


def parse_answer(result: t.ElicitResult) -> ClientAnswer:
    """An answer, as the client has sent it."""
    return ClientAnswer(result.action, dict(result.content or {}))


def ask_client(message: str, schema: Mapping[str, Any]) -> ClientAnswer:
    """Asks the person at the MCP client, in a handler; the call is undone, and runs again with the answer.

    So it asks before it does anything that cannot be undone.

    Args:
        message: the question.
        schema: the JSON Schema of the answer: an object whose properties are strings, numbers, booleans or choices.

    Raises:
        CallPostponed: there is no answer yet. It must not be caught.
        ToolValidationError: the call was not made by an MCP client, or the answer does not fit the schema.
    """
    if (call := CLIENT_CALL.get()) is None:
        raise ToolValidationError("only a call of an MCP client can ask the person there")
    question = ClientQuestion(message, schema)
    if (answer := call.answers.get(question.id)) is not None:
        if answer.action == "accept" and (fault := fault_finder(schema)(answer.content)):
            raise ToolValidationError(f"the answer of the person does not fit the question: {fault}. Ask again.")
        return answer
    postponed = CallPostponed(f"it asks: {message}")
    postponed.question = question
    raise postponed


def question_in(postponed: CallPostponed) -> ClientQuestion | None:
    """The question of a call that waits; `None` if it waits for something else."""
    question: object = postponed.question
    if isinstance(question, ApprovalRequest):
        return _approval_question(question)
    return question if isinstance(question, ClientQuestion) else None


def _approval_question(request: ApprovalRequest) -> ClientQuestion:
    tool = request.tool
    arguments: object = tool.masking.mask(dump(request.params)) if request.params is not None else {}
    texts = "; ".join(question.text for question in request.questions)
    excerpt = shorten(json.dumps(arguments, ensure_ascii=False), _MOST_SHOWN)
    return ClientQuestion(redacted(f"May {tool.name} run with {excerpt}? ({texts})"), _APPROVAL_FORM, f"{request.call}")


def leave_open(request: ApprovalRequest) -> Approval:
    """The approver of a server that has no other: the person at the client is asked."""
    return Approval.later(f"{request.tool.name} waits for approval")


def client_approval(request: ApprovalRequest) -> Approval | None:
    """The answer of the person at the client to the question about a call; `None` if it is open."""
    call = CLIENT_CALL.get()
    answer = None if call is None else call.answers.get(_approval_question(request).id)
    if answer is None or answer.action == "cancel":
        return None
    reason = answer.content.get("reason")
    is_approved = answer.action == "accept" and answer.content.get("approve") is True
    return Approval(is_approved, reason if isinstance(reason, str) else "")


def is_modern(version: str) -> bool:
    """True if a client of this protocol version repeats a call with the answers to its questions."""
    return version in MODERN_PROTOCOL_VERSIONS


def can_ask(capabilities: t.ClientCapabilities | None) -> bool:
    """True if a client has declared that it shows questions."""
    return capabilities is not None and capabilities.elicitation is not None


async def ask_in_call(context: Any, question: ClientQuestion) -> ClientAnswer:  # noqa: ANN401 - the SDK's, of a request
    """Asks the person at an older client, in the call; what does not answer has closed it."""
    try:
        result = await context.session.elicit_form(question.message, dict(question.schema), context.request_id)
    except (MCPError, ValidationError):
        return ClientAnswer("cancel")
    return parse_answer(result)


def sealed(key: bytes, audience: str) -> RequestStateBoundary:
    """The seal of what clients carry; `key` is that of the store."""
    own = hmac.digest(key, b"handrail mcp request state", "sha256")
    return RequestStateBoundary(RequestStateSecurity(keys=[own], ttl=_DAY), default_audience=audience)
