"""What a declared tool is held to. Pure checks, each of which raises `PromptValidationError` or lets it pass."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, NoReturn, cast, get_origin

from handrail.errors import DumpError, ParseError, PromptValidationError, SchemaError
from handrail.prompt.effect import DeclaredEffect, Effect
from handrail.prompt.external import External, Reconcile
from handrail.prompt.idempotency import IdempotencyConfig
from handrail.prompt.signature import Contract, handler_fault, reconcile_fault
from handrail.prompt.tool_result import check_value
from handrail.prompt.type_parameters import is_dataclass_type, name_of
from handrail.serde import Codec, codec, stored_codec

_NAME = re.compile(r"[a-z0-9_-]{1,64}")
_LONGEST_DESCRIPTION = 200


@dataclass(frozen=True, slots=True)
class NoParams:
    """Takes no arguments."""


@dataclass(frozen=True, slots=True)
class Declaration:
    """The name and types of a tool that is being declared.

    Attributes:
        name: the tool's name.
        params_type: the first type in the brackets.
        result_type: the second type in the brackets.
    """

    name: str
    params_type: Any
    result_type: Any

    def refuse(self, fault: str, *, result: bool = False, cause: Exception | None = None) -> NoReturn:
        """Raise the error that says what is wrong; `result` says that it is wrong about the result type."""
        raise PromptValidationError(
            fault, tool=self.name, dataclass=self.result_type if result else self.params_type
        ) from cause

    def check_texts(self, description: object) -> None:
        """Hold name and description to their forms."""
        name = cast("object", self.name)  # whatever was given for it
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            near = re.sub(r"[^a-z0-9_-]+", "_", str(name).lower()).strip("_")[:64]
            self.refuse(
                f"the name {name!r} is not 1 to 64 lower-case letters, digits, '_' and '-'"
                f"{f'; write {near!r}' if near else ''}."
            )
        _check_description(self, "description", description)

    def params_codec(self) -> Codec[Any]:
        """The codec of the parameters."""
        kind = self.params_type
        if kind is None:
            return codec(NoParams)
        if not is_dataclass_type(get_origin(kind) or kind):
            self.refuse(f"the parameters are {name_of(kind)}; they must be a dataclass, or None for a tool without.")
        try:
            return codec(kind)
        except SchemaError as error:
            self.refuse(f"the parameters {name_of(kind)} have no schema: {error}", cause=error)

    def value_codec(self) -> Codec[Any] | None:
        """The codec by which the result's value is stored; `None` for a tool without."""
        if self.result_type is None:
            return None
        try:
            return stored_codec(self.result_type)
        except SchemaError as error:
            self.refuse(
                f"{name_of(self.result_type)} cannot be the result; declare a dataclass, a mapping, a sequence, str, "
                f"or None: {error}",
                result=True,
                cause=error,
            )

    def check_callables(self, handler: object, reconcile: object) -> None:
        """Hold handler and reconcile to the types."""
        contract = Contract(self.params_type, self.result_type)
        for what, function, fault_of in (
            ("handler", handler, handler_fault),
            ("reconcile", reconcile, reconcile_fault),
        ):
            if function is None:
                continue
            if not callable(function):
                self.refuse(f"{what} is {function!r}, which cannot be called.")
            fault = fault_of(function, contract)
            if fault is not None:
                self.refuse(fault)

    def effect_of(self, effect: object, idempotency: object, reconcile: Reconcile[Any, Any] | None) -> DeclaredEffect:
        """Bring together what is said of the effect in several fields of `Tool`."""
        try:
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
        """Refuse what contradicts itself in what is said of the effect."""
        if external is not None and external.on_orphan == "reconcile" and reconcile is None:
            self.refuse("on_orphan='reconcile' needs reconcile=..., a function of the parameters and the key.")
        if idempotency is not None:
            if effect == "read":
                self.refuse(
                    "a tool that only reads has no effect to be idempotent; leave idempotency out, or the effect."
                )
            idempotency.check_params_type(get_origin(self.params_type) or self.params_type, tool=self.name)
            if idempotency.on_orphan == "reconcile" and reconcile is None:
                self.refuse("on_orphan='reconcile' needs reconcile=..., a function of the parameters and the key.")
        if reconcile is not None and effect != "external" and idempotency is None:
            self.refuse(
                "reconcile asks what became of an effect in the ledger, and this tool has none there; declare "
                "effect='external' or idempotency=IdempotencyConfig(...)."
            )

    def check_timeout(self, timeout: object) -> None:
        """Hold the timeout to be a span of time."""
        if timeout is None:
            return
        if not isinstance(timeout, timedelta):
            self.refuse(f"timeout is {timeout!r}; write a span with its unit: timeout=timedelta(seconds=30).")
        if timeout <= timedelta(0):
            self.refuse(f"timeout is {timeout}, which leaves no time; write more than zero, or None for no limit.")

    def check_examples(self, examples: object, example_type: type[Any]) -> None:
        """Hold every example to the types, and to the schema that the model is shown."""
        if not isinstance(examples, Sequence) or isinstance(examples, str):
            self.refuse(f"examples is a {type(examples).__name__}; write examples=(ToolExample(...),).")
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
                its_codec.parse_json(its_codec.dump_json(value))
            except (DumpError, ParseError) as error:
                self.refuse(
                    f"the {what} of example {number} does not fit {name_of(kind)}: {error}", result=result, cause=error
                )


def _check_description(declaration: Declaration, what: str, text: object) -> None:
    if not isinstance(text, str):
        declaration.refuse(f"{what} is {text!r}; it must be a string.")
    length = len(text.strip())
    if not 1 <= length <= _LONGEST_DESCRIPTION:
        declaration.refuse(f"{what} has {length} characters; it must have 1 to {_LONGEST_DESCRIPTION}.")


def _instance_of(kind: object) -> str:
    return "None" if kind is None else f"an instance of {name_of(kind)}"
