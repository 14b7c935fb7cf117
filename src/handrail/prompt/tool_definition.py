"""The definition of a tool: a name, two types, a handler, and what the runtime needs to run its calls.

`tool_declaration` has the checks of the declaration, `function_signature` the handler of a tool that is a function.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, is_dataclass
from datetime import timedelta
from functools import partial
from inspect import iscoroutinefunction
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Protocol, TypedDict, TypeVar, Unpack, cast

from handrail.errors import DumpError, ParseError, PromptValidationError
from handrail.prompt.context import ToolContext
from handrail.prompt.signature import (
    AnyCallable,
    ApplyEffect,
    Effect,
    Reconcile,
    TypedAlias,
    annotation_name,
    handler_types,
    is_async,
    type_arguments,
    typed_alias,
)
from handrail.prompt.tool_declaration import Declaration, DeclaredEffect, NoParams
from handrail.prompt.tool_result import ToolResult, check_value, parts_fault
from handrail.redaction import redacted_logger
from handrail.serde import Codec, Masking, codec, result_codec, result_masking, schema_masking, type_masking
from handrail.serde.annotations import subscriptable
from handrail.serde.formatting import shorten
from handrail.serde.json_values import stated_arguments

if TYPE_CHECKING:
    from handrail.prompt.function_signature import InjectedParameter
    from handrail.prompt.idempotency import External, IdempotencyConfig, OnOrphan
    from handrail.prompt.undo import Undo

P = TypeVar("P")
R = TypeVar("R")
P_contra = TypeVar("P_contra", contravariant=True)
P_co = TypeVar("P_co", covariant=True)
R_co = TypeVar("R_co", covariant=True)

# The default, which becomes `"state"`; distinguishes a tool that declares `"state"` from one that declares nothing.
_NOT_SAID = cast("Effect", None)

_MOST_BYTES = 4  # the most bytes of one character in UTF-8

_LONGEST_SHOWN = 100

_log = redacted_logger("handrail.prompt")

MAX_RESULT_CHARS = 30_000
"""The default limit on the characters of a message: about 8,000 tokens, so that a conversation has room for many. It is
above what the file tools and the shell show at once."""


class ToolHandler(Protocol[P_contra, R_co]):
    """The handler of a tool: a plain function, an `async` one, or any callable object."""

    def __call__(self, params: P_contra, /, *, context: ToolContext) -> ToolResult[R_co] | Awaitable[ToolResult[R_co]]:
        """Runs a call; `params` are the parsed arguments, `None` for a tool without parameters."""
        ...


@subscriptable
@dataclass(frozen=True, slots=True, kw_only=True)
class ToolExample(Generic[P_co, R_co]):
    """A valid call, shown to the model; the tool checks it against its types.

    Attributes:
        description: 1 to 8,000 characters.
        input: the parameters; `None` for a tool without parameters.
        output: the value of the result; `None` for a tool without a value.
    """

    description: str
    input: P_co
    output: R_co


class PlainOptions(TypedDict, total=False):
    """The options of a tool whose types do not depend on its own; `Tool` says what they mean."""

    accepts_overrides: bool
    idempotency: IdempotencyConfig | bool | None
    effect: Effect | External
    timeout: timedelta | None
    undo: Undo | AnyCallable | None
    capture: AnyCallable | None
    preview: AnyCallable | None
    concurrent: bool
    max_result_chars: int
    untrusted: bool
    sanitizes: bool


class ToolOptions(PlainOptions, total=False):
    """The options of a tool beside its name, description and handler; `Tool` says what they mean."""

    examples: Sequence[ToolExample[Any, Any]]


@subscriptable
@dataclass(frozen=True, slots=True, kw_only=True, eq=False, weakref_slot=True)
class Tool(Generic[P, R]):
    """A function that a model may call. `handrail.tool` makes one of a typed function; this is the form below it.

    `Tool[Params, Result](...)`: the parameters are a dataclass, a pydantic model, a TypedDict or `None`; the result is
    any type that JSON can say, or `None`. Without brackets the types are those that the handler is annotated with.

    The declaration is checked at creation, and a tool is immutable. `dataclasses.replace` makes a copy with the same
    types and the same declaration of the effect.

    Attributes:
        name: the name by which the model calls it: `^[A-Za-z0-9_-]{1,64}$`.
        description: the description that the model reads, 1 to 8,000 characters, stripped.
        handler: `handler(params, *, context) -> ToolResult[Result]`, plain or `async`; without one, each call fails.
        accepts_overrides: whether its descriptions, also of parameters and examples, may be replaced by overrides.
        idempotency: when two calls are one effect; `True` is `IdempotencyConfig()`. Not for `effect="read"`.
        effect: what a call does to the world. A `"read"` may run concurrently with other reads, and may not write. An
            `External` declares details of an external effect; the attribute is `"external"` then.
        timeout: how long the handler may take; `None` for as long as the run's deadline allows.
        undo: undoes the effect of a call after its commit: a function, or an `Undo`, which the attribute is; see
            `handrail.prompt.undo`. Not for `effect="read"`.
        capture: reads what `undo` needs of the state before the effect.
        preview: returns the result that the handler would return, for a dry run of an external tool.
        concurrent: for slow, independent work: the handler runs concurrently with reads and touches no resource that
            can be rolled back, and only the value that it returns is applied.
        max_result_chars: how many characters the message of a call has at most, at least 1,000. A longer text is cut;
            the rest is read by `read_result`, and the result is recorded whole.
        untrusted: whether third parties write what it returns: a web page, a mail. A call of it taints the session; see
            `handrail.taint`.
        sanitizes: whether it extracts values that may be used in a tainted session without asking; see
            `handrail.taint.policy`.
        writes: whether the handler may write, so that the call does not run concurrently with others of its session.
        claims: whether its calls claim an effect in the ledger before the handler starts.

    Raises:
        PromptValidationError: the declaration is invalid; the message states the fault and the correct form.
    """

    has_made_handler: ClassVar[bool] = False
    """Whether the handler is made by Handrail, so that it fits the types."""

    name: str
    description: str
    handler: ToolHandler[P, R] | None = None
    examples: Sequence[ToolExample[P, R]] = ()
    accepts_overrides: bool = True
    idempotency: IdempotencyConfig | None = None
    effect: Effect = _NOT_SAID
    timeout: timedelta | None = None
    undo: Undo | None = None
    capture: AnyCallable | None = None
    preview: AnyCallable | None = None
    concurrent: bool = False
    max_result_chars: int = MAX_RESULT_CHARS
    untrusted: bool = False
    sanitizes: bool = False
    external: External | None = field(init=False, repr=False)
    declares_effect: bool = field(init=False, repr=False)
    params_type: type[P] | None = field(init=False)
    result_type: type[R] | None = field(init=False)
    is_async: bool = field(init=False, repr=False)
    writes: bool = field(init=False, repr=False)
    claims: bool = field(init=False, repr=False)
    codec: Codec[P] = field(init=False, repr=False)
    value_codec: Codec[R] | None = field(init=False, repr=False)
    masking: Masking = field(init=False, repr=False)
    result_masking: Masking = field(init=False, repr=False)
    type_arguments: tuple[Any, ...] = field(init=False, repr=False)

    if TYPE_CHECKING:  # `effect` may be given as an `External`, and is read as a string

        def __init__(
            self,
            *,
            name: str,
            description: str,
            handler: ToolHandler[P, R] | None = None,
            examples: Sequence[ToolExample[P, R]] = (),
            **options: Unpack[PlainOptions],
        ) -> None: ...

    else:  # pragma: no branch - checkers know the brackets from `Generic`
        given_types: tuple[Any, ...] | None = field(default=None, repr=False)
        given_effect: DeclaredEffect | None = field(default=None, repr=False)
        given_schema: Mapping[str, Any] | None = field(default=None, repr=False)
        given_injected: tuple[Any, ...] = field(default=(), repr=False)

        def __class_getitem__(cls, types: Any) -> TypedAlias:  # noqa: ANN401 - types, in one of their many forms
            return typed_alias(cls, types, parameters="Params, Result")

    def __post_init__(self) -> None:
        schema: Mapping[str, Any] | None = getattr(self, "given_schema")  # noqa: B009 - a field that type checkers do not see
        arguments = type_arguments(self, or_else=partial(handler_types, self.handler))
        if arguments is None:
            raise PromptValidationError(
                "Tool needs its types, in brackets or as annotations of the handler: Tool[Params, Result](name=..., "
                "description=..., handler=...), with a dataclass for each, or None: Tool[Params, None](...).",
                tool=self.name,
            )
        declaration = Declaration(self.name, arguments[0], arguments[1], schema)
        # First, because every later error names the tool.
        declaration.check_texts(self.description)
        set_field = object.__setattr__
        set_field(self, "params_type", arguments[0])
        set_field(self, "result_type", arguments[1])
        set_field(self, "codec", declaration.params_codec())
        set_field(self, "value_codec", declaration.value_codec())
        config = cast("IdempotencyConfig | bool | None", self.idempotency)
        if isinstance(config, bool):
            from handrail.prompt.idempotency import IdempotencyConfig  # noqa: PLC0415

            set_field(self, "idempotency", IdempotencyConfig() if config else None)
        # Before the checks: they read what an `External` declares.
        combined = self.settle_effect(declaration)
        set_field(self, "masking", type_masking(arguments[0]) if schema is None else schema_masking(self.codec.schema))
        set_field(self, "result_masking", result_masking(arguments[1]))
        handler = None if self.has_made_handler else self.handler
        declaration.check_callables(handler=handler, reconcile=self.reconcile, apply=self.apply)
        declaration.check_effect(combined, self.idempotency)
        if self.undo is not None or self.capture is not None or self.preview is not None:
            self.settle_undo(declaration)
        declaration.check_options({name: getattr(self, name) for name in ToolOptions.__optional_keys__})
        if self.untrusted and self.sanitizes:
            declaration.refuse("what it returns is untrusted or sanitized, not both; leave one of the options out.")
        declaration.check_examples(self.examples)
        set_field(self, "description", self.description.strip())
        set_field(self, "examples", tuple(self.examples))
        # A handler that Handrail has made is awaited if it is defined so; its annotations say nothing more.
        asks = iscoroutinefunction if self.has_made_handler else is_async
        set_field(self, "is_async", self.handler is not None and asks(self.handler))
        set_field(self, "writes", self.effect != "read" and not self.concurrent)
        # With `strategy="none"` each call is an effect of its own, so an external tool with it claims nothing.
        set_field(self, "claims", self.effect == "external" if self.idempotency is None else self.idempotency.has_key)
        declaration.check_apply(self.apply, claims=self.claims, concurrent=self.concurrent)

    @staticmethod
    def from_json_schema(
        *,
        name: str,
        description: str,
        schema: Mapping[str, Any],
        handler: Callable[..., Any],
        **options: Unpack[ToolOptions],
    ) -> Tool[dict[str, Any], Any]:
        """Creates a tool whose schema is data: from an OpenAPI document, an MCP server, a benchmark.

        `schema` is the JSON Schema of the arguments, an object. `handler(arguments)`, plain or `async`, gets them as a
        `dict`, once they are valid; its further parameters are injected, and it returns the value of the result.

        Raises:
            PromptValidationError: the declaration or the schema is invalid, or the schema refers to another document.
            ModuleNotFoundError: the extra `schemas` is not installed.
        """
        from handrail.prompt.function_signature import DecoratedFunction, make_handler, read_signature  # noqa: PLC0415

        signature = read_signature(DecoratedFunction(handler, takes_data=True))
        build = cast("Callable[..., Tool[dict[str, Any], Any]]", Tool)  # checkers do not see the last fields
        return build(
            name=name,
            description=description,
            handler=make_handler(signature, takes_data=True),
            **options,
            given_types=(dict, signature.result_type),
            given_schema=schema,
            given_injected=signature.injected,
        )

    def settle_effect(self, declaration: Declaration) -> DeclaredEffect:
        """Combines the declarations of the effect, of this tool or of the one that it is a copy of."""
        effect = cast("object", self.effect)
        original: DeclaredEffect | None = getattr(self, "given_effect")  # noqa: B009 - a field that type checkers do not see
        if original is not None and effect == original.effect:
            effect = original.argument
        combined = declaration.declare_effect(effect, self.idempotency)
        for name in ("effect", "declares_effect", "external"):
            object.__setattr__(self, name, getattr(combined, name))
        object.__setattr__(self, "given_effect", combined)
        return combined

    def settle_undo(self, declaration: Declaration) -> None:
        """Makes a function an `Undo`, and checks it."""
        from handrail.prompt.undo import Undo  # noqa: PLC0415

        undo = cast("Undo | AnyCallable | None", self.undo)
        object.__setattr__(self, "undo", undo if undo is None or isinstance(undo, Undo) else Undo(undo))
        declaration.check_undo(self.undo, self.capture, self.preview, self.effect)

    @property
    def injected(self) -> tuple[InjectedParameter, ...]:
        """The parameters of its function that are injected; of a hand-written handler, what it needs."""
        parameters: tuple[InjectedParameter, ...] = getattr(self, "given_injected")  # noqa: B009 - as in `__post_init__`
        return parameters

    @property
    def on_orphan(self) -> OnOrphan:
        """What the next call of an effect does that may have happened; a declared change of state was rolled back."""
        if self.external is not None:
            return self.external.on_orphan
        return "retry" if self.declares_effect and self.effect == "state" else "unknown"

    @property
    def reconcile(self) -> Reconcile[P, R] | None:
        """Determines whether an unknown effect happened."""
        return None if self.external is None else self.external.reconcile

    @property
    def apply(self) -> ApplyEffect[P, R] | None:
        """Writes what belongs to an effect that has happened."""
        return None if self.external is None else self.external.apply

    @property
    def may_act(self) -> bool:
        """Returns whether a call may change the world outside of the program."""
        return self.effect == "external"

    @property
    def parameters_schema(self) -> dict[str, Any]:
        """The JSON Schema of the arguments, as the model sees it; a new one each time."""
        return self.codec.schema

    def parse(self, arguments: str | bytes | Mapping[str, Any], *, max_bytes: int | None = None) -> P:
        """Parses the arguments of a call; `None` for a tool without parameters.

        Args:
            arguments: JSON, or decoded already. An empty text, blanks and `null` are `{}`.
            max_bytes: their maximum size, as JSON in UTF-8; larger arguments are not parsed.

        Raises:
            ParseError: they do not fit; its `faults` has every one with its path.
        """
        arguments = stated_arguments(arguments)
        if self.params_type is None:
            # Others are parsed as arguments of an empty dataclass, which reports each argument as unexpected.
            if arguments not in ("{}", {}):
                codec(NoParams).parse(arguments, max_bytes=max_bytes)
            return cast("P", None)  # P is None here
        # The fast path: a text this short is within the limit in any encoding of its characters, so its bytes are not
        # counted.
        if type(arguments) is str and (max_bytes is None or len(arguments) * _MOST_BYTES <= max_bytes):
            return self.codec.parse_json(arguments)
        return self.codec.parse(arguments, max_bytes=max_bytes)

    @property
    def key_codec(self) -> Codec[P] | None:
        """The codec that reads what keys are made of, if a default of the parameters is made up for each call."""
        return None if self.params_type is None else self.codec.for_keys()

    def key_params(self, arguments: str | bytes | Mapping[str, Any], params: object) -> object:
        """The parameters for keys: `None` for each default that is made up per call and was not sent.

        Raises:
            ParseError: the arguments no longer fit.
        """
        reader = self.key_codec
        return params if reader is None else reader.parse(stated_arguments(arguments))

    def with_secrets(self, params: P) -> object:
        """The parameters with the values of their secrets, for the hashes of a tool whose `masking` hides some."""
        return params

    def result_fault(self, result: ToolResult[Any], *, is_stored: bool = False) -> str | None:
        """The fault of a result, as text that follows what returned it; `None` if it is valid.

        The fields of a dataclass are not checked: the commit does that. A value that `is_stored` must be restored
        exactly.
        """
        value = result.value
        if result.parts and (fault := parts_fault(result.parts)):
            return fault
        # A failure may lack a value, whatever the type; most other values have exactly the declared class, so
        # `check_value` is rarely called.
        if type(value) is not self.result_type and (value is not None or result.success):
            fault = check_value(self.result_type, value)
            if fault is not None:
                return fault
        success = cast("object", result.success)  # which may be anything, as the message
        if not isinstance(success, bool):
            return f"returned a result whose success is {shorten(repr(success), _LONGEST_SHOWN)}"
        if not isinstance(cast("object", result.message), str):
            return f"returned a message of type {type(result.message).__name__}, but a message is a string"
        if value is None or self.value_codec is None or is_dataclass(value):
            return None
        codec = self.value_codec if is_stored else result_codec(self.result_type)
        return self._value_fault(value, codec, is_stored=is_stored)

    def _value_fault(self, value: R, codec: Codec[R], *, is_stored: bool) -> str | None:
        try:
            codec.parse_json(codec.dump_json(value))  # read back, because the serializer accepts invalid literals
        except (DumpError, ParseError) as error:
            if not is_stored and isinstance(error, DumpError) and not error.is_mistyped:
                return None  # a NaN or a lone surrogate: it need not be stored
            fault = str(error)
        else:
            return None
        return f"returned a value that does not fit {annotation_name(self.result_type)}: {fault}"

    def dump_value(self, value: R | None) -> bytes | None:
        """The value of a result as JSON, to be stored; `None` if JSON cannot represent it, which is logged."""
        if value is None or self.value_codec is None:
            return b"null" if value is None else None
        try:
            return self.value_codec.dump_json(value)
        except Exception as error:  # noqa: BLE001 - logged; whatever the value is, its effect has happened
            _log.warning("the value of a result of %s cannot be stored: %s", self.name, error)
            return None

    def load_value(self, data: bytes) -> R | None:
        """Loads a value that `dump_value` has written.

        Raises:
            ParseError: `dump_value` cannot have written the text.
        """
        # `dump_value` writes this for a result without a value, whatever the type.
        if data == b"null":
            return None
        if self.value_codec is None:
            raise ParseError(f"{self.name} declares no value, but one was stored")
        return self.value_codec.parse_json(data)
