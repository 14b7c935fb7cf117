"""The checks of the declaration of a tool: they are pure, and each raises `PromptValidationError` or does nothing.

The name of a tool and its descriptions are held to what the APIs of models take.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, FrozenInstanceError, dataclass, fields
from datetime import timedelta
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, NamedTuple, NoReturn, cast, get_args, get_origin

from handrail.errors import DumpError, ParseError, PromptValidationError, SchemaError
from handrail.prompt.effect import ApplyEffect, Effect, Reconcile
from handrail.prompt.signature import HandlerContract, Role, annotation_name, role_fault
from handrail.prompt.tool_result import check_value
from handrail.redaction import redacted_logger
from handrail.serde import Codec, codec, stored_codec
from handrail.serde.annotations import is_record
from handrail.serde.json_values import escape_surrogates

if TYPE_CHECKING:
    from handrail.prompt.idempotency import External, IdempotencyConfig, OnOrphan

_log = redacted_logger("handrail.prompt")

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


class DeclaredEffect(NamedTuple):
    """The effect declared by a tool; the names are those of the fields of `Tool`.

    Attributes:
        effect: what a call does to the world.
        declares_effect: whether that was given.
        external: the declaration of an external effect; `None` for any other effect.
        on_orphan: what the next call of an effect does that may have happened.
        reconcile: determines whether an effect happened.
        apply: writes what belongs to an effect that has happened.
    """

    effect: Effect
    declares_effect: bool
    external: External | None
    on_orphan: OnOrphan
    reconcile: Reconcile[Any, Any] | None
    apply: ApplyEffect[Any, Any] | None

    @classmethod
    def plain(cls, effect: object, reconcile: Reconcile[Any, Any] | None) -> DeclaredEffect:
        """That of a tool that has no effect outside and no key; `effect` is `None` if it was not given."""
        return cls(_own_word(effect or "state"), effect is not None, None, _default_on_orphan(effect), reconcile, None)


def _own_word(word: object) -> Effect:
    """The word for an effect as a new object: `GivenEffect.of_copy` distinguishes it from an equal string."""
    return cast("Effect", "".join(cast("str", word)))


def _default_on_orphan(effect: object) -> OnOrphan:
    """How an orphaned effect is treated where nothing else is declared; `effect` is what was given.

    For a tool that declares that it changes only state, it has certainly not happened: its writes were rolled back. A
    tool that declares nothing may act outside, so its orphans are not retried.
    """
    return "retry" if effect == "state" else "unknown"


class GivenEffect(NamedTuple):
    """The arguments of a tool for its effect, and their result; passed to copies of the tool.

    Attributes:
        effect: `effect` as it was given; `None` if it was not.
        reconcile: `reconcile` as it was given.
        settled: the result of the two.
    """

    effect: object
    reconcile: Reconcile[Any, Any] | None
    settled: DeclaredEffect

    def of_copy(
        self, effect: object, reconcile: Reconcile[Any, Any] | None
    ) -> tuple[object, Reconcile[Any, Any] | None]:
        """The arguments of a copy of the tool with these field values: the same, unless one was replaced.

        The string in a field that was not replaced is the same object as in `settled`: see `_own_word`. A given
        string is another object, so `replace(tool, effect="external")` means only `"external"`.
        """
        # By identity: `replace` passes the settled `reconcile`, which may come from an `External`. Taken as a short
        # form, it would contradict another `External` that is given to the copy.
        same = reconcile is self.settled.reconcile
        return self.effect if effect is self.settled.effect else effect, self.reconcile if same else reconcile


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
        roles: Mapping[Role, object] = {"handler": handler, "reconcile": reconcile, "apply": apply}
        for role, function in roles.items():
            if function is not None and not callable(function):
                self.refuse(f"{role} is {function!r}, which cannot be called.")
            if function is not None and (fault := role_fault(role, function, contract)) is not None:
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
        if effect in (None, "read", "state") and idempotency is None:  # as of most tools
            return DeclaredEffect.plain(effect, reconcile)
        try:
            # Its errors, and those of `External`, do not know the tool; `refuse` adds it.
            return _settled_effect(self.name, effect, idempotency, reconcile)
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


def _settled_effect(tool: str, effect: object, config: object, reconcile: Reconcile[Any, Any] | None) -> DeclaredEffect:
    """Combine the fields of a tool; `effect` is `None` if it was not given.

    For a tool with a key and no declared effect, a warning is logged once: it may have external effects.

    Raises:
        PromptValidationError: a field has a wrong type, or two contradict each other.
    """
    from handrail.prompt.idempotency import External, IdempotencyConfig, never_asked  # noqa: PLC0415

    external = effect if isinstance(effect, External) else None
    word = "external" if isinstance(effect, External) else effect or "state"
    if not isinstance(word, str) or word not in get_args(Effect):
        words = ", ".join(map(repr, get_args(Effect)))
        raise PromptValidationError(f"effect is {effect!r}; it must be one of {words}, or External(...).")
    if config is not None and not isinstance(config, IdempotencyConfig):
        raise PromptValidationError(f"idempotency is {config!r}; write idempotency=True, or IdempotencyConfig(...).")
    if word == "external":
        # For other effects the short forms are used unchanged.
        external = (external or External()).with_short_forms(config, reconcile)
        reconcile = external.reconcile
    own = None if config is None else config.on_orphan
    # A config with its own `on_orphan` states what an orphan means; the effect would only have given its default.
    if effect is None and config is not None and own is None and config.has_key:
        _warn_of_silence(tool)
    on_orphan = external.on_orphan if external is not None else own or _default_on_orphan(effect)
    if reconcile is not None and config is not None and on_orphan == "retry":
        raise PromptValidationError(never_asked(by_default=own is None))
    apply = None if external is None else external.apply
    return DeclaredEffect(_own_word(word), effect is not None, external, on_orphan, reconcile, apply)


@lru_cache(maxsize=1024)
def _warn_of_silence(tool: str) -> None:
    _log.warning(
        "tool %s has an idempotency key and does not declare its effect; write effect='external' if its calls act "
        "outside, or effect='state' if all their changes are rolled back",
        tool,
    )
