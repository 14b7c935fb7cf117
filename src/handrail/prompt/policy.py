"""Policies, which judge a call before it runs: `ToolPolicy` and its answer, `PolicyDecision`.

When a policy returns `ask`, a person or a rule of the program receives an `ApprovalRequest` and answers with an
`Approval`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from types import MappingProxyType
from typing import Any, Literal, Protocol, get_args

from handrail.errors import PromptValidationError
from handrail.errors.developer import InvalidArgumentError, check_argument
from handrail.prompt.context import ToolContext
from handrail.prompt.tool_definition import Tool
from handrail.prompt.tool_result import ToolResult
from handrail.session import Session, stored_as
from handrail.session.calls import CallRef

_Verdict = Literal["allow", "deny", "ask"]


@dataclass(frozen=True, slots=True)
class PolicyDecision:
    """The decision of a policy on a call. Created by `allow`, `deny` and `ask`.

    Attributes:
        reason: for `"deny"`, the message for the model: what is wrong, and what to do first; for `"ask"`, the question
            to the approver; empty for `"allow"`.
        final: whether a repeat of the same call is denied without being judged again.

    Raises:
        InvalidArgumentError: the verdict is unknown.
    """

    verdict: _Verdict
    reason: str = ""
    final: bool = True

    def __post_init__(self) -> None:
        # A verdict that is none of these would be neither a denial nor a question, so the call would run.
        if self.verdict not in get_args(_Verdict):
            expected = "PolicyDecision.allow(), PolicyDecision.deny(reason) or PolicyDecision.ask(question)"
            raise InvalidArgumentError(
                function="PolicyDecision", argument="verdict", value=self.verdict, expected=expected
            )

    @staticmethod
    def allow() -> PolicyDecision:
        """Allows the call."""
        return _ALLOW

    @staticmethod
    def deny(reason: str, *, final: bool = True) -> PolicyDecision:
        """Refuses the call; the model reads the reason: what is wrong, and what to do first.

        Args:
            reason: the text for the model.
            final: `False` if the cause may be temporary, so that a repeat of the same call is judged again.

        Raises:
            ValueError: the reason is blank.
        """
        if not reason.strip():
            raise ValueError("deny needs a reason, which says to the model what to do instead")
        return PolicyDecision("deny", reason, final)

    @staticmethod
    def ask(question: str) -> PolicyDecision:
        """Requires approval; without an approver, the call is refused.

        Raises:
            ValueError: the question is blank.
        """
        if not question.strip():
            raise ValueError("ask needs the question that the person is asked")
        return PolicyDecision("ask", question)

    @property
    def allowed(self) -> bool:
        """Returns whether the call is allowed without approval."""
        return self.verdict == "allow"


# One object for all, because nearly every call is allowed by every policy.
_ALLOW = PolicyDecision("allow")


class ToolPolicy(Protocol):
    """Judges the calls of all tools in the section that carries it and in the sections below.

    A policy is immutable. Its state is a STATE slice of `context.session`, which is rolled back with the call. It may
    have more methods:

    - `may_block(tool, session) -> bool`: whether `check` or `on_result` may take long, as one that reads files. On an
      event loop, these calls run on a thread of their own, which costs about 0.1 ms.
    - `scope_fault(tool_names: frozenset[str]) -> str | None`: the fault of its position, when a prompt is built.
    - `needs(tool) -> Iterable[type]`: resources without which it cannot judge a tool; a run whose prompt does not
      bind all of them is refused when it starts.
    """

    @property
    def name(self) -> str:
        """The name of the policy, for the model and for people; unique among the policies of a tool."""
        ...

    def check(self, tool: Tool[Any, Any], params: Any, *, context: ToolContext) -> PolicyDecision:  # noqa: ANN401 - the tool's
        """Judges a call whose arguments have been parsed. Nothing has run yet, and nothing may be written here.

        Called when the call has its turn, and once more for a concurrent call that was denied. A policy that raises
        denies the call; the exception is logged.
        """
        ...

    def on_result(self, tool: Tool[Any, Any], params: Any, result: ToolResult[Any], *, context: ToolContext) -> None:  # noqa: ANN401 - the tool's
        """Handles a success, within the call; a policy that raises fails the call, which is rolled back.

        Writes to the session are rolled back with the call. Not called for a failure.
        """
        ...


def policy_may_block(policy: ToolPolicy, tool: Tool[Any, Any], session: Session) -> bool:
    """Returns whether `check` or `on_result` of a policy may take long for a tool; see `ToolPolicy`."""
    # Not `isinstance`, which takes ten microseconds for a protocol in Python 3.11: each policy is asked in each call.
    answer: Callable[[Tool[Any, Any], Session], bool] | None = getattr(policy, "may_block", None)
    return answer is not None and answer(tool, session)


@dataclass(frozen=True, slots=True)
class PolicyQuestion:
    """A question of one policy."""

    policy: str
    text: str


@dataclass(frozen=True, slots=True)
class ApprovalRequest:
    """A call that waits for approval. Nothing has run, and no transaction is open while the answer is awaited.

    Attributes:
        params: its parsed arguments.
        questions: at least one.
        reply: the reply of the model that asked for the call; `None` if it was not given.
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
    """The answer to an approval request: `Approval(True)`, `Approval(False, "too dear")`, or `Approval.later()`.

    Attributes:
        reason: the reason of a refusal, for the model, or why the question is left open; may be empty.
        final: for a refusal, whether a repeat of the same call is refused without being judged again.
        left_open: whether the question is left open: the call waits, and nothing of it is run or recorded.

    Raises:
        InvalidArgumentError: `approved`, `final` or `left_open` is not a boolean, `reason` is not text, or a question
            that is left open is approved.
    """

    approved: bool
    reason: str = ""
    final: bool = True
    left_open: bool = False

    @staticmethod
    def later(reason: str = "") -> Approval:
        """Leaves the question open: the call waits until its reply is answered again.

        Args:
            reason: what it waits for, for people: "the desk is asked".
        """
        return Approval(approved=False, reason=reason, final=False, left_open=True)

    def __post_init__(self) -> None:
        # Only a boolean: any text is true, so `Approval("no")` would approve.
        check_argument("Approval", "reason", self.reason, str, "text")
        for flag in ("approved", "final", "left_open"):
            check_argument("Approval", flag, getattr(self, flag), bool, "True or False")
        if self.left_open and self.approved:
            expected = "False for a question that is left open: Approval.later()"
            raise InvalidArgumentError(function="Approval", argument="approved", value=True, expected=expected)


