"""The policy about calls that act after the session has read untrusted content, and the values that it lets pass.

A sanitizer is a tool with `sanitizes=True`: a function of the program that returns typed values, such as an amount or a
date, and checks them. It clears the values that it returns, not the session: a later call all of whose arguments are
such values is not asked about.

The values of a success are recorded before the call is committed, in the same unit. They are those of the result's
JSON, and the keys of its objects. Secrets are not recorded: their mask would vouch for every other secret. So a call
with a secret is always asked about. A child session has the values that it has recorded itself,
not those of its parent.

Every text that the model has chosen counts: a value, and the key of an object, unless the schema of the tool declares
it as the name of a property. `null` and an empty object or array are values, too. An argument that is equal to the
declared default of its parameter is as if it was not given, because the model could have left it out; a default within
another value counts.

A value is compared by the text of its JSON, so `5` and `"5"` are one value, and so are `500` and `500.0`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from functools import partial
from typing import Any, ClassVar, Literal, NamedTuple, get_args

from handrail.errors import DumpError, PromptValidationError, SchemaError
from handrail.prompt.context import ToolContext
from handrail.prompt.policy import PolicyDecision
from handrail.prompt.tool_definition import Tool
from handrail.prompt.tool_result import ToolResult
from handrail.redaction import MASK
from handrail.serde import dump
from handrail.serde.formatting import shorten
from handrail.serde.json_schema import is_array, is_object
from handrail.session import Session, SlicePolicy, stored_as
from handrail.session.calls import CallRef
from handrail.session.views import reads_above
from handrail.taint import Provenance, Tainted, newest_taints, surely_untainted


class JudgedArguments(NamedTuple):
    """The arguments of one call as decoded JSON, secrets masked, and the JSON Schema of the parameters."""

    values: object
    schema: Mapping[str, Any]

    def texts(self) -> frozenset[str]:
        """The texts of the arguments that are not equal to the default of their parameter."""
        values, schemas = self.values, self.schema.get("properties")
        if is_object(values) and is_object(schemas):
            values = {name: value for name, value in values.items() if not _is_default(value, schemas.get(name))}
        return frozenset(leaves(values, names=declared_names(self.schema))) if values else frozenset()


def leaves(values: object, *, names: frozenset[str] = frozenset()) -> Iterator[str]:
    """The texts in decoded JSON: values, and the keys of objects but for `names`."""
    if is_object(values) and values:
        for name, value in values.items():
            if name not in names:
                yield name
            yield from leaves(value, names=names)
    elif is_array(values) and values:
        for value in values:
            yield from leaves(value, names=names)
    else:
        yield values if isinstance(values, str) else _json_text(values)


def _json_text(value: object) -> str:
    return json.dumps(_with_whole_numbers(value), sort_keys=True, ensure_ascii=False)


def declared_names(schema: object) -> frozenset[str]:
    """The names of the properties that a JSON Schema declares, in all of its parts."""
    if is_array(schema):
        return frozenset[str]().union(*map(declared_names, schema))
    if not is_object(schema):
        return frozenset()
    properties: object = schema.get("properties")
    own = frozenset(properties) if is_object(properties) else frozenset[str]()
    return own.union(*map(declared_names, schema.values()))


def _is_default(value: object, schema: object) -> bool:
    if not is_object(schema) or "default" not in schema:
        return False
    # As text, because `True == 1`. Two secrets have one mask, so a secret is never equal to its default.
    text = _json_text(value)
    return MASK not in text and text == _json_text(schema["default"])


def _with_whole_numbers(value: object) -> object:
    if is_object(value):
        return {name: _with_whole_numbers(item) for name, item in value.items()}
    if is_array(value):
        return [_with_whole_numbers(item) for item in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


@stored_as("handrail.sanitized")
@dataclass(frozen=True, slots=True)
class Sanitized:
    """A sanitizer has returned values. Its slice is a LOG.

    Attributes:
        tool: the sanitizer.
        values: the values and the keys as text, `null` and empty objects and arrays included; no secrets.
    """

    slice_policy: ClassVar[SlicePolicy] = SlicePolicy.LOG

    tool: str
    reply: str | None
    call_id: str
    values: tuple[str, ...]


def record_sanitized(session: Session, tool: Tool[Any, Any], ref: CallRef, value: object) -> None:
    """Records the values that a sanitizer has returned; a result of `None` has none."""
    masked = tool.result_masking.mask(dump(value))
    texts = [] if value is None else [text for text in leaves(masked) if MASK not in text]
    session[Sanitized].log(Sanitized(tool.name, *ref.storable, tuple(dict.fromkeys(texts))), write="deferred")


def are_sanitized(session: Session, arguments: JudgedArguments) -> bool:
    """Returns whether sanitizers of the session have returned all values of the arguments.

    False for arguments without a value, because the content may ask for the call itself, and for a secret.
    """
    texts = arguments.texts()
    if not texts or not len(session[Sanitized]) or any(MASK in text for text in texts):
        return False
    return texts <= {value for item in session[Sanitized] for value in item.values}


OnTainted = Literal["ask", "deny"]
"""The answer to a call that acts in a tainted session."""

_MOST_LISTED = 5  # sources that a question names, the newest first

_LONGEST_SOURCE = 120  # characters of the arguments of a source that a question repeats


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TaintPolicy:
    """In a tainted session, a call that may act outside is asked about, or denied.

    That is one with an external effect, and one of a tool that is not Handrail's and whose effect is not declared.

    A session is tainted once it, or a session that it works for, has read the result of a tool that is marked
    `untrusted`. The question names the sources. A call all of whose arguments are values of a sanitizer is allowed.

    Attributes:
        on_tainted: `"ask"`, or `"deny"`.
        tools: globs over the names of further tools that are judged as those with an external effect, such as those
            that read what an attacker would want to know.
        name: give another one if two policies apply to one tool.

    Raises:
        PromptValidationError: `on_tainted` is another word, or `tools` is a string.
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
        if isinstance(self.tools, str):
            raise PromptValidationError(f"policy {self.name}: tools is {self.tools!r}; write tools=['read_keys'].")
        object.__setattr__(self, "tools", tuple(self.tools))

    def guards(self, tool: str, *, may_act: bool) -> bool:
        """Returns whether the calls of a tool are judged in a tainted session; see `Tool.may_act`."""
        return may_act or any(fnmatchcase(tool, glob) for glob in self.tools)

    def may_block(self, tool: Tool[Any, Any], session: Session) -> bool:
        """Returns whether the taint of parent sessions is read from the store."""
        return self.guards(tool.name, may_act=tool.may_act) and reads_above(session)

    def check(self, tool: Tool[Any, Any], params: Any, *, context: ToolContext) -> PolicyDecision:  # noqa: ANN401 - the protocol's
        """Allows the call unless it acts and the session is tainted."""
        session = context.session
        # The first is what nearly every call that acts meets, so it costs next to nothing.
        if surely_untainted(session) or not self.guards(tool.name, may_act=tool.may_act):
            return PolicyDecision.allow()
        return self.judge(session, tool.name, partial(_arguments, tool, params))

    def judge(self, session: Session, tool: str, arguments: Callable[[], JudgedArguments]) -> PolicyDecision:
        """The decision on a call that is guarded; its arguments are asked for only in a tainted session."""
        taints = tuple(newest_taints(session))
        if not taints:
            return PolicyDecision.allow()
        if are_sanitized(session, arguments()):
            return PolicyDecision.allow()
        read = f"session has read untrusted content, from {_join_sources([_brief(taint).origin for taint in taints])}"
        if self.on_tainted == "deny":
            return PolicyDecision.deny(f"the {read}; {tool} does not run after that. Answer without it.")
        return PolicyDecision.ask(f"the {read}")

    def on_result(self, tool: Tool[Any, Any], params: Any, result: ToolResult[Any], *, context: ToolContext) -> None:  # noqa: ANN401 - the protocol's
        """Does nothing: the pipeline records what a session has read."""


def _arguments(tool: Tool[Any, Any], params: object) -> JudgedArguments:
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
    provenance = taint.provenance
    through = tuple(shorten(source, _LONGEST_SOURCE) for source in provenance.through)
    return replace(provenance, arguments=shorten(provenance.arguments, _LONGEST_SOURCE), through=through)


def _join_sources(parts: list[str]) -> str:
    parts = list(dict.fromkeys(parts))
    more = len(parts) - _MOST_LISTED
    text = "; ".join(parts[:_MOST_LISTED])
    return f"{text}; and {more} more" if more > 0 else text
