"""A pipeline call of a tool that is not Handrail's: a function of PydanticAI's, an MCP server's tool.

PydanticAI has validated its arguments, and runs it by its own toolset, inside the steps of every call. The tool becomes
a `ForeignTool`, whose handler runs the current call.

| the toolset | the pipeline | PydanticAI receives |
|---|---|---|
| returns | commits | the returned value, unchanged or as converted by `foreign.values` |
| returns an asynchronous iterator, which is not read | rolls back; a failed call, its effect unknown | `ToolFailed` |
| raises `ModelRetry` or `ToolFailed` | rolls back; a failed call | the same exception, lone surrogates escaped |
| is external, and its time was up or its answer lost | rolls back; a failed call, its effect unknown | `ToolFailed` |
| raises `ApprovalRequired` or `CallDeferred` | rolls back; postponed, so not recorded | the same exception |
| raises `UsageLimitExceeded` | rolls back; ends the run | `PromptEvaluationError` of phase `budget` |
| raises any other exception | rolls back; a failed call, logged | `ToolFailed` with type and message |
| is not called, because a step refuses the call | a failed call | `ToolFailed` with the refusal |
| is not called, because the call has a record, or the ledger the result | answers from it | the record |

Files that a tool returns are recorded as parts of the result. Text and JSON that are too long for the model are cut.

An MCP server may have received a call, and its answer may be lost. PydanticAI's `MCPToolset` raises the same exception
for a server that refused a call, was too slow, or exited before it answered, and for a gateway that answered instead.
The model would repeat the call. For a tool that changes the world only the refusal proves that nothing was done.

The MCP SDK creates its own JSON-RPC errors for missing answers, with the codes that servers use. So an error proves
that nothing was done only if its code means that, and the SDK does not use it otherwise:

| code | meaning |
|---|---|
| -32601, method not found | nothing was done, unless it represents an HTTP status of 404 |
| -32602, invalid params | nothing was done |
| any other | unknown: the answer may have been lost, or the server may have failed half-way |

A server's error *result* is not one of these: it is an answer. The codes are read from the exception: the SDK itself,
an extra, is not imported.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, is_dataclass
from typing import Any, Never, cast

from pydantic import BaseModel
from pydantic_ai import (
    ApprovalRequired,
    CallDeferred,
    ModelRetry,
    RunContext,
    ToolDefinition,
    ToolFailed,
    ToolReturn,
    ToolsetTool,
    UsageLimitExceeded,
)
from pydantic_ai.toolsets import AbstractToolset
from pydantic_core import from_json, to_json
from typing_extensions import override  # a dependency of pydantic; in `typing` since Python 3.12

from handrail.adapters.pydantic_ai.foreign.effects import ToolMetadata
from handrail.adapters.pydantic_ai.foreign.values import (
    NO_VALUE,
    UnreadableValueError,
    advised_value,
    as_json,
    freeze_value,
    holds_secret,
    replayed_value,
    secrets_put_back,
    split_files,
    to_plain_json,
    to_plain_text,
    with_secrets_marked,
    with_value,
)
from handrail.adapters.pydantic_ai.toolset import message_content
from handrail.errors import CallPostponed, EffectUncertain, PromptEvaluationError, ToolValidationError
from handrail.prompt import Tool, ToolContext, ToolResult
from handrail.prompt.signature import Effect
from handrail.prompt.tool_declaration import Declaration
from handrail.runtime import ToolMessage
from handrail.runtime.failures import text_for_model
from handrail.serde import Codec, Masking, schema_masking
from handrail.serde.json_values import escape_surrogates

NOTHING_HIDDEN = schema_masking({})
"""The masking of a tool without secrets, or whose calls are only recorded."""

_CALL: ContextVar[ForeignCall] = ContextVar("handrail_foreign_call")
"""The current call. A tool is created once for all its calls, so its handler looks up the call here."""

_NOTHING = object()
"""The placeholder for the value of a tool that has not returned."""

_METHOD_NOT_FOUND = -32601

_INVALID_PARAMS = -32602

_HTTP_NOT_FOUND = "Not Found"
"""The SDK's message for an HTTP status of 404 without a JSON-RPC error, to which it gives the code -32601 (mcp 2.3.0,
`client/streamable_http.py`). A proxy in front of the server may answer so, also after the server has acted."""


class _PlainJson:
    """Stores values of any type as their JSON."""

    def dump_json(self, value: object) -> bytes:
        return to_json(value)

    def parse_json(self, data: str | bytes) -> object:
        return from_json(data)


_PLAIN_JSON = cast("Codec[Any]", _PlainJson())  # it implements the part of a codec that results need


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ForeignTool(Tool[Any, Any]):
    """A tool that PydanticAI declares, validates and runs; its name and description are not checked.

    Its parameters are the validated arguments as JSON; the JSON Schema marks the secret ones.

    Attributes:
        arguments_schema: the JSON Schema of the arguments, by which PydanticAI validates them; open if it is not known.
    """

    arguments_schema: Mapping[str, Any] = field(default_factory=lambda: {"type": "object"})
    masking: Masking = NOTHING_HIDDEN
    result_masking: Masking = NOTHING_HIDDEN

    @override
    def __post_init__(self) -> None:
        # The class is frozen, and the checks of `Tool` do not apply to the tools of others.
        set_field = object.__setattr__
        self.settle_effect(Declaration(self.name, dict, None))
        set_field(self, "params_type", dict)
        set_field(self, "result_type", None)
        set_field(self, "codec", None)
        set_field(self, "value_codec", _PLAIN_JSON)
        set_field(self, "type_arguments", (None, None))
        set_field(self, "is_async", True)  # noqa: FBT003 - the value of a field
        set_field(self, "writes", self.effect != "read" and not self.concurrent)
        set_field(self, "claims", self.effect == "external" if self.idempotency is None else self.idempotency.has_key)

    @property
    @override
    def may_act(self) -> bool:
        """Also if no effect is declared: such a tool is any function, or that of any server."""
        return self.effect == "external" or not self.declares_effect

    @property
    @override
    def parameters_schema(self) -> dict[str, Any]:
        """The JSON Schema of the arguments, as PydanticAI has it."""
        return dict(self.arguments_schema)

    @override
    def parse(self, arguments: str | bytes | Mapping[str, Any], *, max_bytes: int | None = None) -> Any:
        """The arguments, validated by PydanticAI."""
        return arguments

    @property
    @override
    def key_codec(self) -> None:
        """None: the arguments are as PydanticAI has validated them."""

    @override
    def with_secrets(self, params: object) -> object:
        """The arguments of the current call, with the secrets that validation has created."""
        return _CALL.get().arguments_with_secrets()

    @override
    def result_fault(self, result: ToolResult[Any], *, is_stored: bool = False) -> str | None:
        """Accept any value."""
        return None


class ForeignCall:
    """One call of a foreign tool: its arguments and its answer.

    Attributes:
        name: the name of the tool.
        arguments: the validated arguments as JSON.
        context: PydanticAI's run context of the call.
        answer_lost: whether the toolset has not answered: it raised an exception that is not an answer of a tool.
    """

    __slots__ = ("_args", "_failure", "_returned", "_tool", "_toolset", "answer_lost", "arguments", "context", "name")

    def __init__(
        self,
        toolset: AbstractToolset[Any],
        name: str,
        args: dict[str, Any],
        context: RunContext[Any],
        tool: ToolsetTool[Any],
    ) -> None:
        """Create a call from the arguments of `AbstractToolset.call_tool`; `toolset` runs it."""
        self._toolset = toolset
        self.name: str = name
        self._args = args
        self._tool = tool
        self._returned: Any = _NOTHING
        self._failure: Exception | None = None
        self.answer_lost: bool = False
        self.context: RunContext[Any] = context
        self.arguments: dict[str, Any] = plain_arguments(args, tool.tool_def)

    @property
    def schema(self) -> Mapping[str, Any]:
        """The JSON Schema of the tool's parameters, with secrets marked."""
        schema = self._tool.tool_def.parameters_json_schema
        return with_secrets_marked(schema, self.arguments_with_secrets()) if holds_secret(self._args) else schema

    def arguments_with_secrets(self) -> dict[str, Any]:
        """As `arguments`, but with the secrets that validation has created instead of their masks."""
        return plain_arguments(self._args, self._tool.tool_def, with_secrets=True)

    @contextmanager
    def under_way(self) -> Generator[None]:
        """Make this the current call of its tool's handler, in the block and in what it starts."""
        token = _CALL.set(self)
        try:
            yield
        finally:
            _CALL.reset(token)

    def outcome(self, message: ToolMessage) -> Any:  # noqa: ANN401 - whatever the tool returns
        """The answer for PydanticAI, after the pipeline has finished the call.

        Raises:
            ModelRetry: as the tool raised it.
            ToolFailed: as the tool raised it, or because the call was refused or failed.
        """
        if self._failure is not None:
            raise _like(self._failure, message.content) if message.is_changed or message.feedback else self._failure
        if not message.success:
            raise ToolFailed(message.content)
        if self._returned is _NOTHING:  # the call was answered from a record
            value = message_content(message) if message.is_changed else advised_value(replayed_value(message), message)
            return ToolReturn(value, metadata={"replayed": message.replayed})
        if message.is_changed:
            return with_value(self._returned, message_content(message), message.marks)
        return advised_value(self._returned, message)

    def postponed(self, error: CallPostponed) -> Never:
        """Postpone the call in PydanticAI.

        Raises:
            ApprovalRequired: as the tool raised it, or because the question about the call was left open.
            CallDeferred: as the tool raised it.
        """
        if self._failure is not None:
            raise self._failure
        raise ApprovalRequired from error

    async def carry_out(self, *, acts_outside: bool) -> ToolResult[Any]:
        """Run the call by the toolset; step 9 of the pipeline.

        Raises:
            CallPostponed: the call is postponed.
            ToolValidationError: the toolset reports a failure.
            EffectUncertain: it is not known whether the external effect happened.
            Exception: any other exception of the toolset.
        """
        try:
            returned = await self._toolset.call_tool(self.name, self._args, self.context, self._tool)
            # An iterator can be read once, and its side effects belong to the call.
            self._returned, recorded = freeze_value(self.name, returned)
            value, files = split_files(self._returned)
            if files:
                recorded = to_plain_json(value)
        except (ApprovalRequired, CallDeferred) as error:
            self._failure = error
            why = str(error) or f"it raised {type(error).__name__}"
            raise CallPostponed(f"{self.name} is postponed: {why}") from error
        except (ModelRetry, ToolFailed) as error:
            self.answer_lost = is_answer_lost(error)
            # PydanticAI converts a timeout of the tool into `ModelRetry`, with the `TimeoutError` as its context. An
            # external call that was cut off may have had its effect, so the model must not simply repeat it.
            if acts_outside and (isinstance(error.__context__, TimeoutError) or self.answer_lost):
                raise self._uncertain(error) from error
            self._failure = _escaped(error)
            raise ToolValidationError(str(error)) from error
        except UnreadableValueError as error:
            if acts_outside:  # it has run to its end
                raise EffectUncertain(str(error)) from error
            raise
        except UsageLimitExceeded as error:
            raise PromptEvaluationError(f"{self.name}: {error}", phase="budget", tool=self.name) from error
        except Exception:
            # The exception is not an answer of the tool, so its connection may be lost; see
            # `ThroughPipeline.__aexit__`.
            self.answer_lost = True
            raise
        return ToolResult.ok(recorded, parts=files)

    def _uncertain(self, error: Exception) -> EffectUncertain:
        return EffectUncertain(f"{self.name} was stopped: {error}")


