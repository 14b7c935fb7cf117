"""A session as JSON for people: to look at, to keep, to start from again.

::

    {"format": "handrail.session/1", "session_id": "...", "tags": {...},
     "state": {"module:Class": [item, ...], ...}, "log": {"module:Class": [item, ...], ...}}

A type is named by its module and its qualified name. Reading knows only the types that it is given: nothing is
imported, so that untrusted data reaches no code that the reader did not name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, NamedTuple, TypeAlias

from pydantic_core import from_json, to_json

from handrail.errors import (
    DumpError,
    ParseError,
    SchemaError,
    SessionError,
    SessionUseError,
    SnapshotError,
    UnknownTypeError,
)
from handrail.errors.developer import check_argument
from handrail.serde import codec, stored_codec
from handrail.session.persistence.stored_types import StoredType, stored_type

Items: TypeAlias = Mapping[type[Any], tuple[Any, ...]]
"""What slices hold, by their type."""


class SessionDocument(NamedTuple):
    """What is saved of a session.

    Attributes:
        session_id: its id.
        tags: its tags.
        state: the items of its STATE slices.
        log: the items of its LOG slices.
    """

    session_id: str
    tags: Mapping[str, str]
    state: Items
    log: Items


@dataclass(frozen=True, slots=True)
class _File:
    """The JSON; its fields are the keys."""

    format: Literal["handrail.session/1"]
    session_id: str
    tags: dict[str, str]
    state: dict[str, list[dict[str, Any]]]
    log: dict[str, list[dict[str, Any]]]


def dump_session_json(saved: SessionDocument) -> str:
    """The JSON of what is saved of a session.

    Raises:
        SnapshotError: something cannot be said in JSON; the message names the slice and the item.
    """
    # Called for its error: two types of one name would overwrite each other below.
    _by_name((*saved.state, *saved.log))
    file = _File("handrail.session/1", saved.session_id, dict(saved.tags), _dumped(saved.state), _dumped(saved.log))
    try:
        return codec(_File).dump_json(file).decode()
    except DumpError as error:
        raise SnapshotError(f"session {saved.session_id!r} cannot be saved: {error}") from error


def load_session_json(data: str | bytes, *, types: Iterable[type[Any]]) -> SessionDocument:
    """What `dump_session_json` wrote.

    Args:
        data: the JSON.
        types: the classes that the slices may be of.

    Raises:
        SnapshotError: the data is not a saved session or is cut short, names a type that is not among `types`, or holds
            an item that does not fit its type.
        InvalidArgumentError: `data` is not text, or `types` is one class.
    """
    check_argument("Session.from_json", "data", data, (str, bytes), "the text that Session.to_json returned")
    check_argument("Session.from_json", "types", types, Iterable, "the classes of the slices: types=[Order]")
    known = _by_name(types)
    try:
        file = codec(_File).parse_json(data)
    except ParseError as error:
        msg = f"this is not a saved session, or not the whole of one; pass what Session.to_json returned. {error}"
        raise SnapshotError(msg) from error
    return SessionDocument(file.session_id, file.tags, _parsed(file.state, known), _parsed(file.log, known))


def _dumped(slices: Items) -> dict[str, list[dict[str, Any]]]:
    # A secret of the session itself: what is read back makes another one when it needs one.
    shown = {kind: items for kind, items in slices.items() if not getattr(kind, "is_not_exported", False)}
    return {_name(kind): _dumped_items(kind, items) for kind, items in shown.items()}


def _dumped_items(kind: type[Any], items: tuple[Any, ...]) -> list[dict[str, Any]]:
    dump = _form_of(kind).dump
    dumped: list[dict[str, Any]] = []
    for place, item in enumerate(items):
        if type(item) is not kind:
            msg = (
                f"slice {_name(kind)} cannot be saved: item {place} is of type {type(item).__name__}, which would come "
                f"back as a {kind.__name__}; give {type(item).__name__} a slice of its own"
            )
            raise SnapshotError(msg)
        try:
            dumped.append(dump(item))
        except (DumpError, SessionError) as error:
            raise SnapshotError(f"slice {_name(kind)} cannot be saved: item {place}: {error}") from error
    return dumped


def _parsed(slices: Mapping[str, list[dict[str, Any]]], known: Mapping[str, type[Any]]) -> Items:
    unknown = sorted(name for name in slices if name not in known)
    if unknown:
        msg = (
            f"the saved session has slices of {', '.join(unknown)}, which no given type is called; pass the classes: "
            "Session.from_json(data, types=(TheClass, ...))"
        )
        raise SnapshotError(msg)
    return {known[name]: _parsed_items(known[name], items) for name, items in slices.items()}


def _parsed_items(kind: type[Any], items: list[dict[str, Any]]) -> tuple[Any, ...]:
    parse = _form_of(kind).parse
    parsed: list[Any] = []
    for place, item in enumerate(items):
        try:
            parsed.append(parse(item))
        except (ParseError, UnknownTypeError, ValueError) as error:
            raise SnapshotError(f"slice {_name(kind)} cannot be read: item {place}: {error}") from error
    return tuple(parsed)


class _Form(NamedTuple):
    dump: Callable[[Any], Any]
    parse: Callable[[Any], Any]


def _form_of(kind: type[Any]) -> _Form:
    """How the items of a type are written and read: by a form of its own, as `ToolInvoked` has, or by fields."""
    try:
        stored = stored_type(kind)
        if stored.has_form:
            return _Form(partial(_dumped_by_form, stored), partial(_parsed_by_form, stored))
        by_fields = stored_codec(kind)
    except (SchemaError, SessionUseError) as error:
        raise SnapshotError(f"slice {_name(kind)} has no form in JSON: {error.__cause__ or error}") from error
    return _Form(by_fields.dump, by_fields.parse)


def _dumped_by_form(stored: StoredType, item: object) -> Any:  # noqa: ANN401 - decoded JSON
    return from_json(stored.dump_item(item))


def _parsed_by_form(stored: StoredType, item: object) -> object:
    return stored.load(to_json([item]), stored.version)[0]


def _by_name(kinds: Iterable[type[Any]]) -> dict[str, type[Any]]:
    """The types by the names under which they are saved.

    Raises:
        SnapshotError: two types have one name.
    """
    found: dict[str, type[Any]] = {}
    for kind in kinds:
        if found.setdefault(_name(kind), kind) is not kind:
            msg = f"two types are called {_name(kind)}, so a saved session could not distinguish them; rename one"
            raise SnapshotError(msg)
    return found


def _name(kind: type[Any]) -> str:
    return f"{kind.__module__}:{kind.__qualname__}"
