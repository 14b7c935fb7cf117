"""The policy about calls that act after the session has read untrusted content."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import partial
from typing import Any, Literal, Protocol, cast, get_args, runtime_checkable

from handrail.errors import DumpError, PromptValidationError, SchemaError
from handrail.prompt.context import ToolContext
from handrail.prompt.effect import Effect
from handrail.prompt.policies.policy import PolicyDecision
from handrail.prompt.tool_definition import Tool
from handrail.prompt.tool_result import ToolResult
from handrail.session import Session
from handrail.session.call_ref import CallRef
from handrail.session.relatives import UnopenedSession
from handrail.taint.judged_arguments import JudgedArguments
from handrail.taint.overlap import arguments_from
from handrail.taint.sanitized import are_sanitized
from handrail.taint.state import placed_taints

OnTainted = Literal["ask", "deny"]
"""What is done with a call that acts in a tainted session."""

_MOST_LISTED = 5
"""Sources that a question names, and arguments."""


@runtime_checkable
class HasResult(Protocol):
    """The record of a call, as far as its text is concerned."""

    @property
    def result(self) -> ToolResult[Any]:
        """What the handler returned."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TaintPolicy:
    """In a tainted session, a call with an external effect is asked about, or denied.

    A session is tainted once it, or a session that it works for, has read the result of a tool that is marked
    `untrusted`; see `handrail.taint.state`. The question names the sources, and the arguments that contain text of
    one of them. A call all of whose arguments are values of a sanitizer is allowed.

    Attributes:
        on_tainted: `"ask"`, or `"deny"`.
        tools: globs over the names of further tools that are judged as those with an external effect, such as those
            that read what an attacker would want to know.
        name: the name of the policy; give another one if two policies apply to one tool.

    Raises:
        PromptValidationError: `on_tainted` is another word, or `tools` is not a collection of globs.
    """

    on_tainted: OnTainted = "ask"
    tools: Iterable[str] = field(default=())
    name: str = "taint"

    def __post_init__(self) -> None:
        if self.on_tainted not in get_args(OnTainted):
            raise PromptValidationError(
                f"policy {self.name}: on_tainted is {self.on_tainted!r}; write 'ask' or 'deny'. To allow such calls, "
                "leave the policy out."
            )
        # A string is iterable: `"read_keys"` would be nine globs of one letter.
        given = cast("object", self.tools)
        if isinstance(given, str) or not isinstance(given, Iterable):
            raise PromptValidationError(f"policy {self.name}: tools is {given!r}; write tools=['read_keys'].")
        object.__setattr__(self, "tools", tuple(cast("Iterable[str]", given)))

    def guards(self, tool: str, effect: Effect) -> bool:
        """Whether the calls of a tool of that name and effect are judged in a tainted session."""
        return effect == "external" or any(fnmatchcase(tool, glob) for glob in self.tools)

    def check(self, tool: Tool[Any, Any], params: Any, *, context: ToolContext) -> PolicyDecision:  # noqa: ANN401 - the protocol's
        """Allow the call unless it acts and the session is tainted."""
        if not self.guards(tool.name, tool.effect):
            return PolicyDecision.allow()
        return self.judge(context.session, tool.name, partial(_arguments, tool, params))

    def judge(self, session: Session, tool: str, arguments: Callable[[], JudgedArguments]) -> PolicyDecision:
        """The decision on a call that is guarded.

        Args:
            session: the session of the call.
            tool: the name of the tool.
            arguments: returns the arguments; called only in a tainted session.
        """
        taints = tuple(placed_taints(session))
        if not taints:
            return PolicyDecision.allow()
        given = arguments()
        if are_sanitized(session, given):
            return PolicyDecision.allow()
        read = (
            f"the session has read untrusted content, from {_listed([each.item.provenance.origin for each in taints])}"
        )
        if self.on_tainted == "deny":
            return PolicyDecision.deny(f"{read}; {tool} does not run after that. Answer without it.")
        found = [
            f"{path} contains text of {each.item.provenance.source}"
            for each in taints
            for path in arguments_from(given, _text_of(each.reader, each.item.provenance.ref))
        ]
        return PolicyDecision.ask(f"{read}. {_listed(found) or 'No argument contains text from there'}.")

    def on_result(self, tool: Tool[Any, Any], params: Any, result: ToolResult[Any], *, context: ToolContext) -> None:  # noqa: ANN401 - the protocol's
        """Take no note: the pipeline records what a session has read."""


def _arguments(tool: Tool[Any, Any], params: object) -> JudgedArguments:
    """The arguments of a call; none if they have no JSON."""
    if params is None or isinstance(params, dict):  # a tool that is not Handrail's has them decoded
        values = cast("object", params) or {}
    else:
        try:
            values = tool.codec.dump(params)
        except (DumpError, SchemaError):
            values = {}
    return JudgedArguments(tool.masking.mask(values), tool.parameters_schema)


def _text_of(reader: Session | UnopenedSession, ref: CallRef) -> str:
    """The text that a call has brought; of a nested call, that of the call it was made in. Empty if it is unknown."""
    for call in (ref, *ref.ancestors):
        record: object = (
            reader.recorded_call(call) if isinstance(reader, UnopenedSession) else reader.recorded_call(call, own=False)
        )
        if isinstance(record, HasResult):
            return record.result.render()
    return ""


def _listed(parts: list[str]) -> str:
    parts = list(dict.fromkeys(parts))
    more = len(parts) - _MOST_LISTED
    shown = "; ".join(parts[:_MOST_LISTED])
    return f"{shown}; and {more} more" if more > 0 else shown
