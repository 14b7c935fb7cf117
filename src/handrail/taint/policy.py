"""The policy about calls that act after the session has read untrusted content."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from functools import partial
from typing import Any, Literal, cast, get_args

from handrail.errors import DumpError, PromptValidationError, SchemaError
from handrail.prompt.context import ToolContext
from handrail.prompt.policies.policy import PolicyDecision
from handrail.prompt.tool_definition import Tool
from handrail.prompt.tool_result import ToolResult
from handrail.serde.formatting import shorten
from handrail.session import Session
from handrail.session.relatives import reads_above
from handrail.taint.judged_arguments import JudgedArguments
from handrail.taint.sanitized import are_sanitized
from handrail.taint.state import Provenance, Tainted, newest_taints, surely_untainted

OnTainted = Literal["ask", "deny"]
"""What is done with a call that acts in a tainted session."""

_MOST_LISTED = 5
"""Sources that a question names, the newest first."""

_LONGEST_SOURCE = 120
"""Characters of the arguments of a source that a question repeats."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TaintPolicy:
    """In a tainted session, a call that may act outside is asked about, or denied.

    That is one with an external effect, and one of a tool that is not Handrail's and whose effect is not declared.

    A session is tainted once it, or a session that it works for, has read the result of a tool that is marked
    `untrusted`; see `handrail.taint.state`. The question names the sources. A call all
    of whose arguments are values of a sanitizer is allowed.

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
        globs = tuple(cast("Iterable[object]", given))
        wrong = next((each for each in globs if not isinstance(each, str)), None)
        if wrong is not None:
            raise PromptValidationError(f"policy {self.name}: tools holds {wrong!r}; write globs: tools=['read_keys'].")
        object.__setattr__(self, "tools", globs)

    def guards(self, tool: str, *, may_act: bool) -> bool:
        """Whether the calls of a tool of that name are judged in a tainted session; see `Tool.may_act`."""
        return may_act or any(fnmatchcase(tool, glob) for glob in self.tools)

    def may_block(self, tool: Tool[Any, Any], session: Session) -> bool:
        """Whether what the sessions have read that this one works for is read from the store."""
        return self.guards(tool.name, may_act=tool.may_act) and reads_above(session)

    def check(self, tool: Tool[Any, Any], params: Any, *, context: ToolContext) -> PolicyDecision:  # noqa: ANN401 - the protocol's
        """Allow the call unless it acts and the session is tainted."""
        session = context.session
        # The first is what nearly every call that acts meets, so it costs next to nothing.
        if surely_untainted(session) or not self.guards(tool.name, may_act=tool.may_act):
            return PolicyDecision.allow()
        return self.judge(session, tool.name, partial(_arguments, tool, params))

    def judge(self, session: Session, tool: str, arguments: Callable[[], JudgedArguments]) -> PolicyDecision:
        """The decision on a call that is guarded.

        Args:
            session: the session of the call.
            tool: the name of the tool.
            arguments: returns the arguments; called only in a tainted session.
        """
        taints = tuple(newest_taints(session))
        if not taints:
            return PolicyDecision.allow()
        if are_sanitized(session, arguments()):
            return PolicyDecision.allow()
        read = f"session has read untrusted content, from {_listed([_brief(each).origin for each in taints])}"
        if self.on_tainted == "deny":
            return PolicyDecision.deny(f"the {read}; {tool} does not run after that. Answer without it.")
        return PolicyDecision.ask(f"the {read}")

    def on_result(self, tool: Tool[Any, Any], params: Any, result: ToolResult[Any], *, context: ToolContext) -> None:  # noqa: ANN401 - the protocol's
        """Take no note: the pipeline records what a session has read."""


def _arguments(tool: Tool[Any, Any], params: object) -> JudgedArguments:
    """The arguments of a call; none if they have no JSON."""
    values: object = params
    if params is None:
        values = {}
    elif not isinstance(params, dict):  # a tool that is not Handrail's has them decoded
        try:
            values = tool.codec.dump(params)
        except (DumpError, SchemaError):
            values = {}
    return JudgedArguments(tool.masking.mask(values), tool.parameters_schema)


def _brief(taint: Tainted) -> Provenance:
    """A source as a question names it, so that long arguments do not hide the rest."""
    found = taint.provenance
    through = tuple(shorten(each, _LONGEST_SOURCE) for each in found.through)
    return replace(found, arguments=shorten(found.arguments, _LONGEST_SOURCE), through=through)


def _listed(parts: list[str]) -> str:
    parts = list(dict.fromkeys(parts))
    more = len(parts) - _MOST_LISTED
    shown = "; ".join(parts[:_MOST_LISTED])
    return f"{shown}; and {more} more" if more > 0 else shown
