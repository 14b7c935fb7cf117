"""A call of a tool that is not Handrail's, on its way through the pipeline: a plain function, an MCP server's tool.

PydanticAI has validated its arguments, and carries it out by its own toolset; in between stand the steps that every
call takes. The tool becomes a `ForeignTool`, made for this one call, whose handler is the call itself.

| the toolset | the pipeline | PydanticAI is told |
|---|---|---|
| returns | commits | what was returned, as it is |
| raises `ModelRetry` or `ToolFailed` | rolls back; a failed call | the same exception |
| is external, and raises either for a `TimeoutError` | rolls back; a failed call, its effect unknown | `ToolFailed` |
| raises `ApprovalRequired` or `CallDeferred` | rolls back; postponed, so not recorded | the same exception |
| raises `UsageLimitExceeded` | rolls back; ends the run | `PromptEvaluationError` of phase `budget` |
| raises any other exception | rolls back; a failed call, logged | `ToolFailed` with type and message |
| is not asked, because a step refuses the call | a failed call | `ToolFailed` with the refusal |
| is not asked, because the ledger has the result | applies it | what the ledger has |
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Never, cast

from pydantic_ai import (
    ApprovalRequired,
    CallDeferred,
    ModelRetry,
    RunContext,
    ToolFailed,
    ToolReturn,
    ToolsetTool,
    UsageLimitExceeded,
)
from pydantic_ai.toolsets import AbstractToolset
from pydantic_core import from_json, to_json
from typing_extensions import override  # pydantic brings it; `typing` has it from Python 3.12 on

from handrail.adapters.pydantic_ai.foreign_effects import Declared
from handrail.errors import CallPostponed, EffectUncertain, PromptEvaluationError, ToolValidationError
from handrail.prompt import Tool, ToolContext, ToolResult
from handrail.runtime import ToolMessage
from handrail.serde import Codec

_CONTEXT: ContextVar[ToolContext | None] = ContextVar("handrail_tool_context", default=None)


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

    Its parameters are the validated arguments as JSON has them.
    """

    @override
    def __post_init__(self) -> None:
        set_field = object.__setattr__
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
    def fault_of(self, result: ToolResult[Any]) -> str | None:
        """Any value will do."""
        return None


class ForeignCall:
    """One call of a foreign tool: what the toolset is handed, and what it answers.

    Attributes:
        arguments: the validated arguments as JSON has them.
        context: PydanticAI's run context of the call.
    """

    __slots__ = ("_acts_outside", "_args", "_name", "_returned", "_told", "_tool", "_toolset", "arguments", "context")

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
        self._name = name
        self._args = args
        self._tool = tool
        self._returned: Any = _NOTHING
        self._told: Exception | None = None
        self._acts_outside = False
        self.context = context
        self.arguments = arguments_of(args)

    def as_tool(self, declared: Declared) -> ForeignTool:
        """The tool that is called, with this very call as its handler."""
        self._acts_outside = declared.effect == "external"
        return ForeignTool(
            name=self._name,
            description=self._tool.tool_def.description or "",
            handler=self._carry_out,
            effect=declared.effect,
            concurrent=declared.concurrent,
            idempotency=declared.idempotency,
        )

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
        return message.result.value if self._returned is _NOTHING else self._returned

    def postponed(self, error: CallPostponed) -> Never:
        """Tell PydanticAI that the call is put off.

        Raises:
            ApprovalRequired: as the tool raised it, or because the question about the call was left open.
            CallDeferred: as the tool raised it.
        """
        if self._told is not None:
            raise self._told
        raise ApprovalRequired from error

    async def _carry_out(self, _params: object, /, *, context: ToolContext) -> ToolResult[Any]:
        token = _CONTEXT.set(context)
        try:
            returned = await self._toolset.call_tool(self._name, self._args, self.context, self._tool)
            if isinstance(returned, Generator):  # it can be read once, and what it does on the way belongs to the call
                returned = list(cast("Iterable[object]", returned))
        except (ApprovalRequired, CallDeferred) as error:
            self._told = error
            raise CallPostponed(f"{self._name} is put off: {str(error) or type(error).__name__}") from error
        except (ModelRetry, ToolFailed) as error:
            if self._acts_outside and isinstance(error.__context__, TimeoutError):
                raise EffectUncertain(
                    f"{self._name} was stopped: {error} Whether it took effect outside is unknown: find out before "
                    "asking for it again, or let a person decide."
                ) from error
            self._told = error
            raise ToolValidationError(str(error)) from error
        except UsageLimitExceeded as error:
            raise PromptEvaluationError(f"{self._name}: {error}", phase="budget", tool=self._name) from error
        finally:
            _CONTEXT.reset(token)
        self._returned = returned
        return ToolResult.ok(_plain(returned.return_value if isinstance(returned, ToolReturn) else returned))


_NOTHING = object()
"""Stands for what a tool returns, as long as it has not."""


_UNSAID = object()
"""Stands for what JSON cannot say."""


def arguments_of(args: object) -> dict[str, Any]:
    """Validated arguments as JSON has them; what JSON cannot say is told in words."""
    plain = _as_json(args)
    if plain is _UNSAID and isinstance(args, dict):
        named = cast("dict[object, object]", args)  # keys may be anything
        return {str(_plain(name)): _plain(value) for name, value in named.items()}
    plain = _in_words(args) if plain is _UNSAID else plain
    return cast("dict[str, Any]", plain) if isinstance(plain, dict) else {"arguments": plain}  # JSON's keys are strings


def _plain(value: object) -> Any:  # noqa: ANN401 - decoded JSON
    found = _as_json(value)
    return _in_words(value) if found is _UNSAID else found


def _as_json(value: object) -> Any:  # noqa: ANN401 - as above
    if value is None or type(value) is bool or (type(value) is str and value.isascii()):
        return value
    try:
        return from_json(to_json(value, serialize_unknown=True, inf_nan_mode="strings"))
    except Exception:  # noqa: BLE001 - it holds itself or half a character, or its own code fails: told in words
        return _UNSAID


def _in_words(value: object) -> str:
    try:
        return repr(value).encode("utf-8", "backslashreplace").decode()
    except Exception:  # noqa: BLE001 - it cannot even be looked at: told by its type
        return f"(a value of type {type(value).__name__} that cannot be shown)"
