"""How the values of a type are stored: as a model would read them, and so that they come back as what they were.

What differs from the JSON of a message: members of ambiguous unions carry a tag (`handrail.serde.unions`), a place of
type `Any` holds only what JSON restores, and a secret is read from its mask. Any other type is stored as
it is shown.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final, cast

from pydantic import ValidationError
from pydantic_core import CoreSchema, InitErrorDetails, PydanticCustomError, SchemaValidator, core_schema

from handrail.redaction import MASK
from handrail.serde.adapter import Adapter, agreeing, closed_adapter, core_config
from handrail.serde.core_schemas import (
    Core,
    SchemaEdit,
    core_definitions,
    kinds_in,
    parts_of,
    rebuilt,
    replacing,
    serializer_of,
    validator_of,
    with_flat_unions,
)
from handrail.serde.json_schema import Node, core_json_schema, inlined
from handrail.serde.json_values import is_decoded
from handrail.serde.location import Path
from handrail.serde.recursive_unions import is_bounded
from handrail.serde.unions import UnionMembers, ambiguous, read_tagged, write_tagged

_MAPPINGS: Final = frozenset({"dict", "ordered-dict", "counter"})
_BOUNDS_OF: Final = "pydantic._internal._validators"
_SECRETS_OF: Final = "pydantic.types"  # not imported, because it takes long
_FAULT: Final = (
    "input should be what JSON restores: a str, int, float, bool, None, a list of these, or a dict of them with str "
    "keys; declare the type of this place, or convert the value"
)


def stored_adapter(adapter: Adapter) -> tuple[Adapter, Node] | None:
    """What reads and writes the values of a type as they are stored, and the JSON Schema of that.

    Args:
        adapter: that of the type.

    Returns:
        `None` if the type is stored as it is shown.
    """
    core = with_flat_unions(adapter.core)
    found: dict[int, UnionMembers | None] = {}
    read = rebuilt(core, _changing(core, found, read_tagged))
    # Most types are stored as they are shown, and then one adapter serves both.
    if read == adapter.core:
        return None
    config = core_config()
    # Only what reads is made to agree with the JSON Schema: the serializer is pydantic's, as it is for what is shown.
    written = rebuilt(core, _changing(core, found, write_tagged))
    agreed = agreeing(read, config)
    reads, writes = validator_of(agreed, config), serializer_of(written, config)
    stored = Adapter(adapter.made, core, kinds_in(core), reads, writes, bounded=is_bounded(agreed))
    return stored, inlined(core_json_schema(read, mode="validation"))


def _changing(
    core: Core, found: dict[int, UnionMembers | None], union_in_store: Callable[[Core, UnionMembers], Core]
) -> SchemaEdit:
    """Makes of each part of a type what reads or writes it in a store.

    Args:
        core: what pydantic made of the type.
        found: what is known of its unions; more is added.
        union_in_store: makes what reads or writes an ambiguous union.
    """
    definitions, config = core_definitions(core), core_config()

    def change(part: Core, *, was: Core, made: bool) -> Core:
        del made
        if was["type"] == "any":
            return replacing(was, core_schema.any_schema(serialization=_CHECKED))
        if was["type"] in _MAPPINGS and was.get("keys_schema", {}).get("type") == "any":
            return {**part, "keys_schema": core_schema.any_schema(serialization=_CHECKED_KEY)}
        if was["type"] == "function-after" and _makes_secret(was["function"]["function"]):
            return {**part, "schema": _or_mask(part["schema"])}
        if was["type"] == "function-after" and _bounds_secret(was):
            # The mask may be shorter than the least length that the secret is held to.
            return {"type": "union", "choices": [_mask_through(part["schema"]), part], "mode": "left_to_right"}
        if was["type"] != "union":
            return part
        # Read and write must come to the same decision, so it is made once.
        # `core` is rebuilt twice, for reading and for writing. It is held meanwhile, so that the ids are valid.
        if id(was) not in found:
            found[id(was)] = ambiguous(was, definitions, config)
        members = found[id(was)]
        return part if members is None else union_in_store(part, members)

    return change


def stored_recheck(kind: object) -> SchemaValidator:
    """What finds out where a value is not of its type, or holds what JSON does not restore.

    Raises:
        BUILD_ERRORS: pydantic cannot handle the type.
    """

    def change(part: Core, *, was: Core, made: bool) -> Core:
        del made
        if was["type"] == "any":
            return replacing(was, core_schema.no_info_plain_validator_function(_given_back))
        if was["type"] in _MAPPINGS and was.get("keys_schema", {}).get("type") == "any":
            return {**part, "keys_schema": core_schema.str_schema()}
        return part

    config = core_config(recheck=True)
    # From what pydantic made, and not from what agrees with the JSON Schema: values of Python are checked here.
    core = rebuilt(closed_adapter(kind, recheck=True).core, change)
    return validator_of(core, config)


def _makes_secret(function: object) -> bool:
    """Whether it makes a value of one of pydantic's secrets, other than a text, from what it holds."""
    # `SecretBytes` is a class, and `Secret` calls a function that is nested in one of its methods: both are known by
    # module and name.
    made = [*getattr(function, "__mro__", ()), function]
    own = [each for each in made if getattr(each, "__module__", None) == _SECRETS_OF]
    names = {getattr(each, "__qualname__", "").partition(".")[0] for each in own}
    return bool(names & {"SecretBytes", "Secret"})


