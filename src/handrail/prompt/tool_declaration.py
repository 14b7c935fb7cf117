"""The checks of the declaration of a tool: they are pure, and each raises `PromptValidationError` or does nothing.

The name of a tool and its descriptions are held to what the APIs of models take.
"""

from __future__ import annotations

import re
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import MISSING, FrozenInstanceError, dataclass, fields
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final, NamedTuple, NoReturn, cast, get_args, get_origin

from handrail.errors import DumpError, ParseError, PromptValidationError, SchemaError
from handrail.prompt.signature import CallableRole, Effect, annotation_name, role_fault
from handrail.prompt.tool_result import check_value
from handrail.serde import Codec, codec, stored_codec
from handrail.serde.annotations import is_record
from handrail.serde.json_values import escape_surrogates

if TYPE_CHECKING:
    from handrail.prompt.idempotency import External, IdempotencyConfig
    from handrail.prompt.undo import Undo

# What the APIs of OpenAI and Anthropic take.
_NAME: Final = r"[A-Za-z0-9_-]{1,64}"

LONGEST_DESCRIPTION: Final = 8_000
"""Characters of the description of a tool or of an example."""


def name_fault(name: object) -> str:
    """The reason why it cannot be the name of a tool, as text that follows the name; empty if it can."""
    is_name = isinstance(name, str) and re.fullmatch(_NAME, name)
    return "" if is_name else "is not 1 to 64 letters, digits, '_' and '-'"


def near_name(name: object) -> str:
    """A similar name that can be that of a tool; empty if there is none."""
    return re.sub(r"[^A-Za-z0-9_-]+", "_", str(name)).strip("_")[:64]


def description_fault(text: str) -> str:
    """The reason why a text cannot be the description of a tool, as text that follows what it is; empty if it can."""
    # The APIs take UTF-8: one lone surrogate would fail every request of the run.
    if escape_surrogates(text) is not text:
        return "has a lone surrogate, which is not Unicode; leave it out"
    length = len(text.strip())
    if not 1 <= length <= LONGEST_DESCRIPTION:
        return f"has {length} characters; it must have 1 to {LONGEST_DESCRIPTION}"
    return ""


@contextmanager
def locate_faults(
    *, section_path: Sequence[str] = (), tool: str | None = None, dataclass: type[object] | None = None
) -> Generator[None]:
    """Adds where it is to an error about a declaration that does not say so."""
    try:
        yield
    except PromptValidationError as error:
        if error.section_path or error.tool:
            raise
        raise PromptValidationError(
            str(error), section_path=section_path, tool=tool, dataclass=error.dataclass or dataclass
        ) from error.__cause__


def check_flags(fields: Mapping[str, object], *names: str) -> None:
    """Checks that fields are booleans: `"no"` would count as true."""
    for name in names:
        if not isinstance(flag := fields[name], bool):
            raise PromptValidationError(f"{name} is {flag!r}; write {name}=True or {name}=False.")


MIN_RESULT_CHARS = 1_000
"""The least that `max_result_chars` may be: what is said about a cut takes up to 800 characters."""


@dataclass(frozen=True, slots=True)
class NoParams:
    """Takes no arguments."""


class Arguments:
    """The base of the classes that are made for the parameters of functions: immutable, and compared by value.

    It has all methods, because making them for each class takes longer than all else.
    """

    def __init__(self, /, **values: object) -> None:
        cls: Any = type(self)  # a subclass, which is a dataclass
        by_name = {field.name: field for field in fields(cls)}
        defaults = {name: field.default for name, field in by_name.items() if field.default is not MISSING}
        factories = {name: field.default_factory for name, field in by_name.items()}
        defaults |= {name: factory() for name, factory in factories.items() if callable(factory)}
        if wrong := sorted(by_name.keys() ^ (defaults | values).keys()):
            raise TypeError(f"{cls.__qualname__} takes {', '.join(by_name)}; missing or unknown: {', '.join(wrong)}")
        vars(self).update({name: (defaults | values)[name] for name in by_name})

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


class DeclaredEffect(NamedTuple):
    """The effect declared by a tool; most names are those of the fields of `Tool`.

    Attributes:
        declares_effect: whether `effect` was given.
        external: the declaration of an external effect; `None` for any other effect.
        argument: `effect` as the tool was given it, for its copies: in the field an `External` is only a word.
    """

    effect: Effect
    declares_effect: bool
    external: External | None
    argument: object