Approver = Callable[[ApprovalRequest], Approval | bool | Awaitable[Approval | bool]]
"""Answers requests: a plain function, or an `async` one.

An approver that raises refuses the call; a repeat is judged again. `CallPostponed` means the same as
`Approval.later()`. An exception that is not an `Exception`, such as `KeyboardInterrupt`, leaves the question open too,
and is raised.
"""


def check_approver(function: str, approver: object) -> None:
    """Checks an approver; `None` means no approver.

    Raises:
        InvalidArgumentError: it cannot be called, or is a class, whose instance would count as approval.
    """
    if approver is not None and (isinstance(approver, type) or not callable(approver)):
        expected = "a function of an ApprovalRequest that returns True, False or an Approval, or None"
        raise InvalidArgumentError(function=function, argument="approver", value=approver, expected=expected)


@stored_as("handrail.tool_succeeded")
@dataclass(frozen=True, slots=True)
class ToolSucceeded:
    """A tool that others depend on has succeeded in this session. One for each such tool, in a STATE slice."""

    tool: str


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SequentialDependencyPolicy:
    """A tool runs only when the tools it depends on have succeeded in the session, each at least once.

    Its state is the slice of `ToolSucceeded`: a success that is rolled back does not count, and all policies of this
    type in a session share it.

    Attributes:
        dependencies: for each dependent tool, the names of the tools that must have succeeded before. All of them must
            be declared in the section with the policy, or below it.

    Raises:
        PromptValidationError: the dependencies are circular.
    """

    dependencies: Mapping[str, frozenset[str]]
    name: str = "sequential_dependency"

    def __post_init__(self) -> None:
        dependencies = {tool: frozenset(needed) for tool, needed in self.dependencies.items()}
        try:
            # Sorted: the same dependencies give the same message, whatever the order of their sets.
            TopologicalSorter({tool: sorted(dependencies[tool]) for tool in sorted(dependencies)}).prepare()
        except CycleError as error:
            circle = " -> ".join(reversed(error.args[1]))
            raise PromptValidationError(
                f"policy {self.name}: these tools wait for each other, so none could ever run: {circle}."
            ) from None
        object.__setattr__(self, "dependencies", MappingProxyType(dependencies))

    def check(self, tool: Tool[Any, Any], params: object, *, context: ToolContext) -> PolicyDecision:  # noqa: ARG002 - the protocol's
        """Allows the tool if everything it depends on has succeeded; a refusal lists what has not."""
        if not (needed := self.dependencies.get(tool.name)):
            return PolicyDecision.allow()
        # Sorted: the same state gives the same message in every process, whatever the order of its sets.
        missing = sorted(needed.difference(done.tool for done in context.session[ToolSucceeded].all()))
        if not missing:
            return PolicyDecision.allow()
        return PolicyDecision.deny(
            f"{tool.name} must wait until {_join_names(missing)} {'has' if len(missing) == 1 else 'have'} succeeded. "
            f"Call {_join_names(missing)} first, then {tool.name} again."
        )

    def on_result(self, tool: Tool[Any, Any], params: object, result: ToolResult[Any], *, context: ToolContext) -> None:  # noqa: ARG002 - the protocol's
        """Records the success of a tool that others depend on."""
        if not any(tool.name in needed for needed in self.dependencies.values()):
            return
        succeeded = context.session[ToolSucceeded]
        # One item for each tool, so that the slice does not grow with the calls.
        if not succeeded.where(lambda done: done.tool == tool.name):
            succeeded.append(ToolSucceeded(tool.name))

    def scope_fault(self, tool_names: frozenset[str]) -> str | None:
        """The fault if the policy does not apply to all tools of the dependencies."""
        names = frozenset(self.dependencies).union(*self.dependencies.values())
        missing = sorted(names - tool_names)
        if not missing:
            return None
        return (
            f"its dependencies name {_join_names(missing)}, but the section with the policy, and those below it, "
            f"declare {', '.join(sorted(tool_names)) or 'no tools'}. Put the policy on a section that contains them "
            "all."
        )


def _join_names(names: list[str]) -> str:
    *others, last = names
    return f"{', '.join(others)} and {last}" if others else last