def _bounds_secret(core: Core) -> bool:
    """Whether it holds a secret to a bound, such as a length, which the mask may not keep to."""
    while core["type"] == "function-after" and _of_pydantic(core["function"]["function"]):
        core = core["schema"]
    if core["type"] != "lax-or-strict":
        return False
    return any(part["type"] == "function-after" and _is_secret(part) for part in parts_of(core["strict_schema"]))


def _of_pydantic(function: object) -> bool:
    return getattr(getattr(function, "func", function), "__module__", "") == _BOUNDS_OF


def _is_secret(core: Core) -> bool:
    made = core["function"]["function"]
    return any(each.__module__ == _SECRETS_OF for each in getattr(made, "__mro__", ()))


def _mask_through(held: Core) -> CoreSchema:
    """Reads the mask as what is held reads it."""
    return core_schema.chain_schema([core_schema.literal_schema([MASK]), cast("CoreSchema", held)])


def _or_mask(held: Core) -> CoreSchema:
    """Reads the mask too, because nothing else is stored of a secret."""
    made: object = MASK.encode() if held["type"] == "bytes" else MASK
    mask = core_schema.no_info_after_validator_function(lambda _: made, core_schema.literal_schema([MASK]))
    return core_schema.union_schema([mask, cast("CoreSchema", held)], mode="left_to_right")


def _checked(value: Any) -> Any:  # noqa: ANN401 - a value of any type
    """A value that JSON restores as it is; raises `ValueError` for any other, whose place `stored_recheck` finds."""
    try:
        given_back = is_decoded(value)
    except RecursionError:  # endless, or nested too deeply: pydantic reports it
        return value
    if not given_back:
        raise ValueError(_FAULT)
    return value


def _checked_key(value: Any) -> str:  # noqa: ANN401 - as above
    if type(value) is not str:
        raise ValueError(_FAULT)
    return value


_CHECKED: Final = core_schema.plain_serializer_function_ser_schema(_checked)
_CHECKED_KEY: Final = core_schema.plain_serializer_function_ser_schema(_checked_key)


def _given_back(value: object) -> object:
    """The value, if JSON restores it; else the error names the place that it does not restore."""
    try:
        found = next(_not_given_back(value, ()), None)
    except RecursionError:
        found = None
    if found is None:
        return value
    path, culprit = found
    error = InitErrorDetails(type=PydanticCustomError("not_given_back", _FAULT), loc=path, input=culprit)
    raise ValidationError.from_exception_data("Any", [error])


def _not_given_back(value: object, path: Path) -> Iterator[tuple[Path, object]]:
    if type(value) is dict:
        for key, item in cast("dict[object, object]", value).items():
            if type(key) is not str:
                yield (*path, str(key)), key
            else:
                yield from _not_given_back(item, (*path, key))
    elif type(value) is list:
        for position, item in enumerate(cast("list[object]", value)):
            yield from _not_given_back(item, (*path, position))
    elif not is_decoded(value):
        yield path, value
