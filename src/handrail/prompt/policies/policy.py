"""What judges a call before it runs: `ToolPolicy` and its answer, `PolicyDecision`.

Handrail brings two policies, in `handrail.prompt.policies.sequential_dependency` and
`handrail.prompt.policies.read_before_write`.

When a policy says `ask`, a person or a rule of the program is asked (`ApprovalRequest`), and answers (`Approval`).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Literal, Protocol, cast, runtime_checkable

from handrail.errors import PromptValidationError
from handrail.errors.developer import InvalidArgumentError, check_argument
from handrail.prompt.context import ToolContext
from handrail.prompt.signature import calling_fault, is_async, return_fault
from handrail.prompt.tool_definition import Tool
from handrail.prompt.tool_result import ToolResult
from handrail.session.calls import CallRef

_VERDICTS = ("allow", "deny", "ask")


@dataclass(frozen=True, slots=True)
class PolicyDecision:
    """What a policy says about a call. Made by `allow`, `deny` and `ask`.

    Attributes:
        verdict: whether the call may go on, may not, or may if a person says so.
        reason: for `"deny"`, what the model is told: what is wrong, and what to do first; for `"ask"`, the question
            that the person is asked; empty for `"allow"`.
        final: whether the same call, asked again, is denied without being judged again.

    Raises:
        InvalidArgumentError: there is no such verdict.
    """

    verdict: Literal["allow", "deny", "ask"]
    reason: str = ""
    final: bool = True

    def __post_init__(self) -> None:
        if self.verdict not in _VERDICTS:
            expected = "PolicyDecision.allow(), PolicyDecision.deny(reason) or PolicyDecision.ask(question)"
            raise InvalidArgumentError(
                function="PolicyDecision", argument="verdict", given=self.verdict, expected=expected
            )

    @staticmethod
    def allow() -> PolicyDecision:
        """Let the call go on."""
        return _ALLOW

    @staticmethod
    def deny(reason: str, *, final: bool = True) -> PolicyDecision:
        """Refuse the call; the model reads the reason.

        Args:
            reason: what is wrong, and what to do first.
            final: `False` if the cause may pass, so that the same call is judged again when it is asked again.

        Raises:
            ValueError: there is no reason.
            InvalidArgumentError: it is not text.
        """
        return PolicyDecision(
            "deny", _not_blank("reason", reason, "deny needs a reason, which tells the model what to do instead"), final
        )

    @staticmethod
    def ask(question: str) -> PolicyDecision:
        """Let a person decide; without anybody to ask, the call is refused.

        Raises:
            ValueError: there is no question.
            InvalidArgumentError: it is not text.
        """
        return PolicyDecision(
            "ask", _not_blank("question", question, "ask needs the question that the person is asked")
        )

    @property
    def allowed(self) -> bool:
        """Whether the call may go on without further ado."""
        return self.verdict == "allow"


_ALLOW = PolicyDecision("allow")


def _not_blank(argument: str, text: str, fault: str) -> str:
    function = "PolicyDecision.deny" if argument == "reason" else "PolicyDecision.ask"
    check_argument(function, argument, text, str, "text that is not blank")
    if not text.strip():
        raise ValueError(fault)
    return text


class ToolPolicy(Protocol):
    """Judges the calls of all tools in the section that carries it and in the sections below.

    A policy is a value. What it has to remember, it keeps in a STATE slice of `context.session`, so that its memory of
    a call goes when the call is rolled back.
    """

    @property
    def name(self) -> str:
        """Names the policy to the model and to people; no two in reach of one tool have the same."""
        ...

    def check(
        self,
        tool: Tool[Any, Any],
        params: Any,  # noqa: ANN401 - an instance of the tool's parameter type
        *,
        context: ToolContext,
    ) -> PolicyDecision:
        """Judge a call whose arguments have been parsed; nothing has run yet, and nothing may be written here.

        Called when the call's turn has come, and once more for a call that runs beside others and was denied. A policy
        that raises denies the call; the exception is logged.
        """
        ...

    def on_result(
        self,
        tool: Tool[Any, Any],
        params: Any,  # noqa: ANN401 - as above
        result: ToolResult[Any],
        *,
        context: ToolContext,
    ) -> None:
        """Take note of a success, within the call: what is written to the session here is undone with it.

        Not called for a failure. A policy that raises fails the call, and it is rolled back.
        """
        ...


@runtime_checkable
class MayBlock(Protocol):
    """A policy that may take long to judge some calls, because it reads files, say.

    Where there is an event loop, its `check` and `on_result` for these calls run on a thread of their own, as a `def`
    handler does, and the loop goes on. Such a thread costs some 0.1 ms a call.
    """

    def may_block(self, tool: Tool[Any, Any]) -> bool:
        """Whether judging a call of this tool, or taking note of its success, may take long."""
        ...


@runtime_checkable
class ChecksScope(Protocol):
    """A policy that can tell whether it makes sense where it stands; a prompt asks it when it is built."""

    def scope_fault(self, tool_names: frozenset[str]) -> str | None:
        """What is wrong with a policy whose reach is the tools of these names; `None` if nothing is."""
        ...


@runtime_checkable
class ChecksTools(Protocol):
    """A policy that can tell whether it can judge a tool; a prompt asks it about each in its reach when it is built."""

    def fault_of_tool(self, tool: Tool[Any, Any]) -> str | None:
        """What is wrong with a tool for this policy; `None` if nothing is."""
        ...


def check_policy(policy: object) -> ToolPolicy:
    """The policy, if it is one.

    Raises:
        PromptValidationError: it has no name, or lacks a method, or has one that cannot be called as it will be.
    """
    kind = type(policy).__name__
    name = getattr(policy, "name", None)
    if isinstance(policy, type) or not isinstance(name, str) or not name.strip():
        raise PromptValidationError(
            f"{policy!r} is no policy, because it has no name: a policy is an object with a `name` (a string), "
            "`check(tool, params, *, context)` and `on_result(tool, params, result, *, context)`."
        )
    for method, positional in (("check", (Tool, Any)), ("on_result", (Tool, Any, ToolResult))):
        function = getattr(policy, method, None)
        if not callable(function):
            raise PromptValidationError(f"policy {name} ({kind}) has no method {method}; see ToolPolicy.")
        fault = calling_fault(function, positional, {"context": ToolContext})
        if fault is None and is_async(function):
            fault = "is asynchronous, but a policy answers at once; what must be awaited belongs in the handler"
        if fault is not None:
            raise PromptValidationError(f"policy {name} ({kind}): {method} {fault}. See ToolPolicy.")
    return cast("ToolPolicy", policy)  # it has just been seen to be one


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

    Raises:
        InvalidArgumentError: `approved` or `final` is not a boolean, or `reason` is not text.
    """

    approved: bool
    reason: str = ""
    final: bool = True

    def __post_init__(self) -> None:
        check_argument("Approval", "approved", self.approved, bool, "True or False")
        check_argument("Approval", "reason", self.reason, str, "text")
        check_argument("Approval", "final", self.final, bool, "True or False")


Approver = Callable[[ApprovalRequest], Approval | bool | Awaitable[Approval | bool]]
"""Answers requests: a plain function, or an `async` one.

One that raises refuses the call, which is judged again when it is asked again; with `CallPostponed` it puts the call
off, which is undone and made again later.
"""


def check_approver(function: str, approver: object) -> None:
    """Refuse what cannot answer a request; `None` stands for no approver.

    Args:
        function: what it was given to, as it is imported: `"ToolExecutor"`.
        approver: what was given.

    Raises:
        InvalidArgumentError: it cannot be called with an `ApprovalRequest`, or is annotated to return something else
            than an answer. A class is not an approver: calling it makes an instance, which would be taken for a yes.
    """
    if approver is None:
        return
    fault = None
    if callable(approver) and not isinstance(approver, type):
        fault = calling_fault(approver, (ApprovalRequest,), {}) or return_fault(approver, (bool, Approval))
        if fault is None:
            return
    expected = "a function of an ApprovalRequest that returns True, False or an Approval, or None"
    raise InvalidArgumentError(
        function=function,
        argument="approver",
        given=approver,
        expected=expected if fault is None else f"{expected}; this one {fault}",
    )
