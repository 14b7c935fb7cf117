"""A call of a tool that is not Handrail's, on its way through the pipeline: a plain function, an MCP server's tool.

PydanticAI has validated its arguments, and carries it out by its own toolset; in between stand the steps that every
call takes. The tool becomes a `ForeignTool`, whose handler carries out the call that is under way.

| the toolset | the pipeline | PydanticAI is told |
|---|---|---|
| returns | commits | what was returned, as it is, or as `foreign.values` has made it |
| returns what nobody reads: an asynchronous iterator | rolls back; a failed call, its effect unknown | `ToolFailed` |
| raises `ModelRetry` or `ToolFailed` | rolls back; a failed call | the same exception, lone surrogates escaped |
| is external, and its time was up or its answer lost | rolls back; a failed call, its effect unknown | `ToolFailed` |
| raises `ApprovalRequired` or `CallDeferred` | rolls back; postponed, so not recorded | the same exception |
| raises `UsageLimitExceeded` | rolls back; ends the run | `PromptEvaluationError` of phase `budget` |
| raises any other exception | rolls back; a failed call, logged | `ToolFailed` with type and message |
| is not asked, because a step refuses the call | a failed call | `ToolFailed` with the refusal |
| is not asked, because the call has a record, or the ledger the result | answers from it | what is recorded |

An MCP server may have been asked to carry a call out, and its answer lost. PydanticAI's `MCPToolset` makes one
exception of many things: a server that refused a call, one that was too slow to answer, one that was gone before it
did, and a gateway that answered in its place. To the model that is a call to be made again. For a tool that changes the
world only the first proves that nothing was done.

The MCP SDK makes JSON-RPC errors of its own for what it finds without an answer, under the codes that servers use. So
an error proves that nothing was done only by a code that says so, and that the SDK does not use for something else:

| code | says |
|---|---|
| -32601, method not found | nothing was done, unless it stands for an HTTP status of 404 |
| -32602, invalid params | nothing was done |
| any other | nothing: the answer may have been lost, or the server may have failed half-way |

A server's error *result* is none of these: it is an answer. The codes are read off the exception: the SDK itself, an
extra, is not imported.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, is_dataclass
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
from typing_extensions import override  # pydantic brings it; `typing` has it from Python 3.12 on

from handrail.adapters.pydantic_ai.foreign.effects import ToolMetadata
from handrail.adapters.pydantic_ai.foreign.values import (
    NO_VALUE,
    UnreadableValueError,
    as_json,
    freeze_value,
    holds_secret,
    secrets_put_back,
    to_plain_json,
    to_plain_text,
    with_secrets_marked,
)
from handrail.errors import CallPostponed, EffectUncertain, PromptEvaluationError, ToolValidationError
from handrail.prompt import Tool, ToolContext, ToolResult
from handrail.prompt.effect import Effect
from handrail.prompt.tool_definition import Declaration
from handrail.runtime import ToolMessage
from handrail.runtime.failures import without_mistakes
from handrail.serde import Codec, Masking, schema_masking
from handrail.serde.json_values import escape_surrogates

_CONTEXT: ContextVar[ToolContext | None] = ContextVar("handrail_tool_context", default=None)

NOTHING_HIDDEN = schema_masking({})
"""That of a tool without secrets, or whose calls are only recorded."""

_CALL: ContextVar[ForeignCall] = ContextVar("handrail_foreign_call")
"""The call that is under way. A tool is made once for all its calls, so its handler finds out here which one it is."""

_NOTHING = object()
"""Stands for what a tool returns, as long as it has not."""

_METHOD_NOT_FOUND = -32601

_INVALID_PARAMS = -32602

_HTTP_NOT_FOUND = "Not Found"
"""The SDK's message for an HTTP status of 404 without a JSON-RPC error, to which it gives the code -32601 (mcp 2.3.0,
`client/streamable_http.py`). Whatever stands before the server may answer so, also after the server has acted."""


def tool_context() -> ToolContext | None:
    """What a call of Handrail's own tools is given as `context`, for a function that is called as a foreign tool.

    It leads to the session, the resources and the idempotency key of the call that runs here; `None` outside of one.
    """
    return _CONTEXT.get()


class _PlainJson:
    """Keeps values of any type as the JSON that they have become."""

    def dump_json(self, value: object) -> bytes:
        return to_json(value)

    def parse_json(self, data: str | bytes) -> object:
        return from_json(data)


_PLAIN_JSON = cast("Codec[Any]", _PlainJson())  # it does of a codec what is asked of that of a result


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ForeignTool(Tool[Any, Any]):
    """A tool that PydanticAI declares, validates and carries out; its name and description are not held to our forms.

    Its parameters are the validated arguments as JSON has them; which of them are secret, the JSON Schema says.
    """

    masking: Masking = NOTHING_HIDDEN

    @override
    def __post_init__(self) -> None:
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
    def parameters_schema(self) -> dict[str, Any]:
        """Nothing is known here of the arguments: PydanticAI has the schema."""
        return {"type": "object"}

    @override
    def parse(self, arguments: str | bytes | Mapping[str, Any], *, max_bytes: int | None = None) -> Any:
        """The arguments, which PydanticAI has validated."""
        return arguments

    @override
    def with_secrets(self, params: object) -> object:
        """The arguments of the call that is under way, with the secrets that validation has made of some of them."""
        return _CALL.get().arguments_with_secrets()

    @override
    def fault_of(self, result: ToolResult[Any], *, stored: bool = False) -> str | None:
        """Any value will do."""
        return None


class ForeignCall:
    """One call of a foreign tool: what the toolset is handed, and what it answers.

    Attributes:
        name: the name of the tool.
        arguments: the validated arguments as JSON has them.
        context: PydanticAI's run context of the call.
        answer_lost: whether the toolset has not answered: it raised what is not an answer of a tool.
    """

    __slots__ = ("_args", "_returned", "_told", "_tool", "_toolset", "answer_lost", "arguments", "context", "name")

    def __init__(
        self,
        toolset: AbstractToolset[Any],
        name: str,
        args: dict[str, Any],
        context: RunContext[Any],
        tool: ToolsetTool[Any],
    ) -> None:
        """Take the call as `AbstractToolset.call_tool` gets it; `toolset` is what carries it out."""
        self._toolset = toolset
        self.name = name
        self._args = args
        self._tool = tool
        self._returned: Any = _NOTHING
        self._told: Exception | None = None
        self.answer_lost = False
        self.context = context
        self.arguments = plain_arguments(args, tool.tool_def)

    @property
    def schema(self) -> Mapping[str, Any]:
        """The JSON Schema of the tool's parameters, in which those are marked that hold secrets."""
        schema = self._tool.tool_def.parameters_json_schema
        return with_secrets_marked(schema, self.arguments_with_secrets()) if holds_secret(self._args) else schema

    def arguments_with_secrets(self) -> dict[str, Any]:
        """As `arguments`, but with a secret in the place of its mask where validation has made one."""
        return plain_arguments(self._args, self._tool.tool_def, with_secrets=True)

    @contextmanager
    def under_way(self) -> Generator[None]:
        """Make this the call that the handler of its tool carries out, in the block and in what it starts."""
        token = _CALL.set(self)
        try:
            yield
        finally:
            _CALL.reset(token)

    def outcome(self, message: ToolMessage) -> Any:  # noqa: ANN401 - whatever the tool returns
        """What PydanticAI is told, now that the pipeline is through with the call.

        Raises:
            ModelRetry: as the tool raised it.
            ToolFailed: as the tool raised it, or because the call was refused or failed.
        """
        if self._told is not None:
            raise self._told
        if not message.success:
            raise ToolFailed(message.content)
        if self._returned is _NOTHING:  # the call was answered from a record
            return ToolReturn(message.result.value, metadata={"replayed": message.replayed})
        return self._returned

    def postponed(self, error: CallPostponed) -> Never:
        """Tell PydanticAI that the call is put off.

        Raises:
            ApprovalRequired: as the tool raised it, or because the question about the call was left open.
            CallDeferred: as the tool raised it.
        """
        if self._told is not None:
            raise self._told
        raise ApprovalRequired from error

    async def carry_out(self, context: ToolContext, *, acts_outside: bool) -> ToolResult[Any]:
        """Have the toolset carry the call out; step 9 of the pipeline.

        Raises:
            CallPostponed: the call is put off.
            ToolValidationError: the toolset says that it failed.
            EffectUncertain: whether it took effect outside is not known.
            Exception: what the toolset raises else.
        """
        token = _CONTEXT.set(context)
        try:
            returned = await self._toolset.call_tool(self.name, self._args, self.context, self._tool)
            # An iterator can be read once, and what it does on the way belongs to the call.
            self._returned, recorded = freeze_value(self.name, returned)
        except (ApprovalRequired, CallDeferred) as error:
            self._told = error
            raise CallPostponed(f"{self.name} is put off: {str(error) or type(error).__name__}") from error
        except (ModelRetry, ToolFailed) as error:
            self.answer_lost = is_answer_lost(error)
            if acts_outside and (isinstance(error.__context__, TimeoutError) or self.answer_lost):
                raise self._uncertain(error) from error
            self._told = _escaped(error)
            raise ToolValidationError(str(error)) from error
        except UnreadableValueError as error:
            if acts_outside:  # it has run to its end
                raise EffectUncertain(str(error)) from error
            raise
        except UsageLimitExceeded as error:
            raise PromptEvaluationError(f"{self.name}: {error}", phase="budget", tool=self.name) from error
        except Exception:
            self.answer_lost = True
            raise
        finally:
            _CONTEXT.reset(token)
        return ToolResult.ok(recorded)

    def _uncertain(self, error: Exception) -> EffectUncertain:
        return EffectUncertain(f"{self.name} was stopped: {error}")