def _escaped(error: ModelRetry | ToolFailed) -> ModelRetry | ToolFailed:
    """The exception as the tool raised it, or a new one without text that the model must not read.

    That is a lone surrogate, which is escaped, what `text_for_model` replaces, and secrets.
    """
    text = escape_surrogates(text_for_model(error, error.message))
    return error if text == error.message else _like(error, text)


def _like(error: Exception, text: str) -> ModelRetry | ToolFailed:
    """An exception of the same kind, with another text."""
    return ModelRetry(text) if isinstance(error, ModelRetry) else ToolFailed(text)


def foreign_tool(name: str, description: str, said: ToolMetadata, schema: Mapping[str, Any]) -> ForeignTool:
    """A tool of that name, which runs the current call."""
    acts_outside = said.effect == "external"

    async def carry_out(_params: object, /, *, context: ToolContext) -> ToolResult[Any]:  # noqa: ARG001 - a handler's
        return await _CALL.get().carry_out(acts_outside=acts_outside)

    return ForeignTool(
        name=name,
        description=description,
        handler=carry_out,
        effect=cast("Effect", said.external or (said.effect if said.declares_effect else _not_said(said.effect))),
        concurrent=said.concurrent,
        idempotency=said.idempotency,
        max_result_chars=said.max_result_chars,
        untrusted=said.untrusted,
        arguments_schema=schema,
        masking=schema_masking(schema),
    )


