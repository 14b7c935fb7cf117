"""Names, versions and forms of stored types.

A type is stored under a stable name and a version. The name is `module:QualifiedName` unless `stored_as` gives another,
so that the class may be renamed and moved. Reading knows the classes that it is given, those that `stored_as` has
named, and those of imported modules; it imports only modules of Handrail (`name_late`), and nothing is pickled.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import is_dataclass
from importlib import import_module
from types import GenericAlias, MappingProxyType
from typing import Any, NamedTuple, TypeVar, cast

from pydantic_core import from_json

from handrail.errors import DumpError, ParseError, SchemaError, SessionError, SessionUseError, UnknownTypeError
from handrail.errors.developer import check_argument
from handrail.serde import Codec, stored_codec

C = TypeVar("C", bound=type[Any])

Upgrade = Callable[[dict[str, Any]], dict[str, Any]]
"""Takes the JSON of an item of one version, and returns that of the next."""

PROJECT_PACKAGE = "handrail_project_"
"""How the names of the packages begin in which the modules of project folders are imported: each has its path in it."""

_STORED_AS = "__handrail_stored_as__"  # the attribute of a class that holds what `stored_as` says of it

_NAME = re.compile(r"[\w.:<>/-]{1,200}")

# Of the process, as modules are: the classes that `stored_as` has named, each when its module is imported.
_NAMED: dict[str, type[Any]] = {}

# Of the process, as `_NAMED`: the modules of classes by these names, those of sessions and what `name_late` adds.
_LATE: dict[str, str] = {
    **dict.fromkeys(("handrail.said", "handrail.requested_call"), "handrail.session.conversation"),
    "handrail.postponed_call": "handrail.session.open_calls",
}


class StoredForm(NamedTuple):
    """Functions that write and read the values of a class that has no declared form in JSON of its own."""

    dump: Callable[[Any], bytes]  # returns a value as one JSON object in UTF-8; raises `DumpError`
    load: Callable[[dict[str, Any]], Any]  # returns the value of such an object; raises `ParseError` or `ValueError`


class _Mark(NamedTuple):
    name: str
    version: int
    upgrades: Mapping[int, Upgrade] = MappingProxyType({})
    form: StoredForm | None = None


def stored_as(
    name: str, *, version: int = 1, upgrades: Mapping[int, Upgrade] | None = None, form: StoredForm | None = None
) -> Callable[[C], C]:
    """Gives a dataclass a stable name in stores; write it above `@dataclass`. The names are one namespace in a process.

    Args:
        name: e.g. `"desk.plan"`. Never change it.
        version: one more each time the fields change in a way that older values no longer fit.
        upgrades: for each older version a function that makes its JSON that of the version after it.
        form: writes and reads the values, instead of their declared fields.

    Raises:
        SessionError: the name is invalid, or another class has it; or an upgrade is missing.
        InvalidArgumentError: `name` is not text, as without brackets.
    """
    expected = "text, given in brackets above @dataclass: @stored_as('desk.plan')"
    check_argument("stored_as", "name", name, str, expected)
    ways = MappingProxyType(dict(upgrades or {}))
    if not _NAME.fullmatch(name):
        raise SessionError(f"{name!r} cannot name a stored type; use letters, digits and . : _ - / such as 'desk.plan'")
    if version < 1 or sorted(ways) != list(range(1, version)):
        raise SessionError(
            f"{name} is declared with version={version} and upgrades from {sorted(ways)}; count versions from 1, and "
            f"give an upgrade from each older one: upgrades={{{', '.join(f'{n}: ...' for n in range(1, version))}}}"
        )

    def mark(cls: C) -> C:
        if not hasattr(cls, "__dataclass_fields__"):
            raise SessionError(f"{_derived(cls)} is not a dataclass yet; write @stored_as({name!r}) above @dataclass")
        other = _NAMED.get(name)
        if other is not None and _derived(other) != _derived(cls):  # a module that is reloaded names its class again
            raise SessionError(
                f"{_derived(cls)} and {_derived(other)} would both be stored as {name!r}, and these names are one "
                "namespace for all of a process; give one of them another name with @stored_as"
            )
        setattr(cls, _STORED_AS, _Mark(name, version, ways, form))
        _NAMED[name] = cls
        return cls

    return mark


def name_late(modules: Mapping[str, str]) -> None:
    """Names modules, by their stored names, that are imported when a session with values of these types is read."""
    _LATE.update({name: module for module, names in modules.items() for name in names.split()})


def forget_types(is_gone: Callable[[str], bool]) -> None:
    """Forgets the names of classes of removed modules, which `is_gone` recognizes by their names."""
    for name, kind in list(_NAMED.items()):
        if is_gone(kind.__module__):
            del _NAMED[name]
            # A module that is imported again has new classes; the cached entry would keep the old one alive.
            _TYPES.pop(kind, None)


class StoredType:
    """The stored form of one class.

    Raises:
        SessionUseError: the class has no form in JSON.
    """

    __slots__ = ("_dump", "_form", "_items", "_upgrades", "kind", "name", "tag", "version")

    def __init__(self, kind: type[Any], name: str | None = None) -> None:
        if not is_dataclass(kind):
            raise SessionUseError(f"{_derived(kind)} cannot be stored, because it is not a dataclass")
        # Not inherited: a subclass is another type.
        mark: _Mark = vars(kind).get(_STORED_AS) or _Mark(_derived(kind), 1)
        self.kind: type[Any] = kind
        self.name: str = name or mark.name
        self.version: int = mark.version  # its present version
        # The beginning of a value with the name and version of its class; the value and a closing brace follow.
        self.tag: bytes = f'{{"type":"{self.name}","version":{self.version},"value":'.encode()
        self._upgrades = mark.upgrades
        self._form = mark.form
        self._items: Codec[list[Any]] | None = None
        try:
            self._dump: Callable[[Any], bytes] = stored_codec(kind).dump_json if mark.form is None else mark.form.dump
        except SchemaError as error:
            raise SessionUseError(f"{self.name} cannot be stored: {error}") from error

    def dump(self, items: Sequence[object]) -> bytes:
        """Writes items as a JSON array in UTF-8; raises as `dump_item`."""
        return b"[%s]" % b",".join(map(self.dump_item, items))

    def dump_item(self, item: object) -> bytes:
        """Writes an item as JSON in UTF-8.

        Raises:
            SessionError: it cannot be written, or would not be restored as it is; the message names it. It is a
                `SessionUseError`, the developer's mistake, if its type is at fault.
        """
        if type(item) is not self.kind:
            raise SessionUseError(
                f"a {type(item).__name__} cannot be stored among values of {self.name}, because it would come back "
                f"as a {self.kind.__name__}; give {type(item).__name__} a slice of its own"
            )
        try:
            return self._dump(item)
        except DumpError as error:
            kind = SessionUseError if error.is_mistyped else SessionError
            raise kind(f"a value of {self.name} cannot be stored: {error}") from error

    def load(self, data: bytes, version: int) -> list[Any]:
        """Reads what `dump` wrote, in this version or an older one; raises `ValueError` or `UnknownTypeError`."""
        if version < 1:
            raise ValueError(f"its version is {version}, and versions count from 1")
        try:
            # The fast path: one parse of the whole array. Upgrades and forms take the items one by one.
            if version == self.version and self._form is None:
                self._items = self._items or stored_codec(GenericAlias(list, (self.kind,)))
                return self._items.parse_json(data)
            return [self.load_item(item, version) for item in _array(data)]
        except ParseError as error:
            _array(data)  # raises `ValueError` for what is damaged, and no matter of versions
            cure = (
                f"give it a new version: @stored_as({self.name!r}, version={version + 1}, upgrades={{{version}: ...}})"
            )
            raise UnknownTypeError(
                f"values of {self.name} (version {version}) in the store do not fit the class of today: {error}; "
                + (cure if version == self.version else f"fix the upgrades from version {version} on"),
                type_name=self.name,
            ) from error

    def load_item(self, item: Any, version: int) -> Any:  # noqa: ANN401 - decoded JSON in, a value of the class out
        """Reads the JSON of an item of a version.

        Raises:
            ParseError: it does not fit the class.
            ValueError: it does not fit the form of the class.
            UnknownTypeError: the version is newer than the class, or an upgrade failed.
        """
        item = self.upgrade(item, version)
        if self._form is None:
            return stored_codec(self.kind).parse(item)
        value: object = item
        if not isinstance(value, dict):  # a form is promised an object, and no codec has looked before it
            raise ValueError(f"an item of {self.name} is not an object")  # noqa: TRY004 - wrong data, no wrong call
        return self._form.load(item)

    def upgrade(self, item: dict[str, Any], version: int) -> dict[str, Any]:
        """Upgrades the JSON of an item of a version to the present version; raises as `load`."""
        if version > self.version:
            raise UnknownTypeError(
                f"the store holds values of {self.name} in version {version}, and this program knows it up to version "
                f"{self.version}; run the newer program, or declare the new version with @stored_as({self.name!r}, "
                f"version={version}, upgrades=...)",
                type_name=self.name,
            )
        for step in range(version, self.version):
            try:
                item = self._upgrades[step](item)
            # An upgrade is a function of the program, and may raise anything.
            except Exception as error:
                raise UnknownTypeError(
                    f"the upgrade of {self.name} from version {step} to {step + 1} failed for a value in the store "
                    f"({type(error).__name__}: {error}); fix upgrades[{step}] of its @stored_as",
                    type_name=self.name,
                ) from error
        return item


# Of the process, as `_NAMED`: each class is looked at once.
_TYPES: dict[type[Any], StoredType] = {}


def stored_type(kind: type[Any]) -> StoredType:
    """The stored form of a class; made once; raises `SessionUseError`."""
    return _TYPES.get(kind) or _TYPES.setdefault(kind, StoredType(kind))


def loaded_type(name: str) -> type[Any] | None:
    """The class that has this name by `stored_as`, if its module is loaded; else no open session has a value of it."""
    return _NAMED.get(name)


def find_type(name: str, types: Iterable[type[Any]] = ()) -> type[Any] | None:
    """The dataclass of a stored name, if the program knows it; `types` are looked at first.

    The name of a class in a project folder has the path of the folder in it, unless `stored_as` gave one. If no class
    has it, it is that of the same module in another project folder, because the project may have been moved.
    """
    for kind in types:
        if stored_type(kind).name == name:
            return kind
    if name in _LATE:
        import_module(_LATE[name])
    own = _NAMED.get(name) or _type_at(name)
    place = _place_in_project(name)
    if own is not None or place is None:
        return own
    module, _, path = place.partition(":")
    packages = [package for package in list(sys.modules) if package.startswith(PROJECT_PACKAGE) and "." not in package]
    matches = [match for package in packages if (match := _type_at(f"{package}.{module}:{path}")) is not None]
    matches = [kind for kind in types if _place_in_project(stored_type(kind).name) == place] or matches
    return matches[0] if len(matches) == 1 else None


def _type_at(name: str) -> type[Any] | None:
    module, _, path = name.partition(":")
    value: object = sys.modules.get(module)
    for part in path.split("."):
        value = getattr(value, part, None)
    return value if isinstance(value, type) and is_dataclass(value) and stored_type(value).name == name else None


def _place_in_project(name: str) -> str | None:
    return name.partition(".")[2] if name.startswith(PROJECT_PACKAGE) else None


def unknown_type(name: str, where: str) -> UnknownTypeError:
    """The error for a name without a known class; `where` names the session."""
    module, _, path = name.partition(":")
    if module.startswith("handrail.") and not path:
        cure = "Import what the session was used with before it is opened: handrail.agents, or handrail.contrib.tools."
    else:
        cure_import = f"import {module} before" if path else f'name the class with @stored_as("{name}")'
        cure = (
            f"Open it with the class among types=(...,), or {cure_import}. If the class was renamed, put "
            f"@stored_as({name!r}) on the new one."
        )
    msg = f"{where} holds values of {name!r}, and no class of that name is known here. {cure}"
    return UnknownTypeError(msg, type_name=name)


def _array(data: bytes) -> list[dict[str, Any]]:
    try:
        read: Any = from_json(data)
    except ValueError:
        read = json.loads(data)  # knows halves of surrogate pairs, which models do send
    if not isinstance(read, list):
        raise ValueError("it holds something else than an array of items")  # noqa: TRY004 - wrong data, no wrong call
    return cast("list[dict[str, Any]]", read)  # whether the items are objects is found out when they are read


def _derived(kind: type[Any]) -> str:
    return f"{kind.__module__}:{kind.__qualname__}"
