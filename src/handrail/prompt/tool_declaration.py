"""The checks of the declaration of a tool: they are pure, and each raises `PromptValidationError` or does nothing.

The name of a tool and its descriptions are held to what the APIs of models take.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, FrozenInstanceError, dataclass, fields
from datetime import timedelta
from typing import Any, Final, NamedTuple, NoReturn, cast, get_origin

from handrail.errors import DumpError, ParseError, PromptValidationError, SchemaError
from handrail.prompt.effect import DeclaredEffect, Effect, External, Reconcile
from handrail.prompt.idempotency import IdempotencyConfig
from handrail.prompt.signature import HandlerContract, apply_fault, handler_fault, reconcile_fault
from handrail.prompt.tool_result import check_value
from handrail.prompt.type_parameters import annotation_name
from handrail.serde import Codec, codec, stored_codec
from handrail.serde.annotations import is_record
from handrail.serde.json_values import escape_surrogates

# What the APIs of OpenAI and Anthropic take.
_NAME: Final = r"[A-Za-z0-9_-]{1,64}"

LONGEST_DESCRIPTION: Final = 8_000
"""Characters of the description of a tool or of an example."""


def name_fault(name: object) -> str:
    """Why it cannot be the name of a tool, as text that follows the name; empty if it can."""
    is_name = isinstance(name, str) and re.fullmatch(_NAME, name)
    return "" if is_name else "is not 1 to 64 letters, digits, '_' and '-'"


def near_name(name: object) -> str:
    """A similar name that can be that of a tool; empty if there is none."""
    return re.sub(r"[^A-Za-z0-9_-]+", "_", str(name)).strip("_")[:64]


def description_fault(text: str) -> str:
    """Why a text cannot be the description of a tool, as text that follows what it is; empty if it can."""
    # The APIs take UTF-8: one lone surrogate would fail every request of the run.
    if escape_surrogates(text) is not text:
        return "has a lone surrogate, which is not Unicode; leave it out"
    length = len(text.strip())
    if not 1 <= length <= LONGEST_DESCRIPTION:
        return f"has {length} characters; it must have 1 to {LONGEST_DESCRIPTION}"
    return ""


MIN_RESULT_CHARS = 1_000
"""The least that `max_result_chars` may be: what is said about a cut takes up to 800 characters."""


@dataclass(frozen=True, slots=True)
class NoParams:
    """Takes no arguments."""


class Arguments:
    """The base of the classes that are made for the parameters of functions: immutable, and compared by value.

    The class of a function has a field for each parameter that the model fills. It has no methods of its own, because
    making them takes longer than all else.
    """

    def __init__(self, /, **values: object) -> None:
        """Take the value of each field; those with a default may be left out.

        Raises:
            TypeError: a value is missing, or there is no such field.
        """
        named = {each.name: each for each in _fields_of(self)}
        given = dict(values)
        for name, each in named.items():
            if name in given:
                continue
            if each.default is not MISSING:
                given[name] = each.default
            elif each.default_factory is not MISSING:
                given[name] = each.default_factory()
        if wrong := sorted(named.keys() ^ given.keys()):
            raise TypeError(
                f"{type(self).__qualname__} takes {', '.join(named)}; missing or unknown: {', '.join(wrong)}"
            )
        vars(self).update(given)

    def __setattr__(self, name: str, value: object) -> None:
        raise FrozenInstanceError(f"cannot assign to field {name!r}")

    def __delattr__(self, name: str) -> None:
        raise FrozenInstanceError(f"cannot delete field {name!r}")

    def __repr__(self) -> str:
        return f"{type(self).__qualname__}({', '.join(f'{name}={value!r}' for name, value in vars(self).items())})"

    def __eq__(self, other: object) -> bool:
        return vars(self) == vars(other) if type(other) is type(self) else NotImplemented

    def __hash__(self) -> int:
        return hash((type(self), *vars(self).values()))


def _fields_of(arguments: object) -> Sequence[Any]:
    return fields(cast("Any", arguments))  # a subclass of `Arguments` is a dataclass


class Declaration(NamedTuple):
    """The name and types of a tool, for the checks of its declaration.

    Attributes:
        name: the tool's name.
        params_type: the first type in the brackets.
        result_type: the second type in the brackets.
        schema: the JSON Schema of the arguments, of a tool whose schema is data.
    """

    name: str
    params_type: Any
    result_type: Any
    schema: Mapping[str, Any] | None = None

    def refuse(self, fault: str, *, result: bool = False, cause: Exception | None = None) -> NoReturn:
        """Raise the error for a fault; `result` is true if the fault is in the result type."""
        raise PromptValidationError(
            fault, tool=self.name, dataclass=self.result_type if result else self.params_type
        ) from cause

    def check_texts(self, description: object) -> None:
        """Check name and description."""
        name = cast("object", self.name)  # it may be anything
        if fault := name_fault(name):
            # A spelling that would be accepted, so that the message can be copied.
            near = near_name(name)
            self.refuse(f"the name {name!r} {fault}{f'; write {near!r}' if near else ''}.")
        _check_description(self, "description", description)

    def params_codec(self) -> Codec[Any]:
        """The codec of the parameters."""
        if (kind := self.params_type) is None:
            return codec(NoParams)
        if self.schema is None and not is_record(get_origin(kind) or kind):
            self.refuse(
                f"the parameters are {annotation_name(kind)}; they must be a dataclass, a pydantic model or a "
                "TypedDict, or None for a tool without."
            )
        try:
            if self.schema is None:
                return codec(kind)
            # It needs an extra, and few programs have such a tool.
            from handrail.serde.schema_codec import schema_codec  # noqa: PLC0415

            return schema_codec(self.schema)
        except SchemaError as error:
            self.refuse(f"the parameters {annotation_name(kind)} have no schema: {error}", cause=error)

    def value_codec(self) -> Codec[Any] | None:
        """The codec of the stored value of a result; `None` for a tool without a value."""
        if self.result_type is None:
            return None
        try:
            # A tool may never meet a store or a ledger; an executor that has one checks the type.
            return stored_codec(self.result_type, unambiguous=False)
        except SchemaError as error:
            self.refuse(
                f"{annotation_name(self.result_type)} cannot be the result; declare a type that JSON can say, such as "
                f"a dataclass, or None: {error}",
                result=True,
                cause=error,
            )

    def check_callables(self, handler: object, reconcile: object, apply: object) -> None:
        """Check handler, reconcile and apply against the types."""
        contract = HandlerContract(self.params_type, self.result_type)
        for what, function, fault_of in (
            ("handler", handler, handler_fault),
            ("reconcile", reconcile, reconcile_fault),
            ("apply", apply, apply_fault),
        ):
            if function is None:
                continue
            if not callable(function):
                self.refuse(f"{what} is {function!r}, which cannot be called.")
            if (fault := fault_of(function, contract)) is not None:
                self.refuse(fault)

    def check_apply(self, apply: object, *, claims: bool, concurrent: bool) -> None:
        """Refuse `apply` where no row of the ledger says whether it has run, or where the call may not write."""
        if apply is not None and not claims:
            self.refuse(
                "apply runs once for each effect in the ledger, and this tool has none there; leave out "
                "idempotency=IdempotencyConfig(strategy='none')."
            )
        if apply is not None and concurrent:
            self.refuse("apply writes in the turn of its call, which a concurrent tool shares; leave concurrent out.")

    def effect_of(self, effect: object, idempotency: object, reconcile: Reconcile[Any, Any] | None) -> DeclaredEffect:
        """Combine the fields of `Tool` that declare the effect."""
        try:
            # Its errors, and those of `External`, do not know the tool; `refuse` adds it.
            return DeclaredEffect.of(self.name, effect, idempotency, reconcile)
        except PromptValidationError as error:
            self.refuse(str(error), cause=error)

    def check_effect(
        self,
        effect: Effect,
        idempotency: IdempotencyConfig | None,
        reconcile: Reconcile[Any, Any] | None,
        external: External | None,
    ) -> None:
        """Refuse contradictory declarations of the effect."""
        if external is not None and external.on_orphan == "reconcile" and reconcile is None:
            self.refuse("on_orphan='reconcile' needs reconcile=..., a function of the parameters and the key.")
        if idempotency is not None:
            if effect == "read":
                self.refuse(
                    "a tool that only reads has no effect to be idempotent; leave idempotency out, or the effect."
                )
            # The fields of a generic dataclass are those of its class, not of the alias.
            fields = None if self.schema is None else tuple(self.schema.get("properties", ()))
            kind = get_origin(self.params_type) or self.params_type
            idempotency.check_params_type(kind, tool=self.name, fields=fields)
            if idempotency.on_orphan == "reconcile" and reconcile is None:
                self.refuse("on_orphan='reconcile' needs reconcile=..., a function of the parameters and the key.")
        if reconcile is not None and effect != "external" and idempotency is None:
            self.refuse(
                "reconcile resolves an effect in the ledger, and this tool has none there; declare "
                "effect='external' or idempotency=IdempotencyConfig(...)."
            )

    def check_limits(self, timeout: object, max_result_chars: object) -> None:
        """Check that the timeout is a positive span of time, and that messages have room for what a cut says."""
        if type(max_result_chars) is not int or max_result_chars < MIN_RESULT_CHARS:
            self.refuse(
                f"max_result_chars is {max_result_chars!r}; write a number of characters, {MIN_RESULT_CHARS} or more."
            )
        if timeout is None:
            return
        if not isinstance(timeout, timedelta):
            self.refuse(f"timeout is {timeout!r}; write a span with its unit: timeout=timedelta(seconds=30).")
        if timeout <= timedelta(0):
            self.refuse(f"timeout is {timeout}, which leaves no time; write more than zero, or None for no limit.")

    def check_flags(self, **flags: object) -> None:
        """Check that flags are booleans: `"no"` would count as true."""
        for name, value in flags.items():
            if not isinstance(value, bool):
                self.refuse(f"{name} is {value!r}; write {name}=True or {name}=False.")

    def check_examples(self, examples: object, example_type: type[Any]) -> None:
        """Check every example against the types, and against the schema that the model sees."""
        if not isinstance(examples, Sequence) or isinstance(examples, str):
            self.refuse(f"examples is of type {type(examples).__name__}; write examples=(ToolExample(...),).")
        for number, example in enumerate(cast("Sequence[object]", examples), start=1):
            if not isinstance(example, example_type):
                self.refuse(
                    f"example {number} is {example!r}; write ToolExample(description=..., input=..., output=...)."
                )
            self._check_example(number, example)

    def _check_example(self, number: int, example: Any) -> None:  # noqa: ANN401 - a ToolExample of the types just checked
        _check_description(self, f"the description of example {number}", example.description)
        for what, kind, value, its_codec in (
            ("input", self.params_type, example.input, self.params_codec()),
            ("output", self.result_type, example.output, self.value_codec()),
        ):
            result = what == "output"
            if check_value(kind, value) is not None:
                self.refuse(
                    f"the {what} of example {number} is {value!r}; it must be {_instance_of(kind)}.", result=result
                )
            if value is None or its_codec is None:
                continue
            try:
                # Through JSON and back: the serializer accepts values that the schema of the type does not permit.
                its_codec.parse_json(its_codec.dump_json(value))
            except (DumpError, ParseError) as error:
                self.refuse(
                    f"the {what} of example {number} does not fit {annotation_name(kind)}: {error}",
                    result=result,
                    cause=error,
                )


def _check_description(declaration: Declaration, what: str, text: object) -> None:
    if not isinstance(text, str):
        declaration.refuse(f"{what} is {text!r}; it must be a string.")
    if fault := description_fault(text):
        declaration.refuse(f"{what} {fault}.")


def _instance_of(kind: object) -> str:
    return "None" if kind is None else f"an instance of {annotation_name(kind)}"
