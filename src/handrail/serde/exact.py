"""Whether a value comes back from a store as what it is, where pydantic's serializer writes it without a warning.

pydantic writes a value by its declared type. What the type does not say is lost without a word:

| declared | refused | it would come back as |
|---|---|---|
| a dataclass | a value of a subclass | the dataclass, without the other fields |
| `int`, `float` | a `bool`, another subclass of `int` | a plain number |
| `int` | more than 4,300 digits | nothing: it cannot be read |
| `float` | an `int` that no float is equal to | another number |
| `date` | a `datetime` | a date |
| `datetime`, `time` | an offset from UTC with seconds | another offset |
| a class of paths | a path of another system | another path |
| `re.Pattern` | flags given beside the pattern | a pattern without them |

What nests too deeply for the parser is refused as well. `exact_of` makes the check for a type once; most of it is a
comparison of types, and the digits and the depth are looked at in the JSON.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import PurePath
from typing import Any, Final, cast

from pydantic_core import from_json

from handrail.serde.core_schemas import Core, choices_of, core_definitions, places_of
from handrail.serde.faults import Fault
from handrail.serde.fitting import (
    LEAST_TOO_LONG,
    LEAVES,
    MOST_DIGITS,
    UNKNOWN,
    Part,
    any_of,
    fixed,
    items_of,
    leaf,
    literal,
    of_dataclass,
    of_paths,
    of_typed_dict,
    pairs,
)
from handrail.serde.formatting import format_path
from handrail.serde.json_values import parts_of_value
from handrail.serde.location import Path

# A lone surrogate takes three bytes, and each of them is replaced by the three of U+FFFD.
_REPLACED: Final = b"\xef\xbf\xbd" * 3
"""What pydantic writes for a lone surrogate in a key."""

MOST_LEVELS: Final = 192
"""How deeply a stored value may nest; the parser takes 201 levels, and stores wrap a value into a few of their own."""

TOO_DEEP: Final = (
    f"nested too deeply to be read back: the limit is a depth of {MOST_LEVELS} levels as JSON, of which the tag of a "
    "member is one; store several values"
)
"""What is said of a value that nests more deeply."""

_LEVELS_OF_PARSER: Final = 201
_DIGITS: Final = frozenset(b"0123456789")


_COLLECTIONS: Final[Mapping[str, type[Any]]] = {
    "list": list,
    "set": set,
    "frozenset": frozenset,
    "tuple": tuple,
    "deque": Collection,
}
_CHECKING: Final = frozenset({"function-before", "function-after", "function-wrap"})
_TRANSPARENT: Final[Mapping[str, str]] = {
    "definitions": "schema",
    "default": "schema",
    "dataclass-field": "schema",
    "model-field": "schema",
    "typed-dict-field": "schema",
    "lax-or-strict": "strict_schema",
}
"""What only surrounds a part, and where the part is in it."""
_READ_TWICE: Final = frozenset({"json-or-python"})
"""What pydantic reads from JSON in one way and takes from Python in another, and writes by a function of its own."""
_OF_LITERALS: Final = frozenset({str, int, bool, type(None)})
_LOOKED_INTO: Final = frozenset({"datetime", "time"})
_MAPPINGS: Final = frozenset({"dict", "ordered-dict", "counter"})
_ANY: Final[Core] = {"type": "any"}
_OF_PYDANTIC: Final = "pydantic."
_BOUNDS_OF: Final = "pydantic._internal._validators"
_BOUNDS: Final = (
    *("gt", "ge", "lt", "le", "multiple_of", "min_length", "max_length", "max_digits", "decimal_places", "pattern"),
    *("strip_whitespace", "to_lower", "to_upper"),
)
"""What a part of a core schema holds its values to when it reads them, and not when it writes them."""


class Exact:
    """Finds out where a value would not come back as it is; immutable, and made once for a type.

    Attributes:
        read_back: whether only reading shows that a value can be read: its type holds what pydantic does not look at
            when it writes, as bounds, literals, and functions of the program.
    """

    __slots__ = ("_deep", "_part", "_scalars", "_sure", "read_back")

    def __init__(self, part: Part, *, deep: bool, scalars: bool, read_back: bool) -> None:
        """Take what `exact_of` has found."""
        self.read_back: bool = read_back
        self._part = part
        self._sure = part.sure
        self._scalars = scalars
        self._deep = deep

    @property
    def settles_scalars(self) -> bool:
        """Whether a scalar of exactly its type comes back as it is, if its JSON is not longer than `MOST_DIGITS`."""
        return not self._scalars and not self.read_back

    def misfit(self, value: object, *, is_known: bool) -> Fault | None:
        """The innermost place at which a value would come back as something else, and why; `None` if it does not.

        Args:
            value: the value.
            is_known: whether it is of exactly its class, and its fields of exactly their types, which are scalars.
        """
        # A value that is known to be well typed can only be at fault in what its scalars hold, not in their types.
        looked_into = self._scalars if is_known else not self._sure
        return _culprit(self._part, value, ()) if looked_into and not self._part.many((value,)) else None

    def unreadable(self, value: object, data: bytes) -> Fault | None:
        """The innermost place of a value whose JSON cannot be read back, and why; `None` if it can."""
        # pydantic replaces a lone surrogate in a key without a word; a text that holds the characters as such is rare.
        if data.find(_REPLACED) >= 0 and (lone := next(_lone_keys(value, ()), None)) is not None:
            return format_path(lone), "a key holds a lone surrogate, so that it would come back as another key"
        if len(data) <= MOST_DIGITS and not self._deep:
            return None
        # A number of too many digits has one at such a position. Texts may have too, so that reading has to decide.
        if not _DIGITS.isdisjoint(data[MOST_DIGITS :: MOST_DIGITS + 1]) and _fault_of(data) == "number out of range":
            where = next(_too_long(value, ()), ())
            return format_path(
                where
            ), f"an integer of more than {MOST_DIGITS:,} digits cannot be read back; declare str"
        # The number of brackets is an upper bound of the depth, and takes no walk through the value.
        if self._deep and data.count(b"[") + data.count(b"{") > MOST_LEVELS:
            # So many brackets around the JSON leave the parser exactly the levels that a value may have; a bracket
            # within a text counts for nothing then.
            around = _LEVELS_OF_PARSER - MOST_LEVELS
            if _fault_of(b"[" * around + data + b"]" * around):
                return format_path(next(_deepest(value, ()), ())), TOO_DEEP
        return None


def exact_of(core: Core) -> Exact:
    """What finds out where a value of a type would not come back as it is.

    Args:
        core: what pydantic made of the type.
    """
    made = _Making(core_definitions(core))
    part = made.part(core)
    places = places_of(core, core_definitions(core))
    read_back = any(id(each) not in made.looked_into and _only_reading_tells(each) for _, each in places)
    return Exact(part, deep=made.deep, scalars=made.scalars, read_back=read_back)


def _only_reading_tells(core: Core) -> bool:
    kind = core["type"]
    # A value is written without a look at its bounds: a string that is too long is refused only when it is read.
    if kind in {"literal", "json"} or core.get("post_init") or any(core.get(name) is not None for name in _BOUNDS):
        return True
    if kind in _MAPPINGS and core.get("keys_schema", _ANY)["type"] in {"float", "decimal", "nullable", "union"}:
        return True
    functions = [core.get("function"), core.get("serialization")]
    return any(_is_of_the_program(cast("Core", each)) for each in functions if isinstance(each, dict))


def _is_of_the_program(holder: Core) -> bool:
    """Whether a function that checks, converts or writes values is neither pydantic's nor Handrail's."""
    function = holder.get("function")
    if function is None or holder.get("type") in {"to-string", "format"}:
        return False
    module = getattr(getattr(function, "func", function), "__module__", None) or ""
    # pydantic's functions for bounds refuse values as the program's own do, and are not called when a value is written.
    return module.partition(".")[0] not in {"pydantic", "pydantic_core", "handrail"} or module == _BOUNDS_OF


def _fault_of(data: bytes) -> str:
    """Why JSON cannot be read; empty if it can."""
    try:
        from_json(data)
    except ValueError as error:
        return str(error).partition(" at line ")[0]
    return ""


def _culprit(part: Part, value: object, path: Path) -> Fault:
    for inner, below, held in part.below(value):
        if not below.fits(held):
            return _culprit(below, held, (*path, *inner))
    return format_path(path), part.fault(value)


def _too_long(value: object, path: Path) -> Iterator[Path]:
    if isinstance(value, int):
        if abs(value) >= LEAST_TOO_LONG:
            yield path
        return
    if isinstance(value, Mapping):
        value = cast("Mapping[object, object]", value)
        yield from (path for key in value if isinstance(key, int) and abs(key) >= LEAST_TOO_LONG)
    for segment, child in parts_of_value(value):
        yield from _too_long(child, (*path, segment))


def _lone_keys(value: object, path: Path) -> Iterator[Path]:
    if isinstance(value, Mapping):
        value = cast("Mapping[object, object]", value)
        yield from (path for key in value if isinstance(key, str) and not _is_unicode(key))
    for segment, child in parts_of_value(value):
        yield from _lone_keys(child, (*path, segment))


def _is_unicode(text: str) -> bool:
    return text.encode(errors="replace") == text.encode(errors="surrogatepass")


def _deepest(value: object, path: Path) -> Iterator[Path]:
    """A path that leads below the levels that a value may have; tags of unions count, so a shorter one may do."""
    # Half of the levels, because each may be a tag and the value in it.
    if len(path) >= MOST_LEVELS // 2:
        yield path
    else:
        for segment, child in parts_of_value(value):
            yield from _deepest(child, (*path, segment))


class _Making:
    """Makes the parts of one type; a part that others refer to is made once, so that types may be recursive.

    Attributes:
        deep: whether values may nest without a bound.
        scalars: whether a scalar is looked into, beside its type.
        looked_into: the ids of the literals whose choices are compared, so that reading them shows nothing more.
    """

    def __init__(self, definitions: Mapping[str, Core]) -> None:
        self._definitions = definitions
        self._made: dict[str, Part] = {}
        self.deep = False
        self.scalars = False
        self.looked_into: set[int] = set()
        self._made_by: dict[str, Callable[[Core], Part]] = {
            "definition-ref": self._shared,
            "nullable": self._nullable,
            "union": self._union,
            "tagged-union": self._tagged_union,
            "json-or-python": self._of_json_or_python,
            "chain": self._chain,
            "dataclass": self._of_class,
            "model": self._of_class,
            "typed-dict": self._of_typed_dict,
            "enum": lambda core: leaf(core["cls"]),
            "literal": self._literal,
            **dict.fromkeys(_CHECKING, self._checked),
            **dict.fromkeys(_COLLECTIONS, self._collection),
            **dict.fromkeys(_MAPPINGS, self._mapping),
        }

    def part(self, core: Core) -> Part:
        """The part of a core schema."""
        kind = core["type"]
        if kind in _TRANSPARENT:
            return self.part(core[_TRANSPARENT[kind]])
        # A part with a serializer of its own is written by that, so that its structure says nothing.
        if kind in self._made_by and (kind in _READ_TWICE or "serialization" not in core):
            return self._made_by[kind](core)
        # A place of type `Any` may hold lists in lists without any type that holds itself.
        self.deep = self.deep or kind == "any"
        self.scalars = self.scalars or kind in _LOOKED_INTO
        known = kind == "function-plain" or "serialization" not in core  # else by the program's own code
        return LEAVES.get(kind, UNKNOWN) if known else UNKNOWN

    def _nullable(self, core: Core) -> Part:
        return any_of([LEAVES["none"], self.part(core["schema"])])

    def _union(self, core: Core) -> Part:
        return any_of([self.part(each) for each in choices_of(core)])

    def _tagged_union(self, core: Core) -> Part:
        choices: Mapping[str, Core] = core["choices"]
        return any_of([self.part(each) for each in choices.values()])

    def _literal(self, core: Core) -> Part:
        self.scalars = True
        if all(type(each) in _OF_LITERALS for each in core["expected"]):
            self.looked_into.add(id(core))
        return literal(core["expected"])

    def _collection(self, core: Core) -> Part:
        items = core.get("items_schema", _ANY)
        if not isinstance(items, list):
            return items_of(_COLLECTIONS[core["type"]], self.part(items))
        parts = [self.part(item) for item in cast("list[Core]", items)]
        return fixed(parts) if "variadic_item_index" not in core else items_of(tuple, any_of(parts))

    def _mapping(self, core: Core) -> Part:
        return pairs(*(self.part(core.get(name, _ANY)) for name in ("keys_schema", "values_schema")))

    def _shared(self, core: Core) -> Part:
        name = core["schema_ref"]
        if name in self._made:
            # A type that is used twice counts as one that holds itself: its values then take a count of brackets in
            # vain, and no wrong answer.
            self.deep = True
            return self._made[name]
        # Entered before its parts are made, because they may refer to it; it is filled in below.
        shared = self._made[name] = leaf(object)
        # Copied into the part that others already refer to, because a new one would leave them with the placeholder.
        shared.sure = False  # until it is known
        found = self.part(self._definitions[name])
        for attribute in ("fits", "many", "takes", "below", "fault", "types", "sure"):
            setattr(shared, attribute, getattr(found, attribute))
        return shared

    def _of_json_or_python(self, core: Core) -> Part:
        cls, read = core["python_schema"].get("cls"), core["json_schema"]
        if isinstance(cls, type) and issubclass(cls, PurePath):
            return of_paths(cls)
        if read["type"] == "list":  # as a Sequence is read
            return items_of(Collection, self.part(read.get("items_schema", _ANY)))
        return self.part(read) if read["type"] in _MAPPINGS else UNKNOWN

    def _chain(self, core: Core) -> Part:
        first = core["steps"][0]
        return self.part(first) if first["type"] in _READ_TWICE else UNKNOWN

    def _checked(self, core: Core) -> Part:
        """What a function checks or converts: the program's own may return anything that is not a dataclass."""
        function = core["function"]["function"]
        module = getattr(getattr(function, "func", function), "__module__", None) or ""
        found = self.part(core["schema"])
        # A function before the check hands its result to the inner type, so the value is of that type.
        if core["type"] == "function-before" or module.startswith(_OF_PYDANTIC):
            return found
        return any_of([UNKNOWN, found])

    def _of_class(self, core: Core) -> Part:
        cls: type[Any] = core["cls"]
        held = core["schema"]
        while held["type"] not in {"dataclass-args", "model-fields"}:
            if "schema" not in held:
                return UNKNOWN
            held = held["schema"]
        if held["type"] == "model-fields":
            fields = self._named(held)
        else:
            fields = [(field["name"], self.part(field)) for field in held["fields"]]
        # Fields of which pydantic itself warns are left out: the rest is looked into at each write.
        return of_dataclass(cls, [(name, part) for name, part in fields if not part.sure])

    def _of_typed_dict(self, core: Core) -> Part:
        return of_typed_dict(self._named(core))

    def _named(self, core: Core) -> list[tuple[str, Part]]:
        fields: Mapping[str, Core] = core["fields"]
        return [(name, self.part(field)) for name, field in fields.items()]