def _escaped(error: ModelRetry | ToolFailed) -> ModelRetry | ToolFailed:
    """The exception as the tool raised it; where it holds what no model is to read, a new one.

    That is a lone surrogate, for which it has an escape, and the text of a developer's mistake that it was raised from.
    """
    text = escape_surrogates(without_mistakes(error.message, error))
    if text == error.message:
        return error
    return ModelRetry(text) if isinstance(error, ModelRetry) else ToolFailed(text)


def foreign_tool(name: str, description: str, said: ToolMetadata, schema: Mapping[str, Any]) -> ForeignTool:
    """A tool of that name, which carries out whatever call is under way."""
    acts_outside = said.effect == "external"

    async def carry_out(_params: object, /, *, context: ToolContext) -> ToolResult[Any]:
        return await _CALL.get().carry_out(context, acts_outside=acts_outside)

    return ForeignTool(
        name=name,
        description=description,
        handler=carry_out,
        effect=cast("Effect", said.external or (said.effect if said.declares_effect else _not_said(said.effect))),
        concurrent=said.concurrent,
        idempotency=said.idempotency,
        masking=schema_masking(schema),
    )


def _not_said(effect: Effect) -> Effect | None:
    """The effect as a tool declares it that nobody but a server, or nobody at all, has spoken for."""
    return None if effect == "state" else effect


