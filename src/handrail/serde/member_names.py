"""What the members of unions are called where a value is stored with a tag, and the classes of their values."""

from __future__ import annotations

import re
from collections import Counter, OrderedDict, deque
from collections.abc import Iterator, Mapping
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from fractions import Fraction
from pathlib import PurePath
from typing import Any, Final, NamedTuple, cast
from uuid import UUID

from handrail.serde.core_schemas import Core, python_view, referred
from handrail.serde.formatting import stable_name

_CLASSES: Final[Mapping[str, type[Any]]] = {
    **{cls.__name__: cls for cls in (str, int, float, bool, bytes, list, tuple, set, frozenset, dict, deque)},
    **{cls.__name__: cls for cls in (date, time, datetime, timedelta)},
    "none": type(None),
    "decimal": Decimal,
    "fraction": Fraction,
    "uuid": UUID,
    "ordered-dict": OrderedDict,
    "counter": Counter,
}
"""The classes of the values, by the type of the core schema."""

_READ_AS: Final = frozenset({"list", "dict"})
"""What the abstract collections are read as."""

_NAMED: Final = frozenset({"none", "str", "int", "float", "bool", "dataclass", "model"})
"""Types that pydantic calls in the location of a fault what they are called in Python."""

_OTHERS: Final = {"any": "Any", "url": "Url"}


class Spelling(NamedTuple):
    """A type, written out.

    Attributes:
        short: with the names of its classes, or those that `stored_as` gave them.
        placed: with the modules of its classes.
        classes: the dataclasses and enums in it, in their order.
    """

    short: str
    placed: str
    classes: tuple[type[Any], ...]


def class_of(view: Core) -> type[Any] | None:
    """The class of the values of a type; `None` if they may be of several."""
    cls: object = view.get("cls", _CLASSES.get(view["type"]))
    return cls if isinstance(cls, type) else None


def exact_class(view: Core) -> type[Any] | None:
    """The class that every value of a type has when it is read; of `Path` it is that of paths of this system."""
    cls = class_of(view)
    if cls is None or not issubclass(cls, PurePath):
        return cls
    # A value of `Path` is a `PosixPath` or a `WindowsPath`.
    made: type[PurePath] = type(cls())
    return made


def is_path(view: Core) -> bool:
    """Whether a type is a class of paths."""
    cls = class_of(view)
    return cls is not None and issubclass(cls, PurePath)


def kinds_of(view: Core) -> set[str]:
    """The types of the values: those of the choices of a `Literal`, else that of the core schema."""
    return {type(value).__name__ for value in view["expected"]} if view["type"] == "literal" else {view["type"]}


def names_of(core: Core, definitions: Mapping[str, Core]) -> tuple[str, ...]:
    """What a member may be called: the name that is written, then those for when another member has it."""
    written_out = spelling(core, definitions)
    first = _names_of(core, definitions)
    return (
        tuple(dict.fromkeys((*first, written_out.short, written_out.placed)))
        if _is_holding(core, definitions)
        else first
    )


def spelling(core: Core, definitions: Mapping[str, Core], above: tuple[Core, ...] = ()) -> Spelling:
    """A type with all that it holds, written out; where it holds itself again, by the name of its class alone."""
    view = python_view(core, definitions)
    if view["type"] == "literal":
        text = _literal(view)
        return Spelling(text, text, ())
    cls = class_of(view)
    stable = _stable_name(cls)
    short = stable or _name(view, cls)
    placed = stable or _placed(cls) or short
    # Only classes of which the program may have two with one name; those of Python's own types are not in the view.
    own = (cls,) if cls is not None and "cls" in view else ()
    # A type that holds itself would be written out without end.
    is_known = any(view is each for each in above)
    inner = [] if is_known else [spelling(part, definitions, (*above, view)) for part in parts_in(view)]
    classes = (*own, *(each for one in inner for each in one.classes))
    if view["type"] == "union":
        return Spelling(" | ".join(one.short for one in inner), " | ".join(one.placed for one in inner), classes)
    if not inner:
        return Spelling(short, placed, classes)
    shorts, places = ", ".join(one.short for one in inner), ", ".join(one.placed for one in inner)
    return Spelling(f"{short}[{shorts}]", f"{placed}[{places}]", classes)


def is_labelled(core: Core, definitions: Mapping[str, Core]) -> bool:
    """Whether a member is called by its label in the location of a fault; pydantic calls others as Python does."""
    # Not `python_view`: pydantic makes its own label of the outermost part, such as the function that checks a value.
    return referred(core, definitions)["type"] not in _NAMED


def label_of(core: Core, definitions: Mapping[str, Core]) -> str:
    """A type as a message names it: written out, and a `Sequence` by the list that it is read as."""
    is_abstract = core["type"] == "json-or-python" and core["json_schema"]["type"] in _READ_AS
    return spelling(core["json_schema"] if is_abstract else core, definitions).short


def _is_holding(core: Core, definitions: Mapping[str, Core]) -> bool:
    return next(parts_in(python_view(core, definitions)), None) is not None


def parts_in(view: Core) -> Iterator[Core]:
    """What a collection holds, or the members of a union; of a dataclass the arguments, if it is generic."""
    if view["type"] == "union":
        yield from (cast("Core", each[0] if isinstance(each, tuple) else each) for each in view["choices"])
    else:
        yield from _held(view)


def _name(view: Core, cls: type[Any] | None) -> str:
    if cls is None:
        return str(view.get("cls_repr", _OTHERS.get(view["type"], view["type"])))
    return re.split("[:.]", _name_before(cls) or cls.__name__)[-1]


def _placed(cls: type[Any] | None) -> str | None:
    # A built-in class has one name everywhere, and a module would only make it longer.
    if cls is None or cls.__module__ == "builtins":
        return None
    return _name_before(cls) or f"{cls.__module__}:{cls.__qualname__}"


def _stable_name(cls: type[Any] | None) -> str | None:
    name = stable_name(cls) if cls else None
    return None if name and ":" in name else name


def _name_before(cls: type[Any]) -> str | None:
    """The `module:Class` that `stored_as` gave a renamed or moved class; its tags are those of the old class."""
    name = stable_name(cls)
    return name if name and ":" in name else None


def _literal(view: Core) -> str:
    return f"Literal[{', '.join(map(repr, view['expected']))}]"


def _names_of(core: Core, definitions: Mapping[str, Core], *, within: bool = False) -> tuple[str, ...]:
    """The names with what the type holds, but not with what that holds."""
    view = python_view(core, definitions)
    if view["type"] == "literal":
        # Sorted, because the order of a set differs between processes, and the name is stored.
        return (*sorted(kinds_of(view))[:1], _literal(view))
    cls = class_of(view)
    name, placed = _name(view, cls), _placed(cls)
    stable = _stable_name(cls)
    held = [] if within else [_names_of(part, definitions, within=True) for part in _held(view)]
    # Once with the first name of each part and once with the last: the last has its module, if there is one.
    full = [f"{name}[{', '.join(names[at] for names in held)}]" for at in (0, -1)] if held else []
    named = (*([stable] if stable else []), name, *full, *([placed] if placed else []))
    return tuple(dict.fromkeys(named))


def _held(view: Core) -> Iterator[Core]:
    """What a type holds that is not the same for all types of its class."""
    if view["type"] == "dataclass":
        if "generic_origin" in view:
            yield from (part["schema"] for part in view["schema"]["fields"])
        return
    for name in ("keys_schema", "values_schema", "items_schema"):
        held: Any = view.get(name, ())
        yield from cast("list[Core]", held if isinstance(held, list) else [held] if held else [])
