"""A pipeline call of a tool that is not Handrail's, and what such a tool declares.

PydanticAI has validated its arguments, and runs it by its own toolset, inside the steps of every call. The tool becomes
a `ForeignTool`, whose handler runs the current call.

| the toolset | the pipeline | PydanticAI receives |
|---|---|---|
| returns | commits | the returned value, as JSON and files (`foreign.values`) |
| returns an asynchronous iterator, which is not read | rolls back; a failed call, its effect unknown | `ToolFailed` |
| raises `ModelRetry` or `ToolFailed` | rolls back; a failed call | the same exception, lone surrogates escaped |
| is external, and its time was up or its answer lost | rolls back; a failed call, its effect unknown | `ToolFailed` |
| raises `ApprovalRequired` or `CallDeferred` | rolls back; postponed, so not recorded | the same exception |
| raises `UsageLimitExceeded` | rolls back; ends the run | `PromptEvaluationError` of phase `budget` |
| raises any other exception | rolls back; a failed call, logged | `ToolFailed` with type and message |
| is not called, because a step refuses the call | a failed call | `ToolFailed` with the refusal |
| is not called, because the call has a record, or the ledger the result | answers from it | the record |

Files that a tool returns are recorded as parts of the result. Text and JSON that are too long for the model are cut.

PydanticAI's `MCPToolset` raises the same exception for a server that refused a call and for a missing answer; which one
it was, and the effect that the hints of a server say, is read by `handrail.adapters.mcp_hints`.

A Python tool declares its effect in its metadata, with the values of Handrail's own tools; so does a whole toolset, by
`toolset.with_metadata(effect="read")`:

    Tool(pay, metadata={"effect": "external", "idempotency": IdempotencyConfig(), "approval": "ask"})

A declaration in Python takes precedence. Without one, a tool whose hints say nothing has the effect `state`; where no
rule applies, a tool that only hints declare as reading is asked about. `readOnlyHint` is ignored for a tool that has an
idempotency in Python.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from contextvars import ContextVar
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Any, Literal, Never, cast, get_args

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

from handrail.adapters.mcp_hints import hinted_effect, proves_nothing_done
from handrail.adapters.pydantic_ai.foreign.values import (
    advised_value,
    freeze_value,
    holds_secret,
    plain_arguments,
    replayed_value,
    with_secrets_marked,
    with_value,
)
from handrail.adapters.pydantic_ai.toolset import message_content
from handrail.errors import CallPostponed, EffectUncertain, ParseError, PromptEvaluationError, ToolValidationError
from handrail.prompt import External, IdempotencyConfig, Tool, ToolContext, ToolResult
from handrail.prompt.signature import Effect
from handrail.prompt.tool_declaration import Declaration
from handrail.prompt.tool_definition import MAX_RESULT_CHARS
from handrail.runtime import ToolMessage
from handrail.runtime.failures import text_for_model
from handrail.serde import Codec, Masking, schema_masking
from handrail.serde.json_schema import is_object
from handrail.serde.json_values import escape_surrogates
from handrail.waiting import in_context

# ------------------------------------------------------------------------------------------------- what a tool declares

ApprovalDefault = Literal["allow", "ask", "deny"]
"""The approval that a tool declares for calls without a matching rule."""

_OPTIONS: Mapping[str, Any] = {"concurrent": False, "max_result_chars": MAX_RESULT_CHARS, "untrusted": False}
"""The options of `handrail.prompt.Tool` that metadata may have beside the effect, with their defaults."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolMetadata:
    """The declaration of a tool.

    Attributes:
        effect: how a call changes the world.
        declares_effect: whether Python declares it, and not only the hints of a server or nothing.
        external: the details of an external effect that Python declares.
        concurrent: whether it is slow, independent work, as for `handrail.prompt.Tool`.
        idempotency: when two calls are one effect; their parameters are the arguments as JSON.
        approval: how a call without a matching rule is treated; `None` depends on the effect. `"ask"` for a tool that
            requires approval in PydanticAI, and for one that only the hints of a server declare as reading.
        max_result_chars: how many characters of a result the model reads at most, as for `handrail.prompt.Tool`.
        untrusted: whether third parties write what it returns, as for `handrail.prompt.Tool`.
    """

    effect: Effect = "state"
    declares_effect: bool = False
    external: External | None = None
    concurrent: bool = False
    idempotency: IdempotencyConfig | None = None
    approval: ApprovalDefault | None = None
    max_result_chars: int = MAX_RESULT_CHARS
    untrusted: bool = False

    @property
    def may_act(self) -> bool:
        """Whether a call may change the world outside of the program: also if no effect is declared."""
        return self.effect == "external" or (self.effect == "state" and not self.declares_effect)