def plain_arguments(
    args: object, definition: ToolDefinition | None = None, *, with_secrets: bool = False
) -> dict[str, Any]:
    """Validated arguments as JSON has them; what JSON cannot say is told in words.

    Args:
        args: what PydanticAI's validation has made of them.
        definition: the tool's. The model of a function whose only parameter is one has its fields for parameters there.
        with_secrets: whether secrets stay the objects that hold them, which JSON writes as asterisks.
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
    """The fields of a function's only parameter, if that is a model: they are the parameters that its schema has."""
    if len(arguments) != 1 or not isinstance(args, dict):
        return arguments
    ((name, only),) = arguments.items()
    (value,) = cast("dict[object, object]", args).values()  # whatever validation has made of it
    declared: Any = schema.get("properties")
    declared = cast("dict[str, Any]", declared) if isinstance(declared, dict) else {}
    if not isinstance(only, dict):
        return arguments
    fields = cast("dict[str, Any]", only)  # JSON's keys are strings
    if not (isinstance(value, BaseModel) or is_dataclass(value)):
        # Of a `TypedDict` validation makes a plain dict, as it is where a server takes whatever it is sent.
        return fields if name not in declared and fields and fields.keys() <= declared.keys() else arguments
    if name in declared:  # a field has the parameter's name, or the parameter is no only one and stands for itself
        return arguments if _may_be_object(declared[name]) else fields
    # Without a field of its own a model has room for others; what else takes any name is a function of `**models`.
    return fields if declared or schema.get("additionalProperties") is True else arguments


def _may_be_object(schema: object) -> bool:
    """Whether a schema may let an object through: it says nothing of types, or names that one."""
    if not isinstance(schema, Mapping):
        return True
    said = cast("Mapping[str, Any]", schema)  # a JSON object
    branches = said.get("anyOf")
    if isinstance(branches, list):
        return any(_may_be_object(branch) for branch in cast("list[object]", branches))  # each is looked at there
    kind: object = said.get("type", "object")
    return kind == "object"


def is_answer_lost(error: BaseException) -> bool:
    """Whether an exception of a tool leaves open what a server has done, by itself or by what it was raised from."""
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
        group = cast("BaseExceptionGroup[BaseException]", error)  # of whatever it is
        return any(is_answer_lost(member) for member in group.exceptions)
    described: object = getattr(error, "error", None)
    code: object = getattr(described, "code", None)
    if type(code) is not int:
        return False
    if code == _METHOD_NOT_FOUND:
        return getattr(described, "message", None) == _HTTP_NOT_FOUND
    return code != _INVALID_PARAMS