class Declaration(NamedTuple):
    """The name and types of a tool; `schema` for a tool whose schema is data."""

    name: str
    params_type: Any
    result_type: Any
    schema: Mapping[str, Any] | None = None

    def refuse(self, fault: str, *, result: bool = False, cause: Exception | None = None) -> NoReturn:
        """Raises the error for a fault; `result` is true if the fault is in the result type."""
        kind = self.result_type if result else self.params_type
        raise PromptValidationError(fault, tool=self.name, dataclass=kind) from cause

    def check_texts(self, description: object) -> None:
        """Checks name and description."""
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

    def check_callables(self, **roles: object) -> None:
        """Checks handler, reconcile and others against the types."""
        for name, function in roles.items():
            if function is None:
                continue
            if not callable(function):
                self.refuse(f"{name} is {function!r}, which cannot be called.")
            role = cast("CallableRole", name)  # the callers name them so
            if (fault := role_fault(role, function, self.params_type, self.result_type)) is not None:
                self.refuse(fault)

    def check_undo(self, undo: Undo | None, capture: Any, preview: object, effect: Effect) -> None:  # noqa: ANN401 - whatever is given
        """Checks what undoes the effect, what it reads before it, and what stands for the handler in a dry run."""
        self.check_callables(undo=None if undo is None else undo.run, capture=capture, preview=preview)
        if preview is not None and effect != "external":
            self.refuse("preview stands for an external effect in a dry run; leave it out, or declare the effect so.")
        if undo is None:
            if capture is not None:
                self.refuse("capture reads what undo needs, and this tool has no undo; declare undo=..., too.")
            return
        if effect == "read":
            self.refuse("a tool that only reads has nothing to undo; leave undo out, or the effect.")
        Declaration(self.name, self.params_type, None).check_callables(reconcile=undo.effect.reconcile)
        from handrail.prompt.undo import captured_codec  # noqa: PLC0415

        try:
            captured_codec(capture)
        except SchemaError as error:
            self.refuse(f"capture returns what cannot be stored; return a type that JSON can say: {error}", cause=error)

    def check_apply(self, apply: object, *, claims: bool, concurrent: bool) -> None:
        """Refuses `apply` where no row of the ledger says whether it has run, or where the call may not write."""
        if apply is not None and not claims:
            self.refuse(
                "apply runs once for each effect in the ledger, and this tool has none there; leave out "
                "idempotency=IdempotencyConfig(strategy='none')."
            )
        if apply is not None and concurrent:
            self.refuse("apply writes in the turn of its call, which a concurrent tool shares; leave concurrent out.")

    def declare_effect(self, effect: object, idempotency: object) -> DeclaredEffect:
        """Combines the fields of `Tool` that declare the effect; `effect` is `None` if it was not given."""
        if effect in (None, "read", "state") and idempotency is None:  # as of most tools
            word: Effect = "read" if effect == "read" else "state"
            return DeclaredEffect(word, effect is not None, None, effect)
        with locate_faults(tool=self.name, dataclass=self.params_type):
            return _combine_effect(effect, idempotency)

    def check_effect(self, effect: DeclaredEffect, idempotency: IdempotencyConfig | None) -> None:
        """Refuses contradictory declarations of the effect."""
        if idempotency is not None:
            if effect.effect == "read":
                self.refuse(
                    "a tool that only reads has no effect to be idempotent; leave idempotency out, or the effect."
                )
            # The fields of a generic dataclass are those of its class, not of the alias.
            fields = None if self.schema is None else tuple(self.schema.get("properties", ()))
            kind = get_origin(self.params_type) or self.params_type
            idempotency.check_params_type(kind, tool=self.name, fields=fields)

    def check_options(self, options: Mapping[str, Any]) -> None:
        """Checks the options whose values are judged by themselves."""
        with locate_faults(tool=self.name, dataclass=self.params_type):
            check_flags(options, "concurrent", "accepts_overrides", "untrusted", "sanitizes")
        span, chars = options["timeout"], options["max_result_chars"]
        if span is not None and not (isinstance(span, timedelta) and span > timedelta(0)):
            cure = "a span of more than zero with its unit, timeout=timedelta(seconds=30), or None"
            self.refuse(f"timeout is {span!r}; write {cure}.")
        if type(chars) is not int or chars < MIN_RESULT_CHARS:
            self.refuse(f"max_result_chars is {chars!r}; write a number of characters, {MIN_RESULT_CHARS} or more.")

    def check_examples(self, examples: Sequence[Any]) -> None:
        """Checks every example against the types, and against the schema that the model sees."""
        for number, example in enumerate(examples, start=1):
            self._check_example(number, example)

    def _check_example(self, number: int, example: Any) -> None:  # noqa: ANN401 - a ToolExample of the types just checked
        _check_description(self, f"the description of example {number}", example.description)
        for what, kind, value, its_codec in (
            ("input", self.params_type, example.input, self.params_codec()),
            ("output", self.result_type, example.output, self.value_codec()),
        ):
            result = what == "output"
            if check_value(kind, value) is not None:
                right = annotation_name(kind)
                self.refuse(f"the {what} of example {number} is {value!r}; it must be of {right}.", result=result)
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


def _combine_effect(effect: object, config: object) -> DeclaredEffect:
    from handrail.prompt.idempotency import External, IdempotencyConfig  # noqa: PLC0415

    external = effect if isinstance(effect, External) else External() if effect == "external" else None
    word = "external" if external is not None else effect or "state"
    if not isinstance(word, str) or word not in get_args(Effect):
        words = ", ".join(map(repr, get_args(Effect)))
        raise PromptValidationError(f"effect is {effect!r}; it must be one of {words}, or External(...).")
    if config is not None and not isinstance(config, IdempotencyConfig):
        raise PromptValidationError(f"idempotency is {config!r}; write idempotency=True, or IdempotencyConfig(...).")
    if external is not None:
        external.check_key(config)
    return DeclaredEffect(cast("Effect", word), effect is not None, external, effect)