_NOTHING_DECLARED = ToolMetadata()


def read_tool_metadata(definition: ToolDefinition) -> ToolMetadata:
    """Reads the declaration of a tool.

    Raises:
        PromptValidationError: its metadata has an invalid value, by the rules of `handrail.prompt.Tool`.
    """
    if not definition.metadata and definition.kind == "function":
        return _NOTHING_DECLARED
    metadata: Mapping[str, Any] = definition.metadata or {}
    properties: object = definition.parameters_json_schema.get("properties")
    schema = {"properties": properties if is_object(properties) else {}}
    declaration = Declaration(definition.name, dict, None, schema)
    options = {name: metadata.get(name, default) for name, default in _OPTIONS.items()}
    declaration.check_options(options | {"timeout": None, "accepts_overrides": True, "sanitizes": False})
    effect: Any = metadata.get("effect")
    if effect is None and (near := get_close_matches("effect", map(str, metadata), cutoff=0.8)):
        declaration.refuse(f"its metadata has {near[0]!r}, which nothing reads; write 'effect'.")
    config: IdempotencyConfig | None = metadata.get("idempotency")
    approval: ApprovalDefault | None = metadata.get("approval")
    if approval is not None and approval not in get_args(ApprovalDefault):
        choices = ", ".join(map(repr, get_args(ApprovalDefault)))
        declaration.refuse(f"approval is {approval!r}; it must be one of {choices}.")
    hint = (hinted_effect(metadata.get("annotations")) if effect is None else None) or "state"
    # Python has declared when two calls are one effect, so the tool changes something, whatever its server claims.
    if hint == "read" and config is not None:
        hint = "state"
    own = declaration.declare_effect(effect or (None if hint == "state" else hint), config)
    declaration.check_effect(own, config)
    claims = own.effect == "external" if config is None else config.has_key
    external = effect if isinstance(effect, External) else None
    declaration.check_apply(external and external.apply, claims=claims, concurrent=options["concurrent"])
    # Python may restrict what PydanticAI asks about, but cannot relax it.
    if (definition.kind == "unapproved" and approval != "deny") or (hint == "read" and approval is None):
        approval = "ask"
    return ToolMetadata(
        effect=own.effect,
        declares_effect=effect is not None,
        external=external,
        idempotency=config,
        approval=approval,
        **options,
    )


# --------------------------------------------------------------------------------------------------------------- a call

NOTHING_HIDDEN = schema_masking({})
"""The masking of a tool without secrets, or whose calls are only recorded."""

_CALL: ContextVar[ForeignCall] = ContextVar("handrail_foreign_call")
"""The current call. A tool is created once for all its calls, so its handler looks up the call here."""

_NOTHING = object()
"""The placeholder for the value of a tool that has not returned."""