def _not_said(effect: Effect) -> Effect | None:
    """The effect of a tool whose effect only a server, or nothing, declares."""
    return None if effect == "state" else effect


def plain_arguments(
    args: object, definition: ToolDefinition | None = None, *, with_secrets: bool = False
) -> dict[str, Any]:
    """Validated arguments as JSON; a value that JSON cannot represent is described as text.

    Args:
        args: the arguments as validated by PydanticAI.
        definition: the definition of the tool. If the only parameter of a function is a model, its fields are the
            parameters there.
        with_secrets: whether secrets stay objects, which JSON writes as asterisks.
    """
    given: object = args
    found = as_json(args)
    if found is NO_VALUE and isinstance(args, dict):
        named = cast("dict[object, object]", args)  # keys may be anything
        found = {str(to_plain_json(name)): to_plain_json(value) for name, value in named.items()}
    elif found is NO_VALUE:
        found = to_plain_text(args)
    if with_secrets:
        found = secrets_put_back(found, given)
    if not isinstance(found, dict):
        return {"arguments": found}
    arguments = cast("dict[str, Any]", found)  # JSON's keys are strings
    if definition is None:
        return arguments
    return _as_declared(arguments, given, definition.parameters_json_schema)


def _as_declared(arguments: dict[str, Any], args: object, schema: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a function's only parameter, if that is a model: they are the parameters in its schema."""
    if len(arguments) != 1 or not isinstance(args, dict):
        return arguments
    ((name, only),) = arguments.items()
    (value,) = cast("dict[object, object]", args).values()  # validation may return anything
    declared: Any = schema.get("properties")
    declared = cast("dict[str, Any]", declared) if isinstance(declared, dict) else {}
    if not isinstance(only, dict):
        return arguments
    fields = cast("dict[str, Any]", only)  # JSON's keys are strings
    if not (isinstance(value, BaseModel) or is_dataclass(value)):
        # Validation returns a plain dict for a `TypedDict`, as for a server that accepts anything.
        return fields if name not in declared and fields and fields.keys() <= declared.keys() else arguments
    if name in declared:  # a field has the parameter's name, or the parameter is not the only one
        return arguments if _may_be_object(declared[name]) else fields
    # A model without fields accepts others; the only other case with any name is a function of `**models`.
    return fields if declared or schema.get("additionalProperties") is True else arguments


def _may_be_object(schema: object) -> bool:
    """Whether a schema may accept an object: it has no type, or that one."""
    if not isinstance(schema, Mapping):
        return True
    said = cast("Mapping[str, Any]", schema)  # a JSON object
    branches = said.get("anyOf")
    if isinstance(branches, list):
        return any(_may_be_object(branch) for branch in cast("list[object]", branches))  # each is checked there
    kind: object = said.get("type", "object")
    return kind == "object"


def is_answer_lost(error: BaseException) -> bool:
    """Whether an exception of a tool, or one in its chain, leaves the server's action unknown."""
    # A chain may contain itself, which Python permits.
    seen: set[int] = set()
    found: BaseException | None = error
    while found is not None and id(found) not in seen:
        seen.add(id(found))
        if _says_so(found):
            return True
        found = found.__cause__
    return False


def _says_so(error: BaseException) -> bool:
    if isinstance(error, BaseExceptionGroup):
        group = cast("BaseExceptionGroup[BaseException]", error)  # of any type
        return any(is_answer_lost(member) for member in group.exceptions)
    described: object = getattr(error, "error", None)
    code: object = getattr(described, "code", None)
    # Not `isinstance`: `True` is an `int`, and is not a code.
    if type(code) is not int:
        return False
    if code == _METHOD_NOT_FOUND:
        return getattr(described, "message", None) == _HTTP_NOT_FOUND
    return code != _INVALID_PARAMS