class _PlainJson:
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
        misfit: why the arguments of this call do not fit.
    """

    arguments_schema: Mapping[str, Any] = field(default_factory=lambda: {"type": "object"})
    misfit: ParseError | None = None
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
        """The arguments, validated by PydanticAI; raises its error if they did not fit."""
        if self.misfit is not None:
            raise self.misfit
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


@dataclass(slots=True, eq=False)
class ForeignCall:
    """One call of a foreign tool: `args` are its validated arguments, `arguments` the same as JSON; and its answer.

    Attributes:
        answer_lost: whether the toolset has not answered: it raised an exception that is not an answer of a tool.
    """

    toolset: AbstractToolset[Any]
    name: str
    args: dict[str, Any]
    context: RunContext[Any]
    tool: ToolsetTool[Any]
    arguments: dict[str, Any] = field(init=False)
    answer_lost: bool = field(init=False, default=False)
    _value: Any = field(init=False, default=_NOTHING)
    _failure: Exception | None = field(init=False, default=None)

    def __post_init__(self) -> None:
        self.arguments = plain_arguments(self.args, self.tool.tool_def)

    @property
    def schema(self) -> Mapping[str, Any]:
        """The JSON Schema of the tool's parameters, with secrets marked."""
        schema = self.tool.tool_def.parameters_json_schema
        return with_secrets_marked(schema, self.arguments_with_secrets()) if holds_secret(self.args) else schema

    def arguments_with_secrets(self) -> dict[str, Any]:
        """The arguments as JSON, with the secrets that validation has created instead of their masks."""
        return plain_arguments(self.args, self.tool.tool_def, with_secrets=True)

    def under_way(self) -> AbstractContextManager[None]:
        """Makes this the current call of its tool's handler, in the block and in what it starts."""
        return in_context(_CALL, self)

    def answer(self, message: ToolMessage) -> Any:  # noqa: ANN401 - whatever the tool returns
        """The answer for PydanticAI, after the pipeline has finished the call.

        Raises:
            ModelRetry: as the tool raised it.
            ToolFailed: as the tool raised it, or because the call was refused or failed.
        """
        if self._failure is not None:
            raise _like(self._failure, message.content) if message.is_changed or message.feedback else self._failure
        if not message.success:
            raise ToolFailed(message.content)
        if self._value is _NOTHING:  # the call was answered from a record
            return ToolReturn(replayed_value(message), metadata={"replayed": message.replayed})
        if message.is_changed:
            return with_value(self._value, message_content(message), message.marks)
        return advised_value(self._value, message)

    def postpone(self, error: CallPostponed) -> Never:
        """Postpones the call in PydanticAI."""
        if self._failure is not None:
            raise self._failure
        raise ApprovalRequired from error

    async def run(self, *, acts_outside: bool) -> ToolResult[Any]:
        """Runs the call by the toolset; step HANDLER of the pipeline."""
        try:
            value = await self.toolset.call_tool(self.name, self.args, self.context, self.tool)
            # It has run to its end.
            refusal = EffectUncertain if acts_outside else ToolValidationError
            self._value, plain, files = freeze_value(self.name, value, refusal)
            return ToolResult.ok(plain, parts=files)
        except (ApprovalRequired, CallDeferred) as error:
            self._failure = error
            why = str(error) or f"it raised {type(error).__name__}"
            raise CallPostponed(f"{self.name} is postponed: {why}") from error
        except (ModelRetry, ToolFailed) as error:
            self.answer_lost = is_answer_lost(error)
            # PydanticAI converts a timeout of the tool into `ModelRetry`, with the `TimeoutError` as its context. An
            # external call that was cut off may have had its effect, so the model must not simply repeat it.
            if acts_outside and (isinstance(error.__context__, TimeoutError) or self.answer_lost):
                raise EffectUncertain(f"{self.name} was stopped: {error}") from error
            # Without what the model must not read: a lone surrogate, what `text_for_model` replaces, and secrets.
            text = escape_surrogates(text_for_model(error, error.message))
            self._failure = error if text == error.message else _like(error, text)
            raise ToolValidationError(str(error)) from error
        except UsageLimitExceeded as error:
            raise PromptEvaluationError(f"{self.name}: {error}", phase="budget", tool=self.name) from error
        except Exception:
            # The exception is not an answer of the tool, so its connection may be lost; see
            # `ThroughPipeline.__aexit__`.
            self.answer_lost = True
            raise


def _like(error: Exception, text: str) -> ModelRetry | ToolFailed:
    return ModelRetry(text) if isinstance(error, ModelRetry) else ToolFailed(text)


def foreign_tool(name: str, metadata: ToolMetadata, schema: Mapping[str, Any]) -> ForeignTool:
    """A tool of that name, which runs the current call."""

    async def run(_params: object, /, *, context: ToolContext) -> ToolResult[Any]:  # noqa: ARG001 - a handler's
        return await _CALL.get().run(acts_outside=metadata.effect == "external")

    # A "state" that only a server, or nothing, declares, is not an effect that the tool declares.
    is_declared = metadata.declares_effect or metadata.effect != "state"
    return ForeignTool(
        name=name,
        description="",
        handler=run,
        effect=cast("Effect", metadata.external or (metadata.effect if is_declared else None)),
        concurrent=metadata.concurrent,
        idempotency=metadata.idempotency,
        max_result_chars=metadata.max_result_chars,
        untrusted=metadata.untrusted,
        arguments_schema=schema,
        masking=schema_masking(schema),
    )


def is_answer_lost(error: BaseException | None) -> bool:
    """Whether an exception of a tool, or one in its chain, leaves the server's action unknown."""
    chain: set[int] = set()  # it may contain itself, which Python permits
    while error is not None and id(error) not in chain:
        chain.add(id(error))
        if isinstance(error, BaseExceptionGroup):
            if any(map(is_answer_lost, cast("BaseExceptionGroup[BaseException]", error).exceptions)):  # of any type
                return True
        elif _is_lost(getattr(error, "error", None)):
            return True
        error = error.__cause__
    return False


def _is_lost(fault: object) -> bool:
    code: object = getattr(fault, "code", None)
    # Not `isinstance`: `True` is an `int`, and is not a code.
    return type(code) is int and not proves_nothing_done(code, getattr(fault, "message", None))
